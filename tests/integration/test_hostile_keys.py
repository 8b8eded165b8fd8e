"""Keys that somebody else chose, on a real server: data to it, and never longer than is told."""

import pytest

from celery_atomicity import LockTimeout, keys, overview
from celery_atomicity.atom import Atom
from celery_atomicity.connection import Clients
from celery_atomicity.integration.beat.due import Unit
from celery_atomicity.integration.beat.ledger import Ledger
from celery_atomicity.primitives.limit import Limit
from celery_atomicity.primitives.rate import Question
from celery_atomicity.settings import Settings

HOSTILE = [
    "\r\nFLUSHALL\r\n",
    "$5\r\nhello\r\n*123456789\r\n",
    "\0\x1b[2J\x07",
    "\ud800",
    "{x.__class__}",
    "%(message)s",
    "*",
    "a" * 2_000_000,
    "a" * 2_000_001,
]


@pytest.fixture
def settings(server):
    return Settings.read({"atomicity_redis": server.url, "atomicity_restart_grace": 0}, {})


def test_hostile_keys_are_held_owed_limited_and_looked_at(server, settings, group):
    server.cli("SET", "bystander", "x")
    atom = Atom(group, settings=settings)
    clients = Clients(settings)
    ledger = Ledger(clients, group, "beat\r\n*123456789\r\n")
    leases = []
    for key in HOSTILE:
        leases.append(atom.lock(key, holder=f"task {key}").acquire())
        with pytest.raises(LockTimeout) as refused:
            Atom(group, settings=settings).lock([key, "other"], wait=0).acquire()
        assert len(str(refused.value)) < 1500
        assert str(refused.value).isprintable()
        atom.rates.admit([Question(Limit(key, 1.0, 1.0, 1.0))])
        # The names of entries are the developer's, and one that looks like a server is not read.
        ledger.load({Unit(key.replace("\n*", "\n")): 1})
    debts = atom.meter(HOSTILE, [(place + 1) * 1e6 for place in range(len(HOSTILE))])

    assert debts == [pytest.approx((place + 1) * 1e6) for place in range(len(HOSTILE))]
    assert len({keys.lock_key(group, key) for key in HOSTILE}) == len(HOSTILE)
    found = overview.look(clients, group)
    assert (len(found.locks), len(found.limits), len(found.debts)) == (len(HOSTILE),) * 3
    assert all(held.key.isprintable() and held.holder.isprintable() for held in found.locks)
    assert len(ledger.entries()) == len(HOSTILE)
    for lease in leases:
        lease.check()
        lease.release()
    names = server.cli("KEYS", "*")
    assert "bystander" in names
    assert all(len(name) < 400 and name.isprintable() for name in names)
    clients.close()

"""How many connections there are: processes times addresses times a small constant."""

import os
import threading

import pytest
from support.swarm import Swarm

from celery_atomicity import Unavailable
from celery_atomicity.atom import Atom
from celery_atomicity.connection import Clients, mailbox
from celery_atomicity.settings import Settings
from celery_atomicity.testing import wait_until

# For asking, and on the first address one more for being rung.
EACH = 2


class Count(threading.Thread):
    """The most connections of ours that *servers* have at once, all of them together."""

    def __init__(self, servers):
        super().__init__(daemon=True)
        self.servers = servers
        self.most = 0
        self.unnamed = set()
        self._over = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()

    def run(self):
        while not self._over.wait(0.02):
            lines = [line for each in self.servers for line in _clients(each)]
            self.most = max(self.most, sum(" name=atomicity-" in line for line in lines))


# F99
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.soak), 3])
@pytest.mark.parametrize(
    ("pool", "size", "rounds", "processes"),
    [
        ("threads", 50, 10, 1),
        ("gevent", 500, 2, 1),
        ("prefork", 6, 20, 7),
        pytest.param("threads", 50, 2_000, 1, marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
        pytest.param("gevent", 500, 200, 1, marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
        pytest.param("prefork", 8, 12_500, 9, marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
    ],
)
def test_the_number_of_connections_is_bounded(servers, group, count, pool, size, rounds, processes):
    started = [servers() for _ in range(count)]
    urls = [each.url for each in started]
    with (
        Count(started) as counted,
        Swarm(pool=pool, size=size, rounds=rounds, urls=urls, group=group) as swarm,
    ):
        well = swarm.wait()

    assert well
    assert 0 < counted.most <= processes * (count + EACH - 1)


def test_what_is_idle_is_closed(server, group, monkeypatch):  # F99
    monkeypatch.setattr(mailbox, "IDLE", 0.3)
    atom = Atom(group, settings=_settings(server))
    lease = atom.lock("a").acquire()
    waiter = threading.Thread(target=lambda: atom.lock("a").acquire().release())
    waiter.start()
    wait_until(lambda: _ours(server) == EACH, what="somebody waits to be rung")
    lease.release()
    waiter.join()

    wait_until(lambda: _ours(server) == 1, what="nobody listens any more")


def test_who_lets_go_of_the_last_atom_lets_go_of_its_connection(server, group):
    clients = Clients(_settings(server))
    clients.command("PING")
    assert _ours(server) == 1

    clients.close()

    wait_until(lambda: _ours(server) == 0, what="it is closed")


def test_a_server_that_takes_no_more_connections_is_waited_for(servers, group, caplog):  # F99
    server = servers(arguments=("--maxclients", "50"))
    hosts = []
    try:
        # The test's own question needs one of them.
        while len(hosts) < 48:
            clients = Clients(_settings(server))
            clients.command("PING")
            hosts.append(clients)
        with Swarm(pool="threads", size=50, rounds=5, urls=[server.url], group=group) as swarm:
            well = swarm.wait()
        # Neither asking nor being rung has more than one, and there was one: they did without.
        assert well

        # Those of the swarm are given up one by one, a moment after it has ended.
        wait_until(lambda: all(_full(server, hosts) for _ in range(5)), what="the server is full")
        late = Atom(group, settings=_settings(server))
        with pytest.raises(Unavailable, match="max number of clients"):
            late.meter(["k"], [1])
        hosts.pop().close()
        hosts.pop().close()
        wait_until(lambda: _serves(late), what="there is room again")
    finally:
        for each in hosts:
            each.close()
    said = [record for record in caplog.records if "max number" in record.getMessage()]
    assert len(said) <= 1 + len(hosts)


def _settings(server):
    return Settings.read({"atomicity_redis": server.url, "atomicity_restart_grace": 0}, {})


def _serves(atom):
    try:
        return atom.meter(["k"], [1])
    except Unavailable:
        return False


def _full(server, hosts):
    """Take what connections there are; whether the last was refused."""
    clients = Clients(_settings(server))
    try:
        clients.command("PING")
    except Unavailable:
        return True
    hosts.append(clients)
    return False


def _clients(server):
    try:
        return server.cli("CLIENT", "LIST").splitlines()
    except Exception:  # noqa: BLE001 - it may be full
        return []


def _ours(server):
    return sum(f" name=atomicity-{os.getpid()}" in line for line in _clients(server))

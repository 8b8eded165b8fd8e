"""
Exceptions from outside, such as soft time limits, at each instant at which Python lets them in.

Whatever is torn away in the middle, nothing stays taken, locked or waited for.
"""

import gc
import threading
from contextlib import ExitStack
from itertools import count

import pytest
from support.strike import Strike, Struck

from celery_atomicity import LockTimeout, clock, events, keys
from celery_atomicity.connection import Clients, Script
from celery_atomicity.primitives import keeper
from celery_atomicity.primitives.keeper import Keeper
from celery_atomicity.primitives.lock import Locks
from celery_atomicity.settings import Settings
from celery_atomicity.testing import wait_until

# What is not let go stands for so long that it is noticed; seconds.
TTL = 60.0
SOON = 5.0


class Process:
    """What one process has."""

    def __init__(self, servers, group):
        settings = Settings.read(
            {
                "atomicity_redis": [server.url for server in servers],
                "atomicity_restart_grace": 0.0,
            },
            {},
        )
        self.clients = Clients(settings)
        self.keeper = Keeper(self.clients)
        self.locks = Locks(self.clients, self.keeper, group)

    def use(self, key="a", wait=None):
        with self.locks.lock(key, ttl=TTL, wait=wait):
            pass

    def close(self):
        self.clients.close()


class Site:
    def __init__(self, servers, group):
        self.servers, self.group = servers, group
        self.process = Process(servers, group)
        self.other = Process(servers, group)
        self.other.use("a")

    def renew(self):
        """A process that is not connected yet, has no keeper, and servers without our scripts."""
        for server in self.servers:
            server.cli("SCRIPT", "FLUSH")
        self.process.close()
        self.process = Process(self.servers, self.group)

    def leftovers(self, key):
        """What the servers keep of *key*."""
        names = (
            keys.lock_key(self.group, key),
            keys.line_key(self.group, key),
            keys.seen_key(self.group, key),
        )
        return [name for server in self.servers for name in names if server.cli("EXISTS", name)]

    def in_line(self, key):
        """Whether anybody waits for *key*, or the first address believes so."""
        return bool(self.servers[0].cli("HLEN", keys.seen_key(self.group, key)))

    def is_whole(self):
        """Nothing is left of it, and others get through, in this process too."""
        assert not self.process.keeper.leases, "it is renewed for ever"
        used = threading.Thread(target=self.process.use, args=("b", 5.0), daemon=True)
        used.start()
        used.join(SOON)
        assert not used.is_alive(), "it waits for ever"
        self.process.use("b", 5.0)

    def close(self):
        self.process.close()
        self.other.close()


@pytest.fixture(params=[1, 3])
def site(request, servers, group, monkeypatch):
    monkeypatch.setattr(keeper, "LOOK_AROUND", 0.05)
    # Whoever listens may be struck as well, and that is all that comes of it.
    for event in events.EVENTS.values():
        monkeypatch.setattr(event, "listeners", ())
    made = Site([servers() for _ in range(request.param)], group)
    yield made
    made.close()


# Of so many points one is tried; all of them in the long runs.
@pytest.fixture(params=[5, pytest.param(1, marks=pytest.mark.soak)])
def stride(request):
    return request.param


def everywhere(action, stride=1):
    """Strike *action* at each *stride*-th of its points in turn; tells where, each time."""
    for number in count(0, stride):
        with Strike(number) as strike:
            try:
                action()
            except (Struck, LockTimeout) as error:
                outcome = type(error)
            else:
                outcome = None
        if not strike.where:
            return
        yield strike.where, outcome


def is_let_go(site, where):
    wait_until(lambda: not site.process.keeper.leases, SOON, f"{where}: renewed no more")
    wait_until(lambda: not site.leftovers("a"), SOON, f"{where}: let go")
    site.is_whole()


def test_a_block_leaves_nothing_behind(site):
    # F10: LOCK-06, LOCK-07
    struck = 0
    for where, outcome in everywhere(site.process.use):
        struck += 1
        assert outcome is Struck, f"swallowed: {where}"
        is_let_go(site, where)
    assert struck > 50


def test_a_first_block_leaves_nothing_behind(site, stride):
    # Where it has to connect, and to start what renews it.
    struck = 0
    site.renew()

    def use():
        site.process.use()  # of another one each time

    for where, outcome in everywhere(use, stride):
        struck += 1
        assert outcome is Struck, f"swallowed: {where}"
        is_let_go(site, where)
        site.renew()
    assert struck > 50 / stride


def test_a_wait_leaves_nothing_behind(site, stride):
    # LOCK-04: neither in line, nor where it is listened for its ring
    struck = 0
    lease = site.other.locks.lock("a", ttl=TTL).acquire()
    for where, outcome in everywhere(lambda: site.process.use(wait=0.03), stride):
        struck += 1
        assert outcome is Struck, f"swallowed: {where}"
        wait_until(lambda: not site.in_line("a"), SOON, f"{where}: out of the line")
        assert not site.process.locks._mailbox._waiting, where
        site.is_whole()
    assert struck > 50 / stride
    lease.release()


def test_a_meter_is_asked_again_by_the_next(site, stride):
    # What it was answered is not known; the next one must not be given its answer.
    script = Script("meter")

    def ask():
        return site.process.clients.ask(script, [f"{site.group}:meter"], [0]).value

    assert ask() == [0]
    struck = 0
    for where, outcome in everywhere(ask, stride):
        struck += 1
        assert outcome is Struck, f"swallowed: {where}"
        assert ask() == [0], where
    assert struck > 20 / stride


def test_a_lease_is_let_go_where_its_block_was_torn_away_before_its_end(site):
    # Not a line of ours may have run then, and nobody is left who could.
    def use():
        lock = site.process.locks.lock("a", ttl=TTL)
        lock.__enter__()

    use()

    is_let_go(site, "forgotten")


def test_a_lease_that_somebody_has_in_hand_is_not_let_go(site):
    lease = site.process.locks.lock("a", ttl=TTL).__enter__()
    another = site.process.locks.lock("b", ttl=TTL).acquire()  # and the caller releases it
    with ExitStack() as stack:
        third = stack.enter_context(site.process.locks.lock("c", ttl=TTL))
        gc.collect()
        clock.sleep(0.3)

        for one in (lease, another, third):
            assert not one.released
            assert site.leftovers(one.keys[0])
    assert third.released
    assert [one.keys for one in site.process.keeper.leases] == [("a",), ("b",)]
    del another
    gc.collect()
    clock.sleep(0.3)
    assert site.leftovers("b")

    lease.release()
    assert not site.leftovers("a")

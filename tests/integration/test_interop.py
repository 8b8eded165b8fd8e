"""Another language's Redlock and ours exclude each other on the same keys."""

import threading

import pytest
import redis
from support.node import Redlock, installed

from celery_atomicity import Atom, LockTimeout, keys
from celery_atomicity.settings import Settings
from celery_atomicity.testing import wait_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(params=[1, 3], ids=["one", "three"])
def site(request, servers):
    return [servers(arguments=()) for _ in range(request.param)]


@pytest.fixture
def theirs(request, site):
    node = Redlock(installed(request.config.cache.mkdir("node")), [one.url for one in site])
    yield node
    node.close()


@pytest.fixture
def ours(site, group):
    urls = [one.url for one in site]
    return Atom(
        group, settings=Settings.read({"atomicity_redis": urls, "atomicity_restart_grace": 0}, {})
    )


def test_what_they_hold_we_wait_for(site, ours, theirs, group):
    # LOCK-01, LOCK-03
    name = keys.lock_key(group, "a")
    assert theirs.ask("acquire", name="it", keys=[name], ttl=20_000)["ok"]

    with pytest.raises(LockTimeout), ours.lock("a", wait=0):
        pass
    assert theirs.ask("release", name="it")["ok"]

    with ours.lock("a", wait=5) as lease:
        lease.check()


def test_what_we_hold_they_are_refused(site, ours, theirs, group):
    # LOCK-01, LOCK-09
    name = keys.lock_key(group, "a")
    with ours.lock("a") as lease:
        assert not theirs.ask("acquire", name="it", keys=[name], ttl=5_000)["ok"]
        lease.check()

    # A minority may hear of our release a moment later.
    wait_until(
        lambda: theirs.ask("acquire", name="it", keys=[name], ttl=5_000)["ok"], what="they have it"
    )


def test_what_they_lengthen_stays_theirs(site, ours, theirs, group):
    # LOCK-01: their lock outlives its first term, and ours is only granted after the second.
    name = keys.lock_key(group, "a")
    assert theirs.ask("acquire", name="it", keys=[name], ttl=600)["ok"]
    assert theirs.ask("extend", name="it", ttl=60_000)["ok"]

    with pytest.raises(LockTimeout), ours.lock("a", wait=1.0):
        pass


def test_neither_counts_while_the_other_does(site, ours, theirs, group):
    # LOCK-01: an unprotected counter comes out right only if nobody ever overlaps.
    rounds = 60
    client = redis.Redis.from_url(site[0].url)
    name, counter = keys.lock_key(group, "a"), "counter"

    def count():
        for _ in range(rounds):
            with ours.lock("a"):
                seen = int(client.get(counter) or 0)
                client.set(counter, seen + 1)

    theirs.send("count", key=name, ttl=5_000, counter=counter, rounds=rounds)
    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert theirs.answer()["ok"]
    assert int(client.get(counter)) == 3 * rounds

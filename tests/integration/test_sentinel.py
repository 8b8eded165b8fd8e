"""A master found by sentinels, and what becomes of decisions when it fails over."""

import threading

import pytest
from support import needs
from support.sentinels import NAME, Site
from support.tls import Authority, tls_binary

from celery_atomicity import LockTimeout, Unavailable, keys
from celery_atomicity.atom import Atom
from celery_atomicity.connection import Clients
from celery_atomicity.primitives.partition import Partition
from celery_atomicity.settings import Settings
from celery_atomicity.testing import ServerError, wait_until

TOTAL = 8
PASSWORD = "s#p%w"

# Long enough to outlast a failover, since the lease is renewed again after it.
TTL = 6.0
INTERVAL, GAP = 0.4, 0.15


@pytest.fixture(params=["plain", "tls"])
def site(request):
    authority = None
    if request.param == "tls":
        if tls_binary() is None:
            needs.missing("a server with TLS", "Debian's redis-server has it")
        authority = Authority()
    with Site(authority, PASSWORD) as started:
        yield started


@pytest.fixture
def settings(site):
    """As somebody has them whose broker is reached by sentinels."""
    conf = {
        "broker_url": site.url,
        "broker_transport_options": {
            "master_name": NAME,
            "sentinel_kwargs": {"password": PASSWORD},
            "visibility_timeout": 60,
        },
        "atomicity_lock_ttl": TTL,
        "atomicity_timeout": 0.5,
    }
    if site.authority:
        conf["broker_use_ssl"] = site.authority.trusted
    return Settings.read(conf, {})


class Witness:
    """Two replicas of one group, and whether they ever owned a slot at the same time."""

    def __init__(self, settings, group):
        self.clients = [Clients(settings) for _ in range(2)]
        self.replicas = [Partition(each, group, INTERVAL, GAP) for each in self.clients]
        self.overlaps = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self):
        for each in self.replicas:
            each.open()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        for each in self.replicas:
            each.close()
        for each in self.clients:
            each.close()

    def settled(self):
        owned = [slot for each in self.replicas for slot in each.slots(TOTAL) or []]
        return sorted(owned) == list(range(TOTAL)) and all(
            each.slots(TOTAL) for each in self.replicas
        )

    def _watch(self):
        first, second = self.replicas
        while not self._over.wait(0.002):
            before, other, after = (each.slots(TOTAL) or [] for each in (first, second, first))
            both = set(before) & set(other) & set(after)
            if both:
                self.overlaps.append(both)


# F44, LOCK-01, LOCK-02, LOCK-11, PART-01
@pytest.mark.parametrize(
    ("site", "loses"),
    [
        ("tls", True),
        pytest.param("tls", False, marks=pytest.mark.soak),
        pytest.param("plain", True, marks=pytest.mark.soak),
        pytest.param("plain", False, marks=pytest.mark.soak),
    ],
    indirect=["site"],
)
def test_decisions_outlast_a_failover(site, settings, group, loses):
    atom = Atom(group, settings=settings)
    master = site.master
    _has_run_for_long(master)
    with Witness(settings, group) as witness:
        wait_until(witness.settled, what="both own their share")
        with atom.lock("a") as lease:
            waiting = _aside(lambda: atom.lock("a").acquire())
            wait_until(lambda: master.cli("ZCARD", keys.line_key(group, "a")) == 1)
            atom.meter(["spent"], [600_000])
            # A write that is not replicated counts for nothing here.
            assert master.cli("WAIT", 1, 2000) == 1
            if loses:
                _lose(site.replica, group)
            master.kill()
            site.await_failover(master)

            wait_until(lambda: _debt(atom) is not None, what="the meter answers again")
            kept = _debt(atom)
            assert kept > 500_000 or loses
            with pytest.raises(LockTimeout):
                _aside(lambda: atom.lock("a", wait=0).acquire())()
            wait_until(witness.settled, what="both own their share again")
            wait_until(lambda: site.master.cli("GET", keys.lock_key(group, "a")), what="put back")
            lease.check()
        following = waiting()
        assert following.fence > lease.fence
        following.release()
    assert witness.overlaps == []


@pytest.mark.parametrize("site", ["plain"], indirect=True)
def test_a_demoted_master_is_left_for_the_new_one(site, settings, group):
    clients = Clients(settings)
    clients.command("SET", group, "x")
    before = site.master
    wait_until(lambda: _failed_over(site), what="the sentinel agrees to fail over")
    site.await_failover(before)

    atom = Atom(group, settings=settings)
    wait_until(lambda: _debt(atom) is not None, what="the meter answers")

    assert site.master is not before
    assert clients.command("ROLE")[0] == b"master"
    clients.close()


def test_a_server_that_is_made_a_replica_under_us_is_given_up(servers, group):
    one, other = servers(), servers()
    settings = Settings.read({"atomicity_redis": one.url, "atomicity_timeout": 0.5}, {})
    atom = Atom(group, settings=settings)
    assert _debt(atom) is not None

    one.cli("REPLICAOF", "127.0.0.1", other.port)
    wait_until(lambda: _debt(atom) is None, what="it refuses")
    with pytest.raises(Unavailable, match=r"READONLY|read only replica"):
        atom.meter(["spent"], [0])
    one.cli("REPLICAOF", "NO", "ONE")

    wait_until(lambda: _debt(atom) is not None, what="it serves again")


@pytest.mark.parametrize("site", ["plain"], indirect=True)
@pytest.mark.parametrize(
    ("name", "password", "words"),
    [
        ("nobody", PASSWORD, "nobody"),
        (NAME, "wr0ng", "(?i)main|password|authentic"),
    ],
)
def test_sentinels_that_do_not_know_are_a_clear_error(site, group, name, password, words):
    url = f"sentinel://127.0.0.1:{site.sentinel.port}/{name}?sentinel_password={password}"
    atom = Atom(group, redis=url)

    with pytest.raises(Unavailable, match=words) as refused:
        atom.meter(["spent"], [0])

    assert "wr0ng" not in str(refused.value)


def _lose(replica, group):
    """What the master had promised to send, and did not."""
    replica.cli("CONFIG", "SET", "replica-read-only", "no")
    for name in replica.cli("KEYS", f"atom:{group}:*"):
        replica.cli("DEL", name)


def _failed_over(site):
    try:
        return site.sentinel.cli("SENTINEL", "FAILOVER", NAME) == "OK"
    except ServerError:  # it has just begun to know its replica
        return False


def _has_run_for_long(server):
    """Have *server* taken for one that we know, so that it sits out no grace."""
    run = server.cli("INFO", "server").split("run_id:")[1].split()[0]
    server.cli("HSET", keys.MARKER, "run", run, "since", 0)


def _debt(atom):
    try:
        return atom.meter(["spent"], [0])[0]
    except Unavailable:
        return None


def _aside(function):
    """Call *function* in a thread; what is returned waits for its answer, or raises its error."""
    answers = []

    def run():
        try:
            answers.append((function(), None))
        except LockTimeout as error:
            answers.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait():
        thread.join(60)
        answer, error = answers[0]
        if error is not None:
            raise error
        return answer

    return wait

"""``singleton_by`` on real workers when what is around it fails, and when called past the queue."""

import os
import signal
import threading
from urllib.parse import urlsplit

import pytest
from celery import Celery, chord
from pytest_celery import RESULT_TIMEOUT, CeleryBrokerCluster
from support import singleton_tasks
from support.shared import cluster
from support.singleton_tasks import (
    collect,
    hold,
    hold_and_look,
    hold_late,
    hold_late_or_raise,
    hold_late_or_skip,
    hold_or_come_back,
    hold_or_raise,
    hold_or_skip,
    hold_until_lost,
    quick,
)
from support.turns import assert_one_at_a_time

from celery_atomicity import Atomicity, LeaseLost, LockTimeout
from celery_atomicity.integration.tasks.skipped import SKIPPED
from celery_atomicity.testing import wait_until

pytest_plugins = ["support.singleton_fixtures"]

LONG = 60  # seconds; no test waits for a task of this length
TTL = 3.0  # seconds, of the leases and of the grace after a restart

pytestmark = [pytest.mark.cluster(workers=2, concurrency=2), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def fleet(shared_engine):
    """Of the tests that take nothing away which the others need."""
    workers = [{"concurrency": 2}] * 2
    conf = {"atomicity_restart_grace": 0, "atomicity_lock_ttl": TTL}
    with cluster(shared_engine, singleton_tasks, workers=workers, conf=conf) as setup:
        yield setup


class OnSharedFleet:
    @pytest.fixture
    def celery_setup(self, idle_fleet):
        return idle_fleet


@pytest.fixture
def default_worker_tasks(default_worker_tasks):
    return default_worker_tasks | {singleton_tasks}


@pytest.fixture
def default_worker_app(default_worker_app):
    default_worker_app.conf.atomicity_restart_grace = 0
    default_worker_app.conf.atomicity_lock_ttl = TTL
    return default_worker_app


def get(result):
    return result.get(timeout=RESULT_TIMEOUT)


def deliveries(celery_setup, result):
    """How often workers have received the message of *result*."""
    logs = "".join(node.logs() for node in celery_setup.worker_cluster)
    return logs.count(f"[{result.id}] received")


def assert_came_meanwhile(celery_setup, journal, results):
    """Wait until the messages have come a second time, which is while the first still run."""
    copies = lambda: min(deliveries(celery_setup, result) for result in results)
    wait_until(lambda: copies() >= 2, 30, "the copies have come")
    assert journal("end") == []


def assert_copies_took_turns(entries, result):
    assert_one_at_a_time(entries)
    fences = [one["fence"] for one in entries if one["event"] == "start" and one["id"] == result.id]
    assert len(fences) >= 2
    assert fences == sorted(set(fences))


class TestTheHolderStops(OnSharedFleet):
    def test_a_frozen_child_finds_its_lease_lost(self, celery_setup, journal, holder):
        # LOCK-02, LOCK-05, LOCK-07, F27
        frozen, start = holder(hold_and_look, "a", 1)
        os.kill(start["pid"], signal.SIGSTOP)
        try:
            other = hold.delay("a")
            fence = get(other)
        finally:
            os.kill(start["pid"], signal.SIGCONT)

        with pytest.raises(LeaseLost, match="hold:a") as caught:
            get(frozen)

        assert caught.value.fence == start["fence"] < fence
        others, own = journal("end")  # the other one ran and ended in between
        assert (others["id"], own["id"]) == (other.id, frozen.id)
        assert own["lost"] is True


class TestTheKeyIsDeleted(OnSharedFleet):
    def test_its_holder_is_told_and_never_gets_it_back(self, celery_setup, journal, holder, taken):
        # LOCK-05, LOCK-09, F14, F30
        result, start = holder(hold_until_lost, "a")

        taken.client.delete("atom:celery_test_app:lock:hold:a")
        wait_until(lambda: journal("told"), 25, "it is told")
        given_back = taken("a")
        next_one, follows = holder(hold, "a", LONG)

        # Told by a renewal that was refused, not by a deadline; its end disturbs nobody.
        with pytest.raises(LeaseLost, match="was deleted") as caught:
            get(result)
        assert not given_back
        assert caught.value.fence == start["fence"] < follows["fence"]
        assert taken("a")
        assert not next_one.ready()


class TestTheArbiterFails:
    """It is another server than broker and backend, and goes away."""

    @pytest.fixture
    def arbiter(self, servers):
        return servers(persistent=True)

    @pytest.fixture
    def default_worker_app(self, default_worker_app, arbiter):
        default_worker_app.conf.atomicity_redis = arbiter.url
        default_worker_app.conf.atomicity_restart_grace = TTL
        return default_worker_app

    @pytest.mark.parametrize("data", [True, False], ids=["with data", "without data"])
    def test_a_restart_in_mid_run(self, celery_setup, journal, holder, arbiter, data):  # LOCK-11
        """The holder keeps its key, since nobody is given any before it could renew it."""
        result, start = holder(hold, "a", TTL + 1)
        arbiter.restart(data=data)

        contender = hold.delay("a")

        assert get(result) == start["fence"]
        assert get(contender) > start["fence"]
        assert_one_at_a_time(journal())

    def test_down_at_publish_and_at_the_start(self, celery_setup, journal, arbiter):  # LOCK-15
        """Whoever waits for a holder waits for the arbiter too; nobody skips for its sake."""
        arbiter.stop()

        waiting = hold.delay("a")  # published by the broker, which is another server
        coming = hold_or_come_back.delay("b")
        with pytest.raises(LockTimeout, match="answered"):
            get(hold_or_skip.delay("a"))
        with pytest.raises(LockTimeout, match="answered"):
            get(hold_or_raise.delay("a"))
        assert get(quick.delay()) == "quick"
        assert journal() == []
        arbiter.start()

        assert get(waiting) > 0
        assert get(coming) == 0  # retries

    def test_down_in_mid_run_for_longer_than_the_ttl(self, celery_setup, holder, arbiter):
        # LOCK-06, LOCK-07
        result, start = holder(hold_and_look, "a", 3)

        arbiter.stop()

        with pytest.raises(LeaseLost, match="no renewal reached") as caught:
            get(result)
        assert caught.value.fence == start["fence"]
        arbiter.start()
        assert get(hold.delay("a")) > start["fence"]


class TestPastTheQueue(OnSharedFleet):
    @pytest.fixture
    def app(self, celery_setup):
        """This process is one of the app's own, as a web server or a shell is."""
        app = celery_setup.app
        app.set_current()
        Atomicity(app)
        return app

    def test_called_beside_a_holder_and_a_queued_twin(self, app, journal, holder):  # F16
        """A call skips, fails and waits like a worker, and leaves what is in a queue alone."""
        held, _ = holder(hold, "a", 3)
        twin = hold.delay("a")

        assert hold_or_skip.apply(("a",)).state == SKIPPED
        with pytest.raises(LockTimeout, match=held.id):
            hold_or_raise("a")
        app.conf.task_always_eager = True
        eager = hold_or_skip.delay("a")
        app.conf.task_always_eager = False
        called = hold.apply(("a",))

        assert eager.state == SKIPPED
        assert held.id in eager.get()["holder"]
        assert get(held) < called.get()
        assert get(held) < get(twin)
        assert_one_at_a_time(journal())
        assert len(journal("end")) == 3

    def test_sent_beside_one_that_is_called(self, app, journal):  # F16
        """Workers wait for a call as for each other, also who was sent what by name."""
        called = threading.Thread(target=hold.apply, args=(("a", 2),))
        called.start()
        wait_until(lambda: journal("start"), 30, "it runs here")

        with Celery("foreign", broker=app.conf.broker_url, set_as_current=False) as foreign:
            foreign.conf.result_backend = app.conf.result_backend
            skipped = foreign.send_task(hold_or_skip.name, ("a",))
            waited = foreign.send_task(hold.name, kwargs={"key": "a"})

            assert get(skipped)["skipped"] is True
            assert skipped.state == SKIPPED
            assert get(waited) > 0
        called.join()
        assert_one_at_a_time(journal())
        assert len(journal("end")) == 2


class TestRedelivery(OnSharedFleet):
    """A message that comes again while its task runs is another contender, and disturbs nothing."""

    def test_in_its_own_way(self, celery_setup, journal, holder):  # LOCK-16
        """It is no conflict with another task, and writes no result in place of the first's."""
        results = []
        for key, task in (("a", hold_late_or_skip), ("b", hold_late_or_raise)):
            result, start = holder(task, key, 3)
            task.apply_async((key, 0), task_id=result.id)
            results.append((result, start["fence"]))

        for result, fence in results:
            assert get(result) == fence

        wait_until(lambda: len(journal("end")) == 4, 30, "all have run")
        for result, _ in results:
            assert_copies_took_turns(journal(), result)


class TestVisibilityTimeout:
    """Of a Redis broker: what is not acknowledged by then is taken for lost, and comes again."""

    @pytest.fixture
    def default_worker_app(self, default_worker_app):
        default_worker_app.conf.broker_transport_options = {
            "visibility_timeout": 2,
            "unacked_restore_interval": 0.5,
            "unacked_restore_throttle": 1,
        }
        return default_worker_app

    def test_shorter_than_the_task(self, celery_setup, journal):  # LOCK-16
        header = [hold_late.s("a", 5), hold_late_or_skip.s("b", 5), quick.s()]
        chorded = chord(header, collect.s())()
        results = chorded.parent.results[:2]

        assert_came_meanwhile(celery_setup, journal, results)

        # No copy has counted for the first one, in whatever way it had to wait.
        first = {entry["key"]: entry["fence"] for entry in reversed(journal("start"))}
        assert get(chorded) == [first["a"], first["b"], "quick"]
        wait_until(lambda: len(journal("end")) >= 4, 30, "the copies run")
        for result in results:
            assert_copies_took_turns(journal(), result)


class TestRabbitMQ:
    """It gives a message to another worker as soon as the connection of the first is lost."""

    @pytest.fixture
    def celery_broker_cluster(self, celery_rabbitmq_broker):
        return CeleryBrokerCluster(celery_rabbitmq_broker)

    @pytest.fixture
    def link(self, celery_rabbitmq_broker, proxy):
        """What all workers reach the broker through."""
        return proxy(urlsplit(celery_rabbitmq_broker.config()["host_url"]).port)

    @pytest.fixture
    def default_worker_env(self, default_worker_env, link):
        url = urlsplit(default_worker_env["CELERY_BROKER_URL"])
        own = url._replace(netloc=url.netloc.replace(f":{link.target_port}", f":{link.port}"))
        return default_worker_env | {"CELERY_BROKER_URL": own.geturl()}

    def test_connection_loss_with_acks_late(self, celery_setup, journal, holder, link):
        # LOCK-16
        waits, first = holder(hold_late, "a", 6)
        skips, second = holder(hold_late_or_skip, "b", 6)

        link.cut()
        link.heal()
        assert_came_meanwhile(celery_setup, journal, [waits, skips])

        assert [get(waits), get(skips)] == [first["fence"], second["fence"]]
        wait_until(lambda: len(journal("end")) >= 4, 30, "the copies run")
        for result in (waits, skips):
            assert_copies_took_turns(journal(), result)

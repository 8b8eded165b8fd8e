"""``singleton_by`` when a worker ends, in children that are recycled, and in every pool."""

import celery
import pytest
from pytest_celery import RESULT_TIMEOUT
from redis import Redis
from support import singleton_tasks
from support.nodes import ended
from support.shared import cluster
from support.singleton_tasks import hold, hold_briefly, hold_or_skip, lose_and_stop
from support.turns import assert_one_at_a_time

from celery_atomicity import LeaseLost
from celery_atomicity.testing import wait_until

pytest_plugins = ["support.singleton_fixtures"]

LONG = 60  # seconds; no test waits for a task of this length
CONF = {"atomicity_restart_grace": 0, "atomicity_lock_ttl": 30}

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def default_worker_tasks(default_worker_tasks):
    return default_worker_tasks | {singleton_tasks}


@pytest.fixture
def default_worker_app(default_worker_app):
    default_worker_app.conf.update(CONF)
    return default_worker_app


needs_soft_shutdown = pytest.mark.skipif(
    celery.VERSION < (5, 5), reason="soft shutdown came with Celery 5.5"
)


def get(result):
    return result.get(timeout=RESULT_TIMEOUT)


class TestTheWorkerEnds:
    """Each test ends the worker that holds the key, and leaves the others to the next."""

    SOFTLY = 2.0  # seconds for which SIGQUIT waits for tasks

    @pytest.fixture(scope="class")
    @classmethod
    def fleet(cls, shared_engine):
        workers = [{"concurrency": 2}] * 4
        conf = CONF | {"worker_soft_shutdown_timeout": cls.SOFTLY}
        with cluster(shared_engine, singleton_tasks, workers=workers, conf=conf) as setup:
            yield setup

    @pytest.fixture
    def celery_setup(self, on_fleet):
        return on_fleet

    @pytest.fixture
    def end(self, celery_setup):
        def end(start, signal):
            [node] = [n for n in celery_setup.worker_cluster if n.hostname() == start["node"]]
            node.kill(signal)

        return end

    def test_a_killed_worker(self, journal, holder, end):  # F09
        _, start = holder(hold_briefly, "killed", LONG)

        end(start, "SIGKILL")

        assert get(hold_briefly.delay("killed")) > start["fence"]

    @pytest.mark.parametrize(
        "sig", ["SIGTERM", pytest.param("SIGQUIT", marks=needs_soft_shutdown)], ids=["warm", "soft"]
    )
    def test_a_shutdown_that_lets_it_end(self, journal, taken, holder, end, sig):
        result, start = holder(hold, sig, self.SOFTLY / 2)

        end(start, sig)

        wait_until(lambda: result.id in {one["id"] for one in journal("end")}, 30, "it has ended")
        wait_until(lambda: not taken(sig), 10, "the key is free")

    def test_a_cold_shutdown_lets_go(self, taken, holder, end):
        _, start = holder(hold, "cold", LONG)

        end(start, "SIGQUIT")

        wait_until(lambda: not taken("cold"), 20, "the key is free")


class TestTheWorkerStopsWhileTasksWait:
    """It does not wait for what only waits: that goes back to its queue."""

    POOLS = ("prefork", "threads", "gevent", "solo")

    @pytest.fixture(scope="class")
    @classmethod
    def fleet(cls, shared_engine):
        workers = [{"pool": pool, "queue": pool} for pool in cls.POOLS]
        with cluster(shared_engine, singleton_tasks, workers=workers, conf=CONF) as setup:
            yield setup

    @pytest.fixture
    def celery_setup(self, on_fleet):
        return on_fleet

    def test_they_are_given_back(self, celery_setup, journal, taken):
        held_for = 120  # seconds, longer than this test
        for pool in self.POOLS:
            taken.client.set(f"atom:celery_test_app:lock:hold:{pool}", "other " * 9, ex=held_for)
        waiting = {pool: hold.apply_async((pool,), queue=pool) for pool in self.POOLS}
        lines = [f"atom:celery_test_app:line:hold:{pool}" for pool in self.POOLS]
        wait_until(lambda: taken.client.exists(*lines) == len(lines), 30, "all stand in line")
        nodes = celery_setup.worker_cluster

        for node in nodes:
            node.kill("SIGTERM")

        wait_until(lambda: all(map(ended, nodes)), 60, "the workers end")
        assert journal() == []
        with Redis.from_url(celery_setup.app.conf.broker_url) as broker:
            for pool, result in waiting.items():
                [message] = broker.lrange(pool, 0, -1)
                assert result.id.encode() in message


@pytest.mark.cluster(workers=1, concurrency=2, argv=("--max-tasks-per-child", "1"))
def test_children_that_are_recycled(celery_setup, journal):  # F101, F28
    results = [hold_or_skip.delay(f"key {number}", 0) for number in range(10)]

    assert all(get(result) > 0 for result in results)
    assert get(hold_or_skip.delay("key 0", 0)) > 0
    assert len({entry["pid"] for entry in journal("start")}) == 11


class TestPools:
    """One fleet of all of them, each with a queue of its own."""

    POOLS = ("prefork", "threads", "gevent", "eventlet", "solo")

    @pytest.fixture(scope="class")
    @classmethod
    def fleet(cls, shared_engine):
        workers = [{"pool": pool, "queue": pool, "concurrency": 4} for pool in cls.POOLS]
        with cluster(shared_engine, singleton_tasks, workers=workers, conf=CONF) as setup:
            yield setup

    @pytest.fixture
    def celery_setup(self, idle_fleet):
        return idle_fleet

    def test_one_at_a_time_in_all_of_them(self, celery_setup, journal):  # LOCK-01
        results = [hold.apply_async(("a",), queue=pool) for pool in self.POOLS for _ in range(4)]

        assert len({get(result) for result in results}) == len(results)

        assert_one_at_a_time(journal())
        assert len({entry["node"] for entry in journal("end")}) == len(self.POOLS)

    def test_who_loses_the_key_is_stopped(self, celery_setup, taken):  # LOCK-07
        losing = [lose_and_stop.apply_async((pool, 3), queue=pool) for pool in self.POOLS]

        for pool in self.POOLS:
            wait_until(lambda pool=pool: taken(pool), 30, f"the key is taken in {pool}")
            taken.client.delete(f"atom:celery_test_app:lock:hold:{pool}")

        for result in losing:
            with pytest.raises(LeaseLost):
                get(result)

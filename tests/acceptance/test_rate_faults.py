"""``rate_limited`` when a worker, a broker or the arbiter goes away, and on RabbitMQ."""

import json

import pytest
from chaos.checker.rates import worst_excess
from pytest_celery import RESULT_TIMEOUT
from redis import Redis
from support import rate_tasks
from support.nodes import ended
from support.rate_checks import (
    all_started,
    assert_message_stays,
    at,
    attained,
    calls,
)
from support.rate_tasks import add, late, patient, slow
from support.shared import cluster

from celery_atomicity.integration.rate_limit.admission import TICKET
from celery_atomicity.testing import Server, wait_until

pytest_plugins = ["support.rate_fixtures"]


@pytest.fixture(scope="class")
def workers():
    return [{"concurrency": 2}] * 2


@pytest.fixture(scope="class")
def fleet(shared_engine, workers, conf):
    given = {"atomicity_restart_grace": 0} | conf
    with cluster(shared_engine, rate_tasks, workers=workers, conf=given) as setup:
        yield setup


@pytest.fixture
def celery_setup(on_fleet):
    return on_fleet


def numbers(entries):
    # Tests of a class share a cluster, and with it what an earlier one has left in the queue.
    return {entry["number"] for entry in entries if "number" in entry}


class TestWorkers:
    @pytest.fixture(scope="class")
    @classmethod
    def conf(cls):
        options = {
            "visibility_timeout": 3,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        }
        return {"broker_transport_options": options}

    def test_a_long_way_is_gone_in_hops(self, celery_setup, starts, arbiter):
        # RATE-07
        before = calls(arbiter)
        for _ in range(16):
            slow.delay()

        entries = all_started(starts, 16)

        # Four seconds, of which no message may be held for more than three.
        assert len({entry["id"] for entry in entries}) == len(entries) == 16
        assert worst_excess(at(entries), 4) <= 0
        # Each process asks once about the arbiter, and the workers register meanwhile.
        assert calls(arbiter) - before <= 2.2 * 16 + 10

    def test_what_a_killed_worker_held_comes_again(self, celery_setup, starts):
        # RATE-01, RATE-07
        first, _ = celery_setup.worker_cluster
        for number in range(80):
            late.delay(number)
        all_started(starts, 20)

        first.kill()

        # A message that kombu has taken from a list of Redis and not noted yet dies with it.
        wait_until(lambda: len(numbers(starts())) >= 78, 60, "all have run")
        assert worst_excess(at(starts()), 20) <= 0


class TestFleet:
    @pytest.fixture(scope="class")
    @classmethod
    def workers(cls):
        return [{"concurrency": 2}]

    @pytest.fixture(scope="class")
    @classmethod
    def conf(cls):
        return {}

    def test_the_limit_does_not_grow_with_the_fleet(self, celery_setup, starts):
        # F49
        [first] = celery_setup.worker_cluster
        for number in range(40):
            late.delay(number)
        all_started(starts, 10)

        celery_setup.spawn({"concurrency": 2}, {"pool": "threads", "concurrency": 2})
        for number in range(40, 100):
            late.delay(number)
        first.kill(signal="SIGTERM")
        # What Celery hands to a child just as the worker is told to end may run a second time.
        wait_until(lambda: numbers(starts()) == set(range(100)), 60, "all have started")
        entries = starts()

        assert worst_excess(at(entries), 20) <= 0
        assert len({entry["node"] for entry in entries}) == 3


class TestTheWorkerStopsWhileTasksWait:
    """It does not wait for what only waits: that goes back to its queue, and keeps its place."""

    POOLS = ("prefork", "threads", "gevent", "solo")

    @pytest.fixture(scope="class")
    @classmethod
    def workers(cls):
        return [{"pool": pool, "queue": pool} for pool in cls.POOLS]

    @pytest.fixture(scope="class")
    @classmethod
    def conf(cls):
        return {}

    def test_they_are_given_back(self, celery_setup, starts, arbiter):
        # RATE-03
        before = calls(arbiter)
        for pool in self.POOLS:
            patient.apply_async((pool,), queue=pool).get(timeout=RESULT_TIMEOUT)
        waiting = {pool: patient.apply_async((pool,), queue=pool) for pool in self.POOLS}
        asked = 2 * len(self.POOLS)
        wait_until(lambda: calls(arbiter) >= before + asked, 30, "all know their place")
        nodes = celery_setup.worker_cluster

        for node in nodes:
            node.kill("SIGTERM")

        wait_until(lambda: all(map(ended, nodes)), 50, "the workers end")
        assert len(starts()) == len(self.POOLS)
        with Redis.from_url(celery_setup.app.conf.broker_url) as broker:
            for pool, result in waiting.items():
                [message] = map(json.loads, broker.lrange(pool, 0, -1))
                assert message["headers"]["id"] == result.id
                assert message["headers"][TICKET]


class TestTwoServers:
    """The arbiter is another server than broker and backend, and goes away."""

    @pytest.fixture(scope="class")
    @classmethod
    def away(cls):
        with Server() as server:
            yield server

    @pytest.fixture(scope="class")
    @classmethod
    def conf(cls, away):
        return {"atomicity_redis": away.url}

    def test_a_restart_with_loss_forgives_one_burst(self, celery_setup, starts, away):
        # RATE-01
        for number in range(80):
            late.delay(number)
        all_started(starts, 20)

        away.kill()
        away.start()
        entries = all_started(starts, 80)

        # One burst, and one start while nobody has noticed yet.
        assert worst_excess(at(entries), 20, burst=3) <= 0
        assert numbers(entries) == set(range(80))

    def test_who_cannot_ask_asks_again(self, celery_setup, starts, away):
        # RATE-05, F71
        away.kill()
        limited = [add.delay(1, 1) for _ in range(4)]
        free = [rate_tasks.run_anyway.delay() for _ in range(4)]

        assert [result.get(timeout=RESULT_TIMEOUT) for result in free] == [None] * 4
        assert not starts(add)
        away.start()

        assert [result.get(timeout=RESULT_TIMEOUT) for result in limited] == [2] * 4
        warned = sum(
            node.logs().count("run without their limits") for node in celery_setup.worker_cluster
        )
        assert 1 <= warned <= 4  # once in each process of the pools


@pytest.fixture(scope="module")
def rabbitmq(shared_engine):
    return shared_engine.rabbitmq()


class TestRabbitMQ:
    @pytest.fixture(scope="class")
    @classmethod
    def fleet(cls, shared_engine, rabbitmq, workers):
        conf = {"atomicity_restart_grace": 0}
        with cluster(
            shared_engine, rate_tasks, workers=workers, conf=conf, broker=rabbitmq
        ) as setup:
            yield setup

    def test_everything_about_the_message_stays(self, celery_setup):
        # RATE-03
        assert_message_stays(celery_setup.app)

    def test_a_killed_worker_neither_adds_nor_loses(self, celery_setup, starts):
        # RATE-01
        first, _ = celery_setup.worker_cluster
        for number in range(80):
            late.delay(number)
        all_started(starts, 20)

        first.kill()

        wait_until(lambda: len(numbers(starts())) == 80, 60, "all have run")
        assert worst_excess(at(starts()), 20) <= 0
        assert len(starts()) <= 80 + 2  # those that were running


class TestNativeDelay:
    @pytest.fixture(scope="class")
    @classmethod
    def fleet(cls, shared_engine, rabbitmq):
        conf = {
            "atomicity_restart_grace": 0,
            "task_default_queue_type": "quorum",
            "task_default_exchange_type": "topic",
            "task_default_exchange": "tasks",
            "worker_detect_quorum_queues": True,
            "broker_native_delayed_delivery_queue_type": "quorum",
        }
        with cluster(
            shared_engine,
            rate_tasks,
            workers=[{"concurrency": 2}],
            conf=conf,
            broker=rabbitmq,
            queue="quorum",
        ) as setup:
            yield setup

    def test_the_broker_holds_what_waits(self, celery_setup, starts):
        # RATE-07
        for _ in range(16):
            slow.delay()

        entries = all_started(starts, 16)

        assert worst_excess(at(entries), 4) <= 0
        assert attained(at(entries), 4) >= 0.9
        assert_message_stays(celery_setup.app)

"""``rate_limited`` on real workers: how many start when, and what a task is when it comes back."""

import json
import time
from collections import Counter

import psutil
import pytest
from celery import chain, chord, group
from pytest_celery import RESULT_TIMEOUT, CeleryBrokerCluster
from redis import Redis
from support import rate_tasks
from support.nodes import NodeContainer
from support.rate_tasks import (
    STARTS,
    add,
    bursting,
    failing,
    fast,
    gather,
    late,
    limited_and_single,
    penalised,
    raising,
    single_and_limited,
    skipping,
    stacked,
    started,
    steady,
    tell,
    total,
    unrelated,
    waiting,
)

from celery_atomicity import RateLimited
from celery_atomicity.integration.tasks.skipped import SKIPPED
from celery_atomicity.testing import wait_until

JITTER = 0.05  # seconds that a start may come late on a task's own clock

pytestmark = [pytest.mark.cluster(workers=2, concurrency=4), pytest.mark.timeout(180)]


@pytest.fixture
def default_worker_tasks(default_worker_tasks):
    return default_worker_tasks | {rate_tasks}


@pytest.fixture
def default_worker_app(default_worker_app):
    default_worker_app.conf.atomicity_restart_grace = 0  # leases need not wait for a new server
    return default_worker_app


@pytest.fixture
def arbiter(celery_setup):
    with Redis.from_url(celery_setup.app.conf.result_backend, decode_responses=True) as client:
        yield client


@pytest.fixture
def starts(arbiter):
    """What has started so far, in the order of the clock."""

    def read(task=None):
        entries = [json.loads(entry) for entry in arbiter.lrange(STARTS, 0, -1)]
        mine = [entry for entry in entries if task is None or entry["name"] == task.name]
        return sorted(mine, key=lambda entry: entry["at"])

    return read


def worst_excess(times, rate, burst=1):
    """By how much the fullest window is above its limit; a bucket is all windows at once."""
    level = highest = before = 0.0
    for when in sorted(times):
        level = max(0.0, level - rate * (when - before)) + 1
        before = when
        highest = max(highest, level)
    return highest - burst - rate * JITTER


def attained(times, rate, burst=1):
    return (len(times) - burst) / (rate * (max(times) - min(times)))


def all_started(starts, count, timeout=60):
    wait_until(lambda: len(starts()) >= count, timeout, f"{count} tasks start")
    return starts()


def calls(arbiter):
    stats = arbiter.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


class TestRates:
    @pytest.mark.parametrize(
        "pool",
        [
            pytest.param(
                pool,
                marks=[
                    pytest.mark.cluster(workers=2, pool=pool, concurrency=4),
                    *([pytest.mark.soak] if pool == "gevent" else []),
                ],
            )
            for pool in ("prefork", "threads", "gevent")
        ],
    )
    def test_many_at_once_all_run_once_at_the_rate(self, celery_setup, starts, arbiter, pool):
        # RATE-01, RATE-02, RATE-03, F63
        count, rate = 400, 50
        with celery_setup.app.producer_pool.acquire(block=True) as producer:
            for number in range(count):
                steady.apply_async((number,), producer=producer)

        entries = all_started(starts, count)

        times = [entry["at"] for entry in entries]
        assert Counter(entry["number"] for entry in entries) == Counter(range(count))
        assert {entry["retries"] for entry in entries} == {0}
        assert len({entry["node"] for entry in entries}) == 2
        assert worst_excess(times, rate) <= 0
        # At first every process of the pools connects to everything.
        assert attained(times[20:], rate) >= 0.95
        assert calls(arbiter) / count <= 2.2

    def test_a_burst_starts_at_once_for_each_key(self, celery_setup, starts):
        # RATE-01
        for _ in range(40):
            bursting.delay("acme")
            bursting.delay("other")

        entries = all_started(starts, 80)

        for tenant in ("acme", "other"):
            times = [entry["at"] for entry in entries if entry["tenant"] == tenant]
            assert worst_excess(times, 10, 20) <= 0
            assert times[-1] - times[0] >= 1.8
            assert attained(times, 10, 20) >= 0.9  # two seconds are short: it begins with sending

    def test_the_limit_does_not_grow_with_the_fleet(self, celery_setup, starts, spawn):
        # F49
        _, second = celery_setup.worker_cluster
        for number in range(160):
            late.delay(number)
        all_started(starts, 30)

        spawn(NodeContainer, 2, concurrency=2)
        second.container._container.kill(signal="SIGTERM")
        entries = all_started(starts, 160)

        times = [entry["at"] for entry in entries]
        assert worst_excess(times, 20) <= 0
        assert {entry["number"] for entry in entries} == set(range(160))

    def test_stacked_limits_hold_each(self, celery_setup, starts):
        # RATE-04
        for _ in range(8):
            for tenant in "abcdefgh":
                stacked.delay(tenant)

        entries = all_started(starts, 64)

        assert worst_excess([entry["at"] for entry in entries], 10) <= 0
        for tenant in "abcdefgh":
            times = [entry["at"] for entry in entries if entry["tenant"] == tenant]
            assert worst_excess(times, 2) <= 0
        assert attained([entry["at"] for entry in entries], 10) >= 0.85

    def test_other_tasks_are_not_held_up(self, celery_setup, starts):
        # F22
        for _ in range(30):
            add.delay(1, 1)

        results = [unrelated.delay() for _ in range(20)]

        assert [result.get(timeout=RESULT_TIMEOUT) for result in results] == ["done"] * 20
        assert len(starts(add)) < 30

    def test_a_partner_that_says_stop_holds_the_fleet_back(self, celery_setup, starts):
        # RATE-08
        penalised.delay(2.0)
        wait_until(starts, 10, "the first has run")
        for _ in range(10):
            penalised.delay()

        first, *others = all_started(starts, 11)

        assert others[0]["at"] - first["at"] >= 2.0
        assert worst_excess([entry["at"] for entry in others], 20) <= 0

    def test_remote_control_holds_a_rate_back(self, celery_setup, starts):
        # RATE-08
        answers = celery_setup.app.control.broadcast(
            "atomicity_hold_back",
            arguments={"key": "penalised", "seconds": 2.0},
            reply=True,
            limit=2,
        )
        sent = time.time()

        penalised.delay()

        assert all("ok" in reply for answer in answers for reply in answer.values())
        [entry] = all_started(starts, 1)
        assert entry["at"] - sent >= 1.5


class TestOnLimit:
    def test_raise(self, celery_setup, starts):
        raising.delay().get(timeout=RESULT_TIMEOUT)

        with pytest.raises(RateLimited) as caught:
            raising.delay().get(timeout=RESULT_TIMEOUT)

        assert "refusing" in str(caught.value)
        assert "try again in 5" in str(caught.value)
        assert len(starts()) == 1

    def test_skip(self, celery_setup, starts):
        # F19
        assert skipping.delay().get(timeout=RESULT_TIMEOUT) == "ran"

        skipped = skipping.delay()
        result = skipped.get(timeout=RESULT_TIMEOUT)

        assert skipped.state == SKIPPED
        assert result["key"] == "skipping"
        assert 50 < result["retry_after"] <= 60
        counted = chord([skipping.s(), skipping.s()], gather.s()).delay()
        assert [each["skipped"] for each in counted.get(timeout=RESULT_TIMEOUT)] == [True, True]

    def test_wait(self, celery_setup, starts):
        for _ in range(8):
            waiting.delay()

        times = [entry["at"] for entry in all_started(starts, 8)]

        assert worst_excess(times, 4) <= 0
        assert attained(times, 4) >= 0.9


class TestComingBack:
    def test_everything_about_the_message_stays(self, celery_setup):
        # RATE-03
        app = celery_setup.app
        options = {
            "headers": {"traceparent": "00-aa-bb-01", "tenant": {"id": 7}},
            "priority": 3,
            "shadow": "shadowed",
            "time_limit": 50,
            "soft_time_limit": 40,
            "expires": 600,
            "link": unrelated.si(),
            "argsrepr": "(hidden)",
            "retries": 2,
            "reply_to": "somebody",
            "origin": "elsewhere",
        }
        sent = [app.send_task(tell.name, (1, {"b": [2]}), {"c": None}, **options) for _ in range(3)]

        direct, *came_back = [result.get(timeout=RESULT_TIMEOUT) for result in sent]

        for told, result in zip(came_back, sent[1:], strict=True):
            assert told["id"] == result.id == told["root_id"]
            assert told["parent_id"] is None
            assert told["headers"]["traceparent"] == "00-aa-bb-01"
            different = ("id", "root_id", "expires")
            assert {k: v for k, v in told.items() if k not in different} == {
                k: v for k, v in direct.items() if k not in different
            }

    def test_chains_groups_and_chords_are_none_the_wiser(self, celery_setup, starts):
        # RATE-03
        for _ in range(4):
            add.delay(0, 0)
        line = chain(add.s(1, 1), add.s(2), add.s(3)).delay()
        crowd = group(add.s(n, n) for n in range(4)).delay()
        counted = chord((add.s(n, 1) for n in range(4)), total.s()).delay()

        assert line.get(timeout=RESULT_TIMEOUT) == 7
        assert crowd.get(timeout=RESULT_TIMEOUT) == [0, 2, 4, 6]
        assert counted.get(timeout=RESULT_TIMEOUT) == 10
        assert worst_excess([entry["at"] for entry in starts()], 4) <= 0
        assert len(starts()) == 4 + 3 + 4 + 4

    def test_it_is_no_retry_and_real_retries_still_count(self, celery_setup, starts):
        # RATE-03, F12, F63
        results = [failing.delay() for _ in range(4)]

        assert [result.get(timeout=RESULT_TIMEOUT) for result in results] == [2] * 4
        entries = starts()
        assert Counter(entry["retries"] for entry in entries) == {0: 4, 1: 4, 2: 4}
        assert not any(entry["ticket"] for entry in entries)
        assert worst_excess([entry["at"] for entry in entries], 4) <= 0

    def test_the_backend_knows_it_as_pending(self, celery_setup, starts):
        results = [started.delay() for _ in range(3)]
        wait_until(lambda: len(starts()) == 2, 20, "one waits still")

        states = {result.state for result in results if result.state != "SUCCESS"}

        assert states <= {"PENDING"}
        assert [result.get(timeout=RESULT_TIMEOUT) for result in results] == [None] * 3

    def test_one_that_would_expire_before_its_place_is_not_promised_one(
        self, celery_setup, starts, arbiter
    ):
        # RATE-03
        for _ in range(12):
            add.delay(0, 0)
        wait_until(lambda: len(starts()) >= 1, 10, "the first runs")
        doomed = [add.apply_async((0, 0), expires=1.0) for _ in range(20)]

        wait_until(lambda: all(each.ready() for each in doomed), 20, "they expire")
        ran = [each for each in doomed if each.state == "SUCCESS"]
        times = [entry["at"] for entry in all_started(starts, 12 + len(ran))]

        # One may have found a start that nobody else was there for.
        assert len(ran) <= 3
        assert len(times) == 12 + len(ran)
        assert attained(times, 4) >= 0.9  # they kept no places

    @pytest.mark.parametrize("task", [single_and_limited, limited_and_single])
    def test_one_at_a_time_and_limited(self, celery_setup, starts, task):
        # F12
        for _ in range(6):
            task.delay("a")
            task.delay("b")

        entries = all_started(starts, 24)

        begins = [entry["at"] for entry in entries if entry["edge"] == "start"]
        assert worst_excess(begins, 5) <= 0
        for key in "ab":
            edges = [entry["edge"] for entry in entries if entry["key"] == key]
            assert edges == ["start", "end"] * 6


class TestFaults:
    @pytest.fixture
    def default_worker_app(self, default_worker_app):
        default_worker_app.conf.broker_transport_options = {
            "visibility_timeout": 4,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        }
        return default_worker_app

    def test_what_a_killed_worker_held_comes_again(self, celery_setup, starts):
        # RATE-01, RATE-07
        first, _ = celery_setup.worker_cluster
        for number in range(100):
            late.delay(number)
        all_started(starts, 30)

        first.kill()

        # A message that kombu has taken from a list of Redis and not noted yet dies with it.
        wait_until(lambda: len({entry["number"] for entry in starts()}) >= 98, 60, "all have run")
        assert worst_excess([entry["at"] for entry in starts()], 20) <= 0

    def test_a_long_way_is_gone_in_hops(self, celery_setup, starts, arbiter):
        # RATE-07
        for _ in range(28):
            add.delay(0, 0)

        entries = all_started(starts, 28)

        # Seven seconds, of which no message may be held for more than four.
        assert len({entry["id"] for entry in entries}) == len(entries) == 28
        assert worst_excess([entry["at"] for entry in entries], 4) <= 0
        # Each of the ten processes asks once about the arbiter, and two workers register.
        assert calls(arbiter) <= 2.2 * 28 + 10 + 8


class TestTwoServers:
    """The arbiter is another server than broker and backend, and goes away."""

    @pytest.fixture
    def away(self, servers):
        return servers()

    @pytest.fixture
    def default_worker_app(self, default_worker_app, away):
        default_worker_app.conf.atomicity_redis = away.url
        return default_worker_app

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
        assert 1 <= warned <= 8  # once in each process of the pool

    def test_a_restart_with_loss_forgives_one_burst(self, celery_setup, starts, away):
        # RATE-01
        for number in range(100):
            late.delay(number)
        all_started(starts, 25)

        away.kill()
        away.start()
        entries = all_started(starts, 100)

        # One burst, and one start while nobody has noticed yet.
        assert worst_excess([entry["at"] for entry in entries], 20, burst=3) <= 0
        assert len({entry["number"] for entry in entries}) == 100


class TestRabbitMQ:
    @pytest.fixture
    def celery_broker_cluster(self, celery_rabbitmq_broker):
        return CeleryBrokerCluster(celery_rabbitmq_broker)

    def test_a_killed_worker_neither_adds_nor_loses(self, celery_setup, starts):
        # RATE-01
        first, _ = celery_setup.worker_cluster
        for number in range(100):
            late.delay(number)
        all_started(starts, 30)

        first.kill()

        wait_until(lambda: len({entry["number"] for entry in starts()}) == 100, 60, "all have run")
        assert worst_excess([entry["at"] for entry in starts()], 20) <= 0
        assert len(starts()) <= 100 + 4  # those that were running

    def test_everything_about_the_message_stays(self, celery_setup):
        TestComingBack.test_everything_about_the_message_stays(self, celery_setup)


class TestNativeDelay:
    @pytest.fixture
    def celery_broker_cluster(self, celery_rabbitmq_broker):
        return CeleryBrokerCluster(celery_rabbitmq_broker)

    @pytest.fixture
    def default_worker_app(self, default_worker_app):
        conf = default_worker_app.conf
        conf.task_default_queue_type = "quorum"
        conf.task_default_exchange_type = "topic"
        conf.task_default_exchange = "tasks"
        conf.worker_detect_quorum_queues = True
        conf.broker_native_delayed_delivery_queue_type = "quorum"
        return default_worker_app

    def test_the_broker_holds_what_waits(self, celery_setup, starts):
        # RATE-07
        for _ in range(20):
            add.delay(1, 1)

        entries = all_started(starts, 20)

        assert worst_excess([entry["at"] for entry in entries], 4) <= 0
        assert attained([entry["at"] for entry in entries], 4) >= 0.9
        TestComingBack.test_everything_about_the_message_stays(self, celery_setup)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "pool",
    [
        pytest.param(pool, marks=pytest.mark.cluster(workers=4, pool=pool, concurrency=4))
        for pool in ("prefork", "threads")
    ],
)
@pytest.mark.parametrize("count", [2_000, 20_000])
def test_thousands_of_delayed_tasks(celery_setup, starts, arbiter, pool, count):
    # RATE-02, RATE-07
    for number in range(count):
        fast.delay(number)
    sizes = []

    def done():
        sizes.append(max(map(memory_of, celery_setup.worker_cluster)))
        return arbiter.llen(STARTS) >= count

    wait_until(done, count / 100 * 1.5 + 60, "all have run")

    times = [entry["at"] for entry in starts()]
    assert len(times) == count
    assert worst_excess(times, 100) <= 0
    assert attained(times, 100) >= 0.95
    print(f"largest worker {max(sizes) >> 20} MiB, at first {sizes[0] >> 20} MiB")


def memory_of(node):
    return psutil.Process(node.container.attrs["State"]["Pid"]).memory_info().rss

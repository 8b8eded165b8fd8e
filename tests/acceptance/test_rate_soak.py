"""``rate_limited`` in long runs and at high rates, which take a machine of their own."""

import os
from collections import Counter

import psutil
import pytest
from chaos.checker.rates import worst_excess
from redis import Redis
from support import rate_tasks
from support.rate_checks import at, attained, calls
from support.rate_tasks import (
    STARTS,
    fast,
    furious,
    late,
    minutely,
    slow,
    swift,
    unlimited,
    unrelated,
)
from support.shared import cluster

from celery_atomicity import clock
from celery_atomicity.testing import Server, wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
pytest_plugins = ["support.rate_fixtures"]

# Tasks that are delayed at the same time.
MANY = int(os.environ.get("RATE_TASKS", "20000"))

POOLS = ["prefork", "threads", "gevent"]


@pytest.fixture
def workers(pool):
    return [{"pool": pool, "concurrency": 4}] * 2


@pytest.fixture
def conf():
    return {}


@pytest.fixture
def fleet(shared_engine, workers, conf):
    given = {"atomicity_restart_grace": 0} | conf
    with cluster(shared_engine, rate_tasks, workers=workers, conf=given) as setup:
        yield setup


@pytest.fixture
def celery_setup(on_fleet):
    return on_fleet


def send(setup, task, count):
    with setup.app.producer_pool.acquire(block=True) as producer:
        for number in range(count):
            task.apply_async((number,), producer=producer)


def memory(setup):
    """The resident bytes of the largest main process."""
    pids = (node.container.attrs["State"]["Pid"] for node in setup.worker_cluster)
    return max(psutil.Process(pid).memory_info().rss for pid in pids)


class Spare:
    """How much of the processors had nothing to do since this was made, from 0 to 1."""

    def __init__(self):
        self._before = psutil.cpu_times()

    def __call__(self):
        now = psutil.cpu_times()
        idle = now.idle + now.iowait - self._before.idle - self._before.iowait
        return idle / (sum(now) - sum(self._before))


def assert_rate_is_used(entries, rate, spare):
    """Whatever the rules say, the rate is not what a machine without a spare moment reaches."""
    used, left = attained(at(entries)[rate:], rate), spare()
    print(f"{used:.3f} of the rate, {left:.0%} of the processors' time left over")
    assert used >= 0.95 or left < 0.1


def until(arbiter, count, timeout):
    wait_until(lambda: arbiter.llen(STARTS) >= count, timeout, f"{count} have started")


@pytest.mark.parametrize("pool", POOLS)
def test_two_thousand_at_once_all_run_once(celery_setup, starts, arbiter, pool):
    # RATE-01, RATE-02, RATE-03, F63
    count, rate, before, spare = 2_000, 100, calls(arbiter), Spare()
    send(celery_setup, fast, count)

    until(arbiter, count, 90)

    entries = starts()
    asked = (calls(arbiter) - before) / count
    print(f"{pool}: {asked:.2f} calls a task")
    assert Counter(entry["number"] for entry in entries) == Counter(range(count))
    assert {entry["retries"] for entry in entries} == {0}
    assert worst_excess(at(entries), rate) <= 0
    assert_rate_is_used(entries, rate, spare)
    assert asked <= 2.2


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_twenty_thousand_delayed_all_run_once(celery_setup, starts, arbiter, pool):
    # RATE-01, RATE-07
    count, rate, spare = MANY, 100, Spare()
    send(celery_setup, fast, count)

    until(arbiter, count, 850)

    entries = starts(fast)
    assert Counter(entry["number"] for entry in entries) == Counter(range(count))
    assert worst_excess(at(entries), rate) <= 0
    assert_rate_is_used(entries, rate, spare)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_waits_neither_fills_a_worker_nor_holds_up_others(celery_setup, starts, arbiter, pool):
    # RATE-07, F65
    count, before = MANY, memory(celery_setup)
    send(celery_setup, slow, count)

    with Redis.from_url(celery_setup.app.conf.broker_url) as broker:

        def all_wait():
            held = broker.hlen("unacked") + arbiter.llen(STARTS)
            return not broker.llen("celery") and held >= count - 8

        wait_until(all_wait, 600, "all have a place and wait in a worker")
    each = (memory(celery_setup) - before) * len(celery_setup.worker_cluster) / count
    began = clock.monotonic()
    for _ in range(20):
        unrelated.delay().get(timeout=60)
    other = (clock.monotonic() - began) / 20

    print(f"{pool}: {before >> 20} MiB before, {each:,.0f} bytes more for each that waits")
    print(f"another task takes {other * 1000:.0f} ms there and back beside {count:,} that wait")
    assert each < 24 * 1024
    assert other < 0.5


class TestSixHundredASecond:
    """What a small machine can show of a high rate: nothing is given back, it is waited for."""

    @pytest.fixture(params=[1, 2])
    def workers(self, request):
        return [{"pool": "prefork", "concurrency": 8 // request.param}] * request.param

    def test_they_all_run_at_that_rate_or_as_fast_as_others(self, celery_setup, starts, arbiter):
        # RATE-01, RATE-02
        count, rate, burst = 9_000, 600, 20
        send(celery_setup, unlimited, count)
        until(arbiter, count, 120)
        plain = attained(at(starts(unlimited))[rate:], 1)
        send(celery_setup, swift, count)
        until(arbiter, 2 * count, 120)

        entries = starts(swift)
        reached = attained(at(entries)[rate:], 1)
        print(f"{reached:.0f}/s of {rate}/s; the same tasks without a limit reach {plain:.0f}/s")
        assert Counter(entry["number"] for entry in entries) == Counter(range(count))
        assert worst_excess(at(entries), rate, burst) <= 0
        assert reached >= 0.95 * rate or reached >= 0.8 * plain


class TestCapped:
    """A worker may hold so many tasks that wait, and no more."""

    CAP = 10

    @pytest.fixture
    def workers(self):
        return [{"concurrency": 2}]

    @pytest.fixture
    def conf(self):
        return {"worker_eta_task_limit": self.CAP, "worker_prefetch_multiplier": 1}

    def test_a_worker_holds_no_more_than_it_may(self, celery_setup, starts):
        # RATE-07
        count, held = 60, []
        send(celery_setup, slow, count)

        with Redis.from_url(celery_setup.app.conf.broker_url) as broker:

            def done():
                held.append(broker.hlen("unacked"))
                return len(starts()) >= count

            wait_until(done, 90, "all have run")

        entries = starts()
        print(f"{max(held)} held at most, {attained(at(entries), 4):.3f} of the rate")
        assert max(held) <= self.CAP
        assert Counter(entry["number"] for entry in entries) == Counter(range(count))
        assert worst_excess(at(entries), 4) <= 0


class TestAllAtOnce:
    """Workers are scaled from 2 to 6 to 3, one is killed, and the arbiter loses its data."""

    @pytest.fixture
    def away(self):
        with Server() as server:
            yield server

    @pytest.fixture
    def fleet(self, shared_engine, away):
        workers = [{"pool": pool, "concurrency": 4} for pool in ("prefork", "threads")]
        conf = {"atomicity_restart_grace": 0, "atomicity_redis": away.url}
        broker = shared_engine.rabbitmq()
        with cluster(shared_engine, rate_tasks, workers=workers, conf=conf, broker=broker) as setup:
            yield setup

    def test_no_window_holds_too_much(self, celery_setup, starts, arbiter, away):
        # RATE-01, F49
        sent = {furious: 6_000, late: 600, minutely: 6}
        for task, count in sent.items():
            send(celery_setup, task, count)

        wait_until(lambda: len(starts(late)) >= 100, 60, "the work has begun")
        new = celery_setup.spawn(*[{"pool": "prefork", "concurrency": 2}] * 4)
        wait_until(lambda: len(starts(late)) >= 200, 60, "six are at work")
        new[0].kill()
        new[1].kill(signal="SIGTERM")
        celery_setup.worker_cluster[0].kill(signal="SIGTERM")
        wait_until(lambda: len(starts(late)) >= 300, 60, "three are at work")
        away.kill()
        away.start()

        def done():
            ran = {(entry["name"], entry["number"]) for entry in starts()}
            return len(ran) == sum(sent.values())

        wait_until(done, 180, "all have run")

        # A burst for the lost data, and one start while nobody has noticed it.
        for task, rate, burst in ((furious, 600, 20), (late, 20, 1), (minutely, 7 / 60, 1)):
            times = at(starts(task))
            excess, of_rate = worst_excess(times, rate, 2 * burst + 1), attained(times, rate, burst)
            print(f"{task.name}: {len(times)} starts, {excess:+.1f}, {of_rate:.3f} of the rate")
            assert excess <= 0
        assert attained(at(starts(late)), 20) >= 0.9

"""
``rate_limited`` on real workers: how many start when, and what a task is when it comes back.

One cluster serves all of these: a worker with processes and one with threads. Its rates are low,
so that what is measured is the limit and not the machine.
"""

import time
from collections import Counter

import pytest
from celery import chain, chord, group
from chaos.checker.rates import worst_excess
from pytest_celery import RESULT_TIMEOUT
from support import rate_tasks
from support.rate_checks import (
    all_started,
    assert_message_stays,
    at,
    attained,
    calls,
)
from support.rate_tasks import (
    add,
    bursting,
    crowded,
    failing,
    gather,
    limited_and_single,
    penalised,
    raising,
    resting,
    single_and_limited,
    skipping,
    slow,
    stacked,
    started,
    steady,
    total,
    unrelated,
    waiting,
)
from support.shared import cluster

from celery_atomicity import RateLimited
from celery_atomicity.integration.tasks.skipped import SKIPPED
from celery_atomicity.testing import wait_until

pytest_plugins = ["support.rate_fixtures"]


@pytest.fixture(scope="module")
def fleet(shared_engine):
    workers = [{"pool": pool, "concurrency": 2} for pool in ("prefork", "threads")]
    # Leases need not wait for a new server.
    conf = {"atomicity_restart_grace": 0}
    with cluster(shared_engine, rate_tasks, workers=workers, conf=conf) as setup:
        yield setup


@pytest.fixture
def celery_setup(on_fleet):
    return on_fleet


class TestRates:
    def test_many_at_once_all_run_once_at_the_rate(self, celery_setup, starts, arbiter):
        # RATE-01, RATE-02, RATE-03, F63
        count, rate, before = 120, 20, calls(arbiter)
        for number in range(count):
            steady.delay(number)

        entries = all_started(starts, count)

        assert Counter(entry["number"] for entry in entries) == Counter(range(count))
        assert {entry["retries"] for entry in entries} == {0}
        assert len({entry["node"] for entry in entries}) == 2
        assert worst_excess(at(entries), rate) <= 0
        # At first every process of the pools connects to everything.
        assert attained(at(entries)[10:], rate) >= 0.95
        # Each process asks once about the arbiter, and the workers register meanwhile.
        assert calls(arbiter) - before <= 2.2 * count + 10

    def test_a_burst_starts_at_once_for_each_key(self, celery_setup, starts):
        # RATE-01
        for _ in range(35):
            bursting.delay("acme")
            bursting.delay("other")

        entries = all_started(starts, 70)

        for tenant in ("acme", "other"):
            times = [entry["at"] for entry in entries if entry["tenant"] == tenant]
            assert worst_excess(times, 10, 20) <= 0
            assert times[-1] - times[0] >= 1.3
            # Those that waited come at the pace of the rate; sending them all takes its time.
            assert attained(times[20:], 10) >= 0.9

    def test_stacked_limits_hold_each(self, celery_setup, starts):
        # RATE-04
        for _ in range(8):
            for tenant in "abcd":
                stacked.delay(tenant)

        entries = all_started(starts, 32)

        assert worst_excess(at(entries), 10) <= 0
        for tenant in "abcd":
            times = [entry["at"] for entry in entries if entry["tenant"] == tenant]
            assert worst_excess(times, 4) <= 0
        assert attained(at(entries), 10) >= 0.7  # of three seconds, in which two limits meet

    def test_other_tasks_are_not_held_up(self, celery_setup, starts):
        # F22
        limited = [crowded.delay() for _ in range(20)]

        results = [unrelated.delay() for _ in range(20)]

        assert [result.get(timeout=RESULT_TIMEOUT) for result in results] == ["done"] * 20
        assert len(starts(crowded)) < 20
        celery_setup.app.control.revoke([each.id for each in limited])

    def test_a_partner_that_says_stop_holds_the_fleet_back(self, celery_setup, starts):
        # RATE-08
        penalised.delay(2.0)
        wait_until(starts, 10, "the first has run")
        for _ in range(10):
            penalised.delay()

        first, *others = all_started(starts, 11)

        assert others[0]["at"] - first["at"] >= 2.0
        assert worst_excess(at(others), 20) <= 0

    def test_remote_control_holds_a_rate_back(self, celery_setup, starts):
        # RATE-08
        answers = celery_setup.app.control.broadcast(
            "atomicity_hold_back",
            arguments={"key": "resting", "seconds": 2.0},
            reply=True,
            limit=2,
        )
        sent = time.time()

        resting.delay()

        assert all("ok" in reply for answer in answers for reply in answer.values())
        [entry] = all_started(starts, 1)
        assert entry["at"] - sent >= 1.0


class TestOnLimit:
    def test_raise(self, celery_setup, starts):
        raising.delay().get(timeout=RESULT_TIMEOUT)

        with pytest.raises(RateLimited) as caught:
            raising.delay().get(timeout=RESULT_TIMEOUT)

        assert "refusing" in str(caught.value)
        assert caught.value.keys == ("refusing",)
        assert 0 < caught.value.retry_after <= 60
        assert len(starts()) == 1

    def test_skip(self, celery_setup, starts):
        # F19
        assert skipping.delay().get(timeout=RESULT_TIMEOUT) == "ran"

        skipped = skipping.delay()
        result = skipped.get(timeout=RESULT_TIMEOUT)

        assert skipped.state == SKIPPED
        assert result["key"] == "skipping"
        assert 0 < result["retry_after"] <= 60
        counted = chord([skipping.s(), skipping.s()], gather.s()).delay()
        assert [each["skipped"] for each in counted.get(timeout=RESULT_TIMEOUT)] == [True, True]

    def test_wait(self, celery_setup, starts):
        for _ in range(8):
            waiting.delay()

        times = at(all_started(starts, 8))

        assert worst_excess(times, 4) <= 0
        assert attained(times, 4) >= 0.9


class TestComingBack:
    def test_everything_about_the_message_stays(self, celery_setup):
        # RATE-03
        assert_message_stays(celery_setup.app)

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
        assert worst_excess(at(starts()), 8) <= 0
        assert len(starts()) == 4 + 3 + 4 + 4

    def test_it_is_no_retry_and_real_retries_still_count(self, celery_setup, starts):
        # RATE-03, F12, F63
        results = [failing.delay() for _ in range(4)]

        assert [result.get(timeout=RESULT_TIMEOUT) for result in results] == [2] * 4
        entries = starts()
        assert Counter(entry["retries"] for entry in entries) == {0: 4, 1: 4, 2: 4}
        assert not any(entry["ticket"] for entry in entries)
        assert worst_excess(at(entries), 8) <= 0

    def test_the_backend_knows_it_as_pending(self, celery_setup, starts):
        results = [started.delay() for _ in range(3)]
        wait_until(lambda: len(starts()) == 2, 20, "one waits still")

        states = {result.state for result in results if result.state != "SUCCESS"}

        assert states <= {"PENDING"}
        assert [result.get(timeout=RESULT_TIMEOUT) for result in results] == [None] * 3

    def test_one_that_would_expire_before_its_place_is_not_promised_one(self, celery_setup, starts):
        # RATE-03
        for _ in range(12):
            slow.delay()
        wait_until(starts, 10, "the first runs")
        doomed = [slow.apply_async(expires=1.0) for _ in range(20)]

        wait_until(lambda: all(each.ready() for each in doomed), 20, "they expire")
        ran = [each for each in doomed if each.state == "SUCCESS"]
        times = at(all_started(starts, 12 + len(ran)))

        # One may have found a start that nobody else was there for.
        assert len(ran) <= 3
        assert len(times) == 12 + len(ran)
        assert attained(times, 4) >= 0.9  # they kept no places

    @pytest.mark.parametrize("task", [single_and_limited, limited_and_single])
    def test_one_at_a_time_and_limited(self, celery_setup, starts, task):
        # F12
        for _ in range(5):
            task.delay("a")
            task.delay("b")

        entries = all_started(starts, 20)

        begins = at(entry for entry in entries if entry["edge"] == "start")
        assert worst_excess(begins, 5) <= 0
        for key in "ab":
            edges = [entry["edge"] for entry in entries if entry["key"] == key]
            assert edges == ["start", "end"] * 5

"""``singleton_by`` on real workers: who runs, and what becomes of the key however a task ends."""

import os
import signal

import pytest
from celery import chain, chord, group
from celery.exceptions import SoftTimeLimitExceeded, TaskRevokedError, TimeLimitExceeded
from celery.result import AsyncResult
from pytest_celery import RESULT_TIMEOUT
from support import singleton_tasks
from support.singleton_tasks import (
    collect,
    end_by,
    fail_three_times,
    hold,
    hold_briefly,
    hold_or_come_back,
    hold_or_raise,
    hold_or_skip,
    lose_and_fail,
    lose_and_log,
    lose_and_stop,
    quick,
    replace_itself,
    retry_three_times,
)
from support.turns import assert_one_at_a_time

from celery_atomicity import LeaseLost, LockTimeout
from celery_atomicity.integration.tasks.skipped import SKIPPED
from celery_atomicity.testing import wait_until

pytest_plugins = ["support.singleton_fixtures"]

LONG = 60  # seconds; no test waits for a task of this length

# Two processes each: what a worker has fetched must not wait behind a task that takes long.
pytestmark = [pytest.mark.cluster(workers=2, concurrency=2), pytest.mark.timeout(180)]


@pytest.fixture
def default_worker_tasks(default_worker_tasks):
    return default_worker_tasks | {singleton_tasks}


@pytest.fixture
def default_worker_app(default_worker_app):
    default_worker_app.conf.atomicity_restart_grace = 0
    default_worker_app.conf.atomicity_lock_ttl = 30
    return default_worker_app


def get(result):
    return result.get(timeout=RESULT_TIMEOUT)


class TestExclusion:
    def test_never_two_of_one_key_at_once(self, celery_setup, journal):  # LOCK-01, LOCK-02
        results = [hold.delay("a") for _ in range(10)]
        results += [hold.delay(key=key) for key in ("b", "c") * 3]
        results += [celery_setup.app.send_task(hold.name, ("a", 0.01)) for _ in range(4)]  # F16

        fences = [get(result) for result in results]

        assert_one_at_a_time(journal())
        assert len(journal("end")) == len(results)
        assert len({entry["node"] for entry in journal()}) == 2
        assert len(set(fences)) == len(fences)
        started = [entry["fence"] for entry in journal("start") if entry["key"] == "a"]
        assert started == sorted(started)

    def test_other_keys_run_side_by_side(self, celery_setup, journal, holder):
        holder(hold, "a", LONG)

        get(hold.delay("b"))

        assert [entry["key"] for entry in journal("end")] == ["b"]


class TestOnConflict:
    def test_skip(self, celery_setup, journal, holder, taken):  # F19
        held, start = holder(hold, "a", LONG)

        skipped = hold_or_skip.delay("a")
        result = get(skipped)

        assert skipped.state == SKIPPED
        assert result["skipped"] is True
        assert result["key"] == "hold:a"
        assert held.id in result["holder"]
        assert start["node"] in result["holder"]
        assert 0 < result["remaining"] <= 30
        assert [entry["id"] for entry in journal("start")] == [held.id]
        assert taken("a")

    def test_skip_says_so_in_one_line_of_the_log(self, celery_setup, holder):  # F18
        holder(hold, "a", LONG)

        skipped = hold_or_skip.delay("a")
        get(skipped)

        logs = "".join(node.logs() for node in celery_setup.worker_cluster)
        assert logs.count(f"Skipped {hold_or_skip.name}[{skipped.id}]: hold:a is held by") == 1
        assert f"{skipped.id}] raised" not in logs

    def test_skip_runs_when_the_key_is_free(self, celery_setup):
        assert get(hold_or_skip.delay("a")) > 0

    def test_raise(self, celery_setup, journal, holder):
        held, _ = holder(hold, "a", LONG)

        with pytest.raises(LockTimeout, match=held.id):
            get(hold_or_raise.delay("a"))

        assert len(journal("start")) == 1

    @pytest.mark.cluster(workers=1, concurrency=2)
    def test_retry_leaves_the_pool_to_others(self, celery_setup, journal, holder):  # F22, RATE-03
        held, _ = holder(hold, "a", 3)

        waiting = [hold_or_come_back.delay("a") for _ in range(3)]
        assert get(quick.delay()) == "quick"
        others_were_served = not held.ready()

        assert [get(result) for result in waiting] == [0, 0, 0]
        assert others_were_served
        assert_one_at_a_time(journal())


class TestChords:
    def test_a_skipped_member_counts_as_done(self, celery_setup, holder):
        holder(hold, "a", LONG)

        result = chord([hold_or_skip.s("a"), quick.s()], collect.s())()
        skipped, quickly = get(result)

        assert skipped["skipped"] is True
        assert quickly == "quick"

    def test_so_does_a_chain_that_begins_with_one(self, celery_setup, holder):
        holder(hold, "a", LONG)
        header = [chain(hold_or_skip.s("a"), collect.s(), collect.s()), quick.s()]

        result = chord(header, collect.s())()
        skipped, quickly = get(result)

        assert skipped["skipped"] is True
        assert quickly == "quick"

    def test_a_chain_and_a_group_after_it_end_as_skipped(self, celery_setup, holder):
        holder(hold, "a", LONG)

        single = chain(hold_or_skip.s("a"), collect.s())()
        several = chain(hold_or_skip.s("a"), group(collect.s(), collect.s()))()

        assert get(single)["skipped"] is True
        assert single.state == SKIPPED
        assert [one["skipped"] for one in get(several)] == [True, True]

    def test_a_group_of_one_key(self, celery_setup):
        results = get(group(hold_or_skip.s("a", 1) for _ in range(2))())

        assert sum(isinstance(result, int) for result in results) in (1, 2)

    def test_a_body_may_be_skipped(self, celery_setup, holder):
        holder(hold, "a", LONG)

        result = chord([quick.s()], hold_or_skip.si("a"))()

        assert get(result)["skipped"] is True


class TestRetries:
    """A retry lets go first, and is never lost to its own key."""

    @pytest.mark.parametrize("task", [retry_three_times, fail_three_times], ids=lambda t: t.name)
    def test_three_times(self, celery_setup, journal, task):  # F12
        results = [task.delay(f"key {number}") for number in range(5)]

        assert [get(result) for result in results] == [3] * 5
        starts = [entry["retries"] for entry in journal("start") if entry["key"] == "key 0"]
        assert starts == [0, 1, 2, 3]

    def test_replace(self, celery_setup, journal):  # F12
        assert get(replace_itself.delay("a")) > 0
        assert len(journal("end")) == 1


class TestEnds:
    """However a task ends, its key is free soon; the ttl is 30 s, and nobody waits for it."""

    def free(self, taken, key="a", within=10):
        wait_until(lambda: not taken(key), within, "the key is free")

    def test_return_and_exception(self, celery_setup, taken):
        get(hold.delay("a"))
        assert not taken("a")

        with pytest.raises(TypeError):
            get(hold.delay("a", "no number"))
        assert not taken("a")

    @pytest.mark.parametrize("how", ["ignore", "reject"])
    def test_ignore_and_reject(self, celery_setup, journal, taken, how):
        end_by.delay("a", how)

        wait_until(lambda: journal("start"), 30, "it runs")
        self.free(taken)

    def test_an_expired_task_takes_nothing(self, celery_setup, journal):
        expired = hold.apply_async(("a",), countdown=1, expires=0.5)

        with pytest.raises(TaskRevokedError):
            get(expired)

        assert journal() == []

    @pytest.mark.cluster(workers=1, concurrency=2, argv=("--max-tasks-per-child", "1"))
    def test_children_that_are_recycled(self, celery_setup, journal, taken):  # F101, F28
        results = [hold_or_skip.delay(f"key {number}", 0) for number in range(10)]

        assert all(get(result) > 0 for result in results)
        assert get(hold_or_skip.delay("key 0", 0)) > 0
        assert len({entry["pid"] for entry in journal("start")}) == 11

    def test_a_message_that_comes_again_after_its_child_was_killed(  # F09
        self, celery_setup, journal, holder
    ):
        result, start = holder(hold_briefly, "a", 2)

        os.kill(start["pid"], signal.SIGKILL)

        assert get(result) > start["fence"]
        assert [entry["id"] for entry in journal("start")] == [result.id] * 2
        assert len(journal("end")) == 1

    def test_a_killed_child(self, celery_setup, taken, holder):  # LOCK-18, F09
        _, start = holder(hold, "a", LONG)

        os.kill(start["pid"], signal.SIGKILL)

        self.free(taken)
        assert get(hold.delay("a")) > start["fence"]

    def test_the_next_in_line_follows_a_killed_child(self, celery_setup, journal, holder):
        _, start = holder(hold, "a", LONG)
        waiting = hold.delay("a")

        os.kill(start["pid"], signal.SIGKILL)

        assert get(waiting) > start["fence"]

    def test_a_killed_worker(self, celery_setup, journal, holder):  # F09
        _, start = holder(hold_briefly, "a", LONG)
        [node] = [n for n in celery_setup.worker_cluster if n.hostname() == start["node"]]

        node.kill()

        assert get(hold_briefly.delay("a")) > start["fence"]

    def test_a_hard_time_limit(self, celery_setup, taken, holder):  # F10
        result, start = holder(hold, "a", LONG, time_limit=1)

        with pytest.raises(TimeLimitExceeded):
            get(result)

        self.free(taken)
        assert get(hold.delay("a")) > start["fence"]

    def test_a_soft_time_limit(self, celery_setup, taken, holder):  # F10
        result, _ = holder(hold, "a", LONG, soft_time_limit=1)

        with pytest.raises(SoftTimeLimitExceeded):
            get(result)

        assert not taken("a")

    def test_a_soft_time_limit_while_it_waits(self, celery_setup, journal, taken, holder):  # F10
        held, _ = holder(hold, "a", 3)

        with pytest.raises(SoftTimeLimitExceeded):
            get(hold.apply_async(("a",), soft_time_limit=1))

        get(held)
        assert not taken("a")
        assert len(journal("start")) == 1

    @pytest.mark.cluster(workers=1)
    def test_revoked_before_it_runs(self, celery_setup, journal, holder):
        first, _ = holder(hold, "a", 2)
        queued = hold.apply_async(("a",))
        celery_setup.app.control.revoke(queued.id)

        with pytest.raises(TaskRevokedError):
            get(queued)

        get(first)
        assert queued.id not in {entry["id"] for entry in journal("start")}

    @pytest.mark.parametrize("sig", ["SIGTERM", "SIGKILL"])
    def test_revoked_with_terminate(self, celery_setup, taken, holder, sig):
        result, start = holder(hold, "a", LONG)

        celery_setup.app.control.revoke(result.id, terminate=True, signal=sig)

        with pytest.raises(TaskRevokedError):
            get(result)
        self.free(taken)
        assert get(hold.delay("a")) > start["fence"]

    @pytest.mark.cluster(workers=1)
    def test_a_warm_shutdown_lets_it_end(self, celery_setup, journal, taken, holder):
        holder(hold, "a", 1)
        [node] = celery_setup.worker_cluster

        node.kill("SIGTERM")

        wait_until(lambda: journal("end"), 30, "the task has ended")
        self.free(taken)

    @pytest.mark.cluster(workers=1)
    def test_a_cold_shutdown_lets_go(self, celery_setup, taken, holder):
        holder(hold, "a", LONG)
        [node] = celery_setup.worker_cluster

        node.kill("SIGQUIT")

        self.free(taken, within=20)


class TestOnLost:
    """A key that is deleted by hand is lost at the next renewal."""

    def lose(self, taken, key="a"):
        taken.client.delete(f"atom:celery_test_app:lock:hold:{key}")

    def test_fail(self, celery_setup, taken, holder):
        result, _ = holder(lose_and_fail, "a", 2)

        self.lose(taken)

        with pytest.raises(LeaseLost, match="hold:a"):
            get(result)

    def test_log(self, celery_setup, taken, holder):
        result, start = holder(lose_and_log, "a", 2)

        self.lose(taken)

        assert get(result) == "done"
        [node] = [n for n in celery_setup.worker_cluster if n.hostname() == start["node"]]
        node.assert_log_exists("went on to its end without its lease")

    def test_interrupt(self, celery_setup, journal, taken, holder):
        result, _ = holder(lose_and_stop, "a", LONG)

        self.lose(taken)

        with pytest.raises(LeaseLost, match="hold:a"):
            get(result)
        assert [entry["error"] for entry in journal("stopped")] == ["LeaseLost"]
        assert get(quick.delay()) == "quick"


def test_a_redelivered_copy_is_another_contender(celery_setup, journal, holder):  # LOCK-16
    """The same task id twice at once: the second copy waits, and disturbs nothing."""
    result, _ = holder(hold, "a", 2)

    again = hold.apply_async(("a",), task_id=result.id)

    wait_until(lambda: len(journal("end")) == 2, 30, "both copies have run")
    assert_one_at_a_time(journal())
    assert AsyncResult(again.id).get(timeout=RESULT_TIMEOUT) > 0


@pytest.mark.parametrize(
    "pool",
    [
        pytest.param(pool, marks=pytest.mark.cluster(workers=2, pool=pool, concurrency=4))
        for pool in ("threads", "gevent", "eventlet", "solo")
    ],
)
def test_in_every_pool(celery_setup, journal, taken, pool):
    results = [hold.delay("a") for _ in range(8)]

    assert len({get(result) for result in results}) == 8
    assert_one_at_a_time(journal())
    lost = lose_and_stop.delay("b", 3)
    wait_until(lambda: taken("b"), 30, "the key is taken")
    taken.client.delete("atom:celery_test_app:lock:hold:b")
    with pytest.raises(LeaseLost):
        get(lost)

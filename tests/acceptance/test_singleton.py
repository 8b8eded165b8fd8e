"""``singleton_by`` on real workers: who runs, and what becomes of the key however a task ends."""

import os
import signal
import uuid
from datetime import datetime, timedelta, timezone

import pytest
from celery import Celery, chain, chord, group
from celery.beat import Scheduler
from celery.exceptions import SoftTimeLimitExceeded, TaskRevokedError, TimeLimitExceeded
from celery.result import AsyncResult
from pytest_celery import RESULT_TIMEOUT
from support import singleton_tasks
from support.shared import cluster
from support.singleton_tasks import (
    collect,
    end_by,
    fail,
    fail_three_times,
    hold,
    hold_briefly,
    hold_or_come_back,
    hold_or_raise,
    hold_or_skip,
    lose_and_fail,
    lose_and_log,
    lose_and_stop,
    on_error,
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

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def fleet(shared_engine):
    # Two processes each: what a worker has fetched must not wait behind a task that takes long.
    workers = [{"concurrency": 2}] * 2
    conf = {"atomicity_restart_grace": 0, "atomicity_lock_ttl": 30}
    with cluster(shared_engine, singleton_tasks, workers=workers, conf=conf) as setup:
        yield setup


@pytest.fixture
def celery_setup(idle_fleet):
    return idle_fleet


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


def send_raw(app, task, *args):
    """A message as another language writes it."""
    id_ = str(uuid.uuid4())
    with app.connection_for_write() as connection, connection.Producer() as producer:
        producer.publish(
            [args, {}, {}],
            routing_key=app.conf.task_default_queue,
            serializer="json",
            headers={"lang": "go", "task": task.name, "id": id_, "root_id": id_},
            correlation_id=id_,
        )
    return app.AsyncResult(id_)


def send_by_beat(app, task, *args):
    """What Celery's own beat sends, which knows nothing of the task but its name."""
    id_ = str(uuid.uuid4())
    with Celery("beat", broker=app.conf.broker_url, set_as_current=False) as beat:
        scheduler = Scheduler(app=beat, lazy=True)
        options = {"task_id": id_}
        every = timedelta(days=1)
        entry = Scheduler.Entry(
            task.name, task.name, schedule=every, args=args, options=options, app=beat
        )
        scheduler.apply_async(entry, advance=False)
    return app.AsyncResult(id_)


def linked(task, *args):
    link = task.si(*args)
    result = link.freeze()
    quick.apply_async(link=link)
    return result


def linked_for_errors(task, *args):
    link = task.si(*args)
    result = link.freeze()
    fail.apply_async(("no",), link_error=link)
    return result


def start_in_every_way(app, task, key):
    """The results of *task*, started once in each way that there is."""
    return {
        "delay": task.delay(key),
        "eta": task.apply_async((key,), eta=datetime.now(timezone.utc) + timedelta(seconds=0.5)),
        "send_task": app.send_task(task.name, kwargs={"key": key}),
        "a message of another language": send_raw(app, task, key),
        "beat": send_by_beat(app, task, key),
        "chain": chain(quick.si(), task.si(key))(),
        "group": group([task.si(key), quick.s()])().results[0],
        "chord header": chord([task.si(key), quick.s()], collect.s())().parent.results[0],
        "chord body": chord([quick.s()], task.si(key))(),
        "link": linked(task, key),
        "link_error": linked_for_errors(task, key),
    }


class TestHoweverItIsStarted:
    def test_it_is_skipped_while_another_one_runs(self, celery_setup, journal, holder):  # F16, F18
        held, _ = holder(hold, "a", LONG)

        results = start_in_every_way(celery_setup.app, hold_or_skip, "a")

        skipped = {way: get(result)["skipped"] for way, result in results.items()}
        assert skipped == dict.fromkeys(results, True)
        assert [entry["id"] for entry in journal("start")] == [held.id]

    def test_it_waits_its_turn(self, celery_setup, journal):  # LOCK-01, F16
        results = start_in_every_way(celery_setup.app, hold, "a")

        fences = {way: get(result) for way, result in results.items()}

        assert len(set(fences.values())) == len(results)
        assert_one_at_a_time(journal())
        assert {entry["id"] for entry in journal("end")} == {each.id for each in results.values()}

    def test_an_error_link_that_is_called_and_not_sent(self, celery_setup, journal, holder):
        first, second = (fail.apply_async((key,), link_error=on_error.s()) for key in "ab")

        wait_until(lambda: len(journal("error")) == 2, 30, "both links were called")

        assert {entry["of"] for entry in journal("error")} == {first.id, second.id}
        one, other = journal("error")
        assert one["fence"] < other["fence"]


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

    def test_retry_leaves_the_pool_to_others(self, celery_setup, journal, holder):  # F22, RATE-03
        held, _ = holder(hold, "a", LONG)

        # One for each process that is left.
        waiting = [hold_or_come_back.delay("a") for _ in range(3)]
        assert get(quick.delay()) == "quick"
        assert not held.ready()
        celery_setup.app.control.revoke(held.id, terminate=True)

        assert [get(result) for result in waiting] == [0, 0, 0]
        assert_one_at_a_time(entry for entry in journal() if entry["id"] != held.id)


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

    def test_revoked_before_it_runs(self, celery_setup, journal):
        queued = hold.apply_async(("a",), countdown=1)

        celery_setup.app.control.revoke(queued.id)

        with pytest.raises(TaskRevokedError):
            get(queued)
        assert journal() == []

    @pytest.mark.parametrize("sig", ["SIGTERM", "SIGKILL"])
    def test_revoked_with_terminate(self, celery_setup, taken, holder, sig):
        result, start = holder(hold, "a", LONG)

        celery_setup.app.control.revoke(result.id, terminate=True, signal=sig)

        with pytest.raises(TaskRevokedError):
            get(result)
        self.free(taken)
        assert get(hold.delay("a")) > start["fence"]


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

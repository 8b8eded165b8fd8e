"""Waiting for one another, and being torn away from that."""

import math
import threading
from contextlib import suppress

import pytest
from support.strike import Strike, Struck

from celery_atomicity import clock, threads
from celery_atomicity.threads import Changes, Waiting

LONG = 30.0


def waits(one):
    """How long *one* waits when it may wait for long."""
    began = clock.monotonic()
    one.wait(LONG)
    return clock.monotonic() - began


def test_who_is_woken_just_before_it_waits_does_not_wait():
    # Between standing in the queue and waiting, whoever read may have stopped.
    one = Waiting()
    one.wake()

    assert waits(one) < LONG / 2
    one.wait(0.01)  # once
    threading.Timer(0.05, one.wake).start()
    assert 0.01 < waits(one) < LONG / 2


def test_what_was_found_before_is_not_waited_for():
    one = Waiting()
    one.done = True

    assert waits(one) < LONG / 2


def test_it_may_be_woken_by_many_and_for_nothing():
    one = Waiting()
    one.wait(0.0)
    for _ in range(3):
        one.wake()

    assert waits(one) < LONG / 2
    one.wait(0.0)  # a second one may have been meant
    threading.Timer(0.05, one.wake).start()
    assert 0.01 < waits(one) < LONG / 2


def test_a_wait_without_end_may_be_asked_for():
    one = Waiting()
    threading.Timer(0.05, one.wake).start()

    one.wait(math.inf)


@pytest.mark.parametrize("action", [Waiting.wake, lambda one: one.wait(0.01)])
def test_who_is_torn_away_locks_out_nobody(action):
    for number in range(100):
        one = Waiting()
        one.wait(0.0)
        with suppress(Struck), Strike(number) as strike:
            action(one)
        threading.Timer(0.01, one.wake).start()
        assert waits(one) < LONG / 2, strike.where
        if not strike.where:
            break
    assert number > 2


def test_changes_are_told_to_all_who_wait():
    changes, true, found = Changes(), [], []
    several = [
        threading.Thread(
            target=lambda: found.append(changes.wait_for(lambda: bool(true), LONG)), daemon=True
        )
        for _ in range(5)
    ]
    for one in several:
        one.start()
    changes.tell()  # of something else
    true.append(True)
    changes.tell()
    for one in several:
        one.join(LONG / 2)

    assert found == [True] * 5


def test_what_is_true_just_after_it_was_looked_at_is_not_waited_for():
    changes, looks = Changes(), []

    def is_true():
        looks.append(True)
        if len(looks) == 1:
            changes.tell()  # while nobody is known to wait yet
            return False
        return True

    began = clock.monotonic()
    assert changes.wait_for(is_true, LONG)
    assert clock.monotonic() - began < LONG / 2
    assert not changes.wait_for(lambda: False, 0.01)


def test_a_thread_has_its_name_and_does_not_stay_behind():
    named = threading.Event()
    goes_on = threading.Event()

    def run(first, second):
        assert (first, second) == (1, 2)
        named.set()
        assert goes_on.wait(LONG)

    threads.start("of-this-test", run, 1, 2)
    assert named.wait(LONG)

    [mine] = [one for one in threading.enumerate() if one.name == "of-this-test"]
    assert mine.daemon
    goes_on.set()
    mine.join(LONG)
    assert mine not in threading.enumerate()


def test_a_starter_that_is_torn_away_leaves_a_thread_that_runs_or_none():
    for number in range(50):
        ran = threading.Event()
        started = False
        with suppress(Struck), Strike(number) as strike:
            threads.start("of-this-test", ran.set)
            started = True
        assert not started or ran.wait(LONG)
        if not strike.where:
            break


def test_where_one_thread_can_be_had_that_one_does_it(monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ran = threading.Event()

    threads.start("of-this-test", ran.set)

    assert ran.wait(LONG)

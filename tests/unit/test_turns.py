"""Threads that wait for each other's reading; see tests/integration/test_mailbox.py for sockets."""

import math
from collections import deque

import pytest

from celery_atomicity import clock
from celery_atomicity.connection.turns import TORN, Turns
from celery_atomicity.threads import Waiting

LONG = 30.0


def waits(one):
    """How long *one* waits when it may wait for long."""
    began = clock.monotonic()
    one.wait(LONG)
    return clock.monotonic() - began


@pytest.fixture
def turns():
    return Turns()


def test_who_stops_wakes_the_next_that_still_waits(turns):
    reader, found, overdue, left, follower = (Waiting() for _ in range(5))
    assert turns.is_mine(reader)
    for one in (found, overdue, left, follower):
        assert not turns.is_mine(one)
    found.done = True
    overdue.deadline = clock.monotonic() - 1
    left.deadline = -math.inf

    turns.leave(reader)

    assert waits(follower) < LONG / 2
    assert turns.is_mine(follower)


def test_whoever_waits_takes_over_from_one_that_was_torn_away(turns):
    torn, follower = Waiting(), Waiting()
    torn.deadline = clock.monotonic() + LONG
    assert turns.is_mine(torn)
    assert not turns.is_mine(follower)

    torn.deadline = clock.monotonic() - TORN / 2
    assert not turns.is_mine(follower)  # it may only be late
    torn.deadline = clock.monotonic() - TORN - 1e-6

    assert turns.is_mine(follower)


def test_who_stands_in_the_queue_just_after_the_reader_has_looked_reads(turns):
    reader, follower = Waiting(), Waiting()
    assert turns.is_mine(reader)

    class Late(deque):
        def append(self, one):
            turns.leave(reader)
            super().append(one)

    turns._queue = Late()

    assert turns.is_mine(follower)

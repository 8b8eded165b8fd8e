"""Celery's signals: sent with what their documentation says, and no receiver can do harm."""

import threading

import pytest

import celery_atomicity
from celery_atomicity import Assignment, events
from celery_atomicity.testing import wait_until

# For each signal: what has it sent, by whom it is sent then, and what a receiver gets.
SENT = {
    "lease_lost": (
        lambda: events.lease_lost.tell(
            group="shop", keys=("a",), fence=7, holder="task t[1] on one", reason="deleted"
        ),
        "shop",
        {
            "group": "shop",
            "keys": ("a",),
            "fence": 7,
            "holder": "task t[1] on one",
            "reason": "deleted",
        },
    ),
    "assigned": (
        lambda: events.assigned.tell(group="shop", i=0, n=2),
        "shop",
        {"group": "shop", "assignment": Assignment(0, 2)},
    ),
    "rate_delayed": (
        lambda: events.rate_delayed.tell(
            group="shop", task="t", task_id="1", scope="s", keys=("s:a",), seconds=2.5
        ),
        "t",
        {"group": "shop", "task_id": "1", "scope": "s", "keys": ("s:a",), "seconds": 2.5},
    ),
    "tick_skipped": (
        lambda: events.tick_skipped.tell(entry="e", slot=3, due="2026-01-01T00:00:00+00:00"),
        "e",
        {"slot": 3, "due": "2026-01-01T00:00:00+00:00"},
    ),
}


@pytest.fixture
def connected():
    """Connect a receiver to a signal, until the test ends."""
    made = []

    def connect(name, receiver):
        signal = getattr(celery_atomicity, name)
        signal.connect(receiver, weak=False)
        made.append((signal, receiver))

    yield connect
    for signal, receiver in made:
        signal.disconnect(receiver)


@pytest.mark.parametrize("name", SENT)
def test_it_is_sent_with_what_it_is_said_to_have(connected, name):
    happen, sender, facts = SENT[name]
    got = []
    connected(name, lambda signal, sender, **facts: got.append((sender, facts)))

    happen()

    wait_until(lambda: got, what="it is received")
    assert got == [(sender, facts)]
    assert getattr(celery_atomicity, name).providing_args == set(facts)


@pytest.mark.parametrize("name", SENT)
def test_a_receiver_that_raises_harms_nobody(connected, name, caplog):
    happen, *_ = SENT[name]
    got = []
    connected(name, lambda **_: 1 / 0)
    connected(name, lambda **_: got.append(1))

    happen()

    wait_until(lambda: got, what="the other one receives it")
    assert "ZeroDivisionError" in caplog.text


def test_an_assignment_that_has_ended_is_none(connected):
    got = []
    connected("assigned", lambda assignment, **_: got.append(assignment))

    events.assigned.tell(group="shop", i=0, n=1)
    events.unassigned.tell(group="shop")

    wait_until(lambda: len(got) == 2, what="both are received")
    assert got == [Assignment(0, 1), None]


@pytest.mark.parametrize("name", ["lease_lost", "assigned"])
def test_a_receiver_that_takes_its_time_holds_up_no_renewal_and_no_registration(connected, name):
    happen, *_ = SENT[name]
    begun, go_on, got = threading.Event(), threading.Event(), []

    def receiver(**_):
        begun.set()
        go_on.wait(30)
        got.append(1)

    connected(name, receiver)

    happen()
    happen()

    assert begun.wait(30)
    assert not got
    go_on.set()
    wait_until(lambda: len(got) == 2, what="it receives the second one, too")


def test_nothing_is_started_for_nobody():
    before = threading.active_count()

    events.assigned.tell(group="shop", i=0, n=1)

    assert threading.active_count() <= before

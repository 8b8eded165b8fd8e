"""What one beat has to look at, and when."""

from celery_atomicity.integration.beat.agenda import LONGEST_PAUSE, Agenda, Group
from celery_atomicity.integration.beat.due import Unit

A, B = Unit("a"), Unit("b")
SWEEPS = [Unit("sweep", slot, 3) for slot in range(3)]


def test_all_is_looked_at_at_once_and_once():
    agenda = Agenda()
    agenda.replace({A: 1, B: 1, **dict.fromkeys(SWEEPS, 1)})

    taken = agenda.take(100.0, 10)

    assert taken == {Group("a", 1): [A], Group("b", 1): [B], Group("sweep", 1): SWEEPS}
    assert agenda.take(200.0, 10) == {}


def test_slots_with_different_last_runs_are_asked_about_apart():
    agenda = Agenda()
    agenda.replace({SWEEPS[0]: 1, SWEEPS[1]: 2})

    assert agenda.take(0.0, 10) == {Group("sweep", 1): [SWEEPS[0]], Group("sweep", 2): [SWEEPS[1]]}


def test_the_earliest_comes_first_and_nothing_before_its_time():
    agenda = Agenda()
    agenda.replace({A: 1, B: 1})
    agenda.take(0.0, 10)

    agenda.ran(A, 2, 20.0)
    agenda.ran(B, 2, 10.0)

    assert agenda.next_at() == 10.0
    assert agenda.take(9.9, 10) == {}
    assert agenda.take(30.0, 1) == {Group("b", 2): [B]}
    assert agenda.take(30.0, 1) == {Group("a", 2): [A]}
    assert agenda.next_at() is None


def test_what_is_no_longer_ours_is_not_put_back():
    agenda = Agenda()
    agenda.replace({A: 1})
    agenda.take(0.0, 10)
    agenda.replace({B: 1})

    agenda.ran(A, 2, 0.0)
    agenda.failed(A, 0.0)

    assert agenda.take(1e9, 10) == {Group("b", 1): [B]}


def test_a_failing_unit_waits_longer_each_time_until_it_is_sent():
    agenda = Agenda()
    agenda.replace({A: 1})
    pauses = []
    for _ in range(10):
        agenda.take(1e9, 1)
        agenda.failed(A, 0.0)
        pauses.append(agenda.next_at())

    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == LONGEST_PAUSE

    agenda.take(1e9, 1)
    agenda.ran(A, 2, 0.0)
    agenda.take(1e9, 1)
    agenda.failed(A, 0.0)

    assert agenda.next_at() == 1.0

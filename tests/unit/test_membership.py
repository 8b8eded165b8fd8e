"""The rules one by one; that together they hold is shown in tests/simulation/test_membership.py."""

import pytest

from celery_atomicity.primitives.membership import Assignment, Membership, Registration

INTERVAL = 10.0
GAP = 0.2


@pytest.fixture
def membership():
    return Membership(INTERVAL, GAP)


def answer(interval, index, previous, *, at=5.0, trip=0.0, ahead=0.0, run="a"):
    """Counted *at* seconds into the interval; the server's clock is *ahead* of our own."""
    now = interval * INTERVAL + at
    sent = now - ahead - trip / 2
    return Registration(interval, index, previous, now, sent, sent + trip, run)


def settle(membership, index=1, n=3, *, first=100):
    """Register three times as number *index* of *n*; the last one in the interval *first* + 2."""
    for interval in (first, first + 1, first + 2):
        membership.registered(answer(interval, index, n))


def test_assignment_owns_the_slots_congruent_to_its_index():
    assignment = Assignment(1, 3)

    assert assignment.slots(8) == [1, 4, 7]
    assert [slot for slot in range(8) if assignment.owns(slot)] == [1, 4, 7]


# PART-02
@pytest.mark.parametrize("n", [1, 2, 3, 7, 50, 128, 130])
def test_assignments_of_a_settled_group_are_complete_and_even(n):
    parts = [Assignment(i, n).slots(128) for i in range(n)]

    assert sorted(slot for part in parts for slot in part) == list(range(128))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


# PART-04
def test_owns_nothing_at_first(membership):
    assert membership.at(0.0) is None
    assert membership.at(1e9) is None


# PART-04
def test_two_registrations_imply_one_pair_and_assign_nothing(membership):
    membership.registered(answer(100, 1, 3))
    membership.registered(answer(101, 1, 3))

    assert membership.assignment is None


# PART-01
def test_two_agreeing_pairs_become_the_assignment(membership):
    settle(membership)

    assert membership.assignment == Assignment(1, 3)


# PART-01
def test_new_assignment_begins_when_older_ones_have_ended(membership):
    """That is 12 s after the answer before (sent at 1015, answered at once)."""
    settle(membership)

    assert membership.begins == 1015.0 + 12.0
    assert membership.at(1026.999) is None
    assert membership.at(1027.0) == Assignment(1, 3)


# PART-01
def test_new_assignment_begins_later_where_the_answer_before_was_slow(membership):
    membership.registered(answer(100, 1, 3))
    membership.registered(answer(101, 1, 3, trip=2.0))  # there at 1016
    membership.registered(answer(102, 1, 3))

    assert membership.begins == 1016.0 + 12.0


# PART-04
def test_assignment_ends_an_interval_and_a_gap_after_the_sending(membership):
    """12 s less a thousandth after 1024, however long the answer took."""
    membership.registered(answer(100, 1, 3))
    membership.registered(answer(101, 1, 3))
    membership.registered(answer(102, 1, 3, trip=2.0))  # sent at 1024, there at 1026

    assert membership.deadline == pytest.approx(1024.0 + 11.988)
    assert membership.at(1035.98) == Assignment(1, 3)
    assert membership.at(1035.99) is None


# PART-03
def test_renewal_lengthens_and_does_not_begin_anew(membership):
    settle(membership)
    membership.registered(answer(103, 1, 3))

    assert membership.begins == 1027.0
    assert membership.deadline == pytest.approx(1035.0 + 11.988)


# PART-04
def test_renewal_after_the_end_owns_again_from_then_on(membership):
    settle(membership)
    late = answer(103, 1, 3, at=9.9)

    assert membership.at(late.received) is None
    membership.registered(late)

    assert membership.at(late.received) == Assignment(1, 3)


# PART-01
@pytest.mark.parametrize(("index", "n"), [(0, 3), (1, 4), (2, 4)])
def test_another_pair_ends_the_assignment_at_once(membership, index, n):
    settle(membership)
    membership.registered(answer(103, index, 3))
    membership.registered(answer(104, index, n))

    assert membership.at(1045.0) is None


# PART-01
def test_missed_interval_implies_no_pair(membership):
    settle(membership)
    membership.registered(answer(104, 1, 3))

    assert membership.assignment is None

    membership.registered(answer(105, 1, 3))
    assert membership.assignment is None
    membership.registered(answer(106, 1, 3))
    assert membership.assignment == Assignment(1, 3)


# PART-01
def test_counted_twice_in_one_interval_stands_down(membership):
    settle(membership)
    membership.registered(answer(102, 3, 3, at=9.0))

    assert membership.assignment is None


# PART-01
def test_count_that_does_not_include_us_implies_no_pair(membership):
    """The store was emptied after we registered: two others came in after that."""
    settle(membership, index=2, n=3)
    membership.registered(answer(103, 0, 2))

    assert membership.assignment is None


# PART-01
def test_index_without_a_count_before_it_is_not_used(membership):
    """It may be the second of its kind in an interval in which the store was emptied."""
    membership.registered(answer(100, 0, -1))
    membership.registered(answer(101, 0, 1))
    membership.registered(answer(102, 0, 1))
    assert membership.assignment is None

    membership.registered(answer(103, 0, 1))
    assert membership.assignment == Assignment(0, 1)


# PART-01
def test_index_of_an_interval_the_clock_has_not_come_to_is_not_used(membership):
    """The clock stepped back; the script counted us into the last interval that was begun."""
    membership.registered(answer(100, 1, 3, at=-1.0))
    membership.registered(answer(101, 1, 3))
    membership.registered(answer(102, 1, 3))
    assert membership.assignment is None

    membership.registered(answer(103, 1, 3))
    assert membership.assignment == Assignment(1, 3)


# PART-01
def test_another_run_of_the_server_starts_over(membership):
    settle(membership)
    membership.registered(answer(103, 1, 3, run="b"))
    assert membership.assignment is None

    membership.registered(answer(104, 1, 3, run="b"))
    assert membership.assignment is None
    membership.registered(answer(105, 1, 3, run="b"))
    assert membership.assignment == Assignment(1, 3)


# PART-10
@pytest.mark.parametrize("step", [2.1, -2.1])
def test_clock_step_beyond_the_gap_starts_over(membership, step):
    settle(membership)
    membership.registered(answer(103, 1, 3, ahead=step))
    assert membership.assignment is None

    membership.registered(answer(104, 1, 3, ahead=step))
    assert membership.assignment is None
    membership.registered(answer(105, 1, 3, ahead=step))
    assert membership.assignment == Assignment(1, 3)


# PART-10
@pytest.mark.parametrize("step", [1.9, -1.9])
def test_clock_step_within_the_gap_is_borne(membership, step):
    settle(membership)
    membership.registered(answer(103, 1, 3, ahead=step))

    assert membership.assignment == Assignment(1, 3)


# PART-10
def test_slow_answer_is_not_taken_for_a_step(membership):
    """Counted 2.5 s later than we can tell from the others, which the way there may have taken."""
    settle(membership)
    membership.registered(answer(103, 1, 3, trip=5.0, ahead=2.5))

    assert membership.assignment == Assignment(1, 3)


@pytest.mark.parametrize(
    ("index", "previous", "phase"),
    [
        (0, 1, 5.0),  # 0.2 + 0.5 / 1 * 0.6 of the interval
        (0, 2, 3.5),
        (1, 2, 6.5),
        (2, 3, 7.0),
        (3, 3, 7.25),  # one that has just joined: last of four
        (0, -1, 5.0),
        (1, -1, 6.5),
    ],
)
def test_next_registration_keeps_the_order(membership, index, previous, phase):
    membership.registered(answer(100, index, previous))

    assert membership.next_at == pytest.approx(1010.0 + phase)


def test_next_registration_goes_by_the_last_known_size(membership):
    """After FLUSHALL no count is known; the phases are kept, and with them the order."""
    settle(membership, index=0, n=4)
    membership.registered(answer(103, 0, -1))

    assert membership.next_at == pytest.approx(1040.0 + 10 * (0.2 + 0.5 / 4 * 0.6))


def test_next_registration_does_not_depend_on_how_long_the_answer_took(membership):
    """The request was there in 0.1 s both times."""
    for back in (0.0, 1.0):
        membership.reset()
        now = 1005.0
        membership.registered(Registration(100, 0, 1, now, now - 0.1, now + back, "a"))

        assert membership.next_at == pytest.approx(1015.0 - 0.1)


def test_next_registration_goes_by_the_quicker_of_two(membership):
    """A request that was held up for 4 s does not make the next one come 4 s early."""
    membership.registered(answer(100, 0, 1))
    now = 1019.0
    membership.registered(Registration(101, 0, 1, now, now - 4.0, now, "a"))

    assert membership.next_at == pytest.approx(1025.0)


def test_failure_is_tried_again_after_a_growing_pause(membership):
    pauses = []
    for _ in range(6):
        membership.failed(100.0)
        pauses.append(membership.next_at - 100.0)

    assert pauses == [1.25, 2.5, 5.0, 10.0, 10.0, 10.0]


def test_answer_ends_the_growing_of_pauses(membership):
    membership.failed(100.0)
    membership.failed(100.0)
    membership.registered(answer(100, 0, 1))
    membership.failed(200.0)

    assert membership.next_at == 201.25


# PART-04
def test_failure_leaves_what_is_owned_to_its_end(membership):
    settle(membership)
    membership.failed(1030.0)

    assert membership.at(1030.0) == Assignment(1, 3)
    assert membership.at(1037.0) is None


# PART-09
def test_reset_owns_nothing_and_starts_over(membership):
    settle(membership)
    membership.reset()
    assert membership.at(1028.0) is None

    membership.registered(answer(103, 1, 3))
    membership.registered(answer(104, 1, 3))
    assert membership.assignment is None
    membership.registered(answer(105, 1, 3))
    assert membership.assignment == Assignment(1, 3)


def test_due_names_the_next_change_of_any_kind(membership):
    """Last registered at 1025, next at 1035; owned from 1027 to 1036.988."""
    settle(membership)

    assert membership.due(1025.0) == 1027.0
    assert membership.due(1027.0) == pytest.approx(1035.0)
    membership.failed(1035.0)
    membership.failed(1036.0)
    assert membership.due(1036.0) == pytest.approx(1036.988)
    assert membership.due(1036.988) == 1038.5

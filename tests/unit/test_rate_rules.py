"""The pure rules of rates, and how a rate is written."""

import math

import pytest

from celery_atomicity.primitives.debts import held_back
from celery_atomicity.primitives.limit import Limit, per_second
from celery_atomicity.primitives.rate import SLEEP, Kind, Question, judge

SECOND = 1000.0


def ask(state, limit, now, promises=None, **options):
    answer, [state] = judge([state], [Question(limit, **options)], promises or {}, now)
    return answer, state


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("10/s", 10),
        ("100/m", 100 / 60),
        ("5/h", 5 / 3600),
        ("1/d", 1 / 86400),
        ("0.1/m", 0.1 / 60),
        ("1000000/s", 1e6),
        ("10", 10),
        ("10 / m", 10 / 60),
        (2.5, 2.5),
        (7, 7),
    ],
)
def test_a_rate_as_celery_writes_it(rate, expected):
    # F55
    assert per_second(rate) == pytest.approx(expected)


@pytest.mark.parametrize(
    "rate",
    ["0", "0/s", "-1/s", "10/M", "10/minute", "1/365d", "ten", "", "/s", 0, -1, math.inf, math.nan],
)
def test_a_rate_that_cannot_work_is_refused(rate):
    # F55
    with pytest.raises(ValueError, match="rate"):
        per_second(rate)


@pytest.mark.parametrize("rate", [None, True, [], b"10/s"])
def test_a_rate_of_another_kind_is_refused(rate):
    with pytest.raises(TypeError, match="rate"):
        per_second(rate)


def test_a_cost_above_the_burst_can_never_be_let_through():
    # RATE-06
    with pytest.raises(ValueError, match="raise burst to at least 3"):
        Limit("acme", 1.0, burst=2.0, cost=3.0)


def test_who_arrives_starts_while_there_is_room_and_is_promised_a_place_then():
    limit = Limit("acme", 10.0, burst=2.0)
    state, answers = None, []

    for _ in range(4):
        answer, state = ask(state, limit, 0.0)
        answers.append((answer.kind, answer.wait))

    assert answers == [
        (Kind.START, 0.0),
        (Kind.START, 0.0),
        (Kind.PLACE, pytest.approx(100.0)),
        (Kind.PLACE, pytest.approx(200.0)),
    ]


def test_who_arrives_sleeps_less_than_twenty_milliseconds_out():
    limit = Limit("acme", 10.0)
    _, state = ask(None, limit, 0.0)

    answer, _ = ask(state, limit, 85.0)

    assert answer.kind is Kind.START
    assert answer.wait == pytest.approx(15.0)


def test_who_arrives_takes_a_start_that_others_are_late_for():
    limit = Limit("acme", 10.0)
    _, state = ask(None, limit, 0.0)
    for _ in range(5):
        _, state = ask(state, limit, 0.0)
    promised = state.promised

    answer, state = ask(state, limit, 100.0)

    assert answer.kind is Kind.START
    assert state.promised == pytest.approx(promised - 1)  # what drained, and nothing was added


def test_who_comes_back_is_charged_and_sleeps_for_less_than_half_a_second():
    limit = Limit("acme", 4.0)
    _, state = ask(None, limit, 0.0)
    place, state = ask(state, limit, 0.0)

    answer, state = ask(state, limit, 10.0, {"acme": place.born[0]}, patience=SLEEP)

    assert answer.kind is Kind.START
    assert answer.wait == pytest.approx(240.0)
    assert state.ahead == pytest.approx(240.0)


def test_who_comes_back_to_a_fleet_that_was_held_up_is_promised_another_place():
    limit = Limit("acme", 10.0)
    _, state = ask(None, limit, 0.0)
    places = []
    for _ in range(20):
        place, state = ask(state, limit, 0.0)
        places.append({"acme": place.born[0]})

    answers = []
    for promise in places:  # all of them three seconds late
        answer, state = ask(state, limit, 5 * SECOND, promise, patience=SLEEP)
        answers.append(answer)

    kinds = [answer.kind for answer in answers]
    assert kinds == [Kind.START] * 6 + [Kind.PLACE] * 14
    waits = [answer.wait for answer in answers[6:]]
    assert waits == sorted(waits)
    assert waits[0] > SLEEP


def test_the_next_to_start_comes_again_once_and_then_goes_to_the_end():
    limit = Limit("acme", 0.1)
    _, state = ask(None, limit, 0.0)
    place, state = ask(state, limit, 0.0)
    _, state = ask(state, limit, 9 * SECOND, {"acme": place.born[0]}, patience=2 * SECOND)
    question = [Question(limit, SLEEP)]
    promise = {"acme": place.born[0]}

    again, [state] = judge([state], question, promise, 12 * SECOND)
    then, _ = judge([state], question, again.promises(question, promise), 13 * SECOND)

    assert (again.kind, again.wait) == (Kind.AGAIN, pytest.approx(8 * SECOND))
    assert then.kind is Kind.PLACE


def test_a_clock_that_stepped_back_neither_gives_nor_takes():
    # F50
    limit = Limit("acme", 10.0)
    _, state = ask(None, limit, 100 * SECOND)

    answer, state = ask(state, limit, 95 * SECOND)
    later, _ = ask(state, limit, 95 * SECOND + 200)

    assert (answer.kind, answer.wait) == (Kind.PLACE, pytest.approx(100.0))
    assert later.kind is Kind.START


def test_a_start_that_waits_for_one_limit_is_charged_to_the_others_as_of_then():
    slow, fast = Limit("slow", 2.0), Limit("fast", 4.0)
    _, first = ask(None, slow, 0.0)
    place, first = ask(first, slow, 0.0)
    promises = {"slow": place.born[0], "fast": "0"}
    questions = [Question(slow, SLEEP), Question(fast, SLEEP)]

    answer, [_, second] = judge([first, None], questions, promises | {"slow": "0*"}, 300.0)
    other, _ = ask(second, fast, 300.0, {"fast": second.born}, patience=SLEEP)

    assert (answer.kind, answer.wait) == (Kind.START, pytest.approx(500.0))
    assert other.wait >= 500.0 + 250.0


def test_what_is_held_back_goes_on_one_by_one():
    # RATE-08
    limit = Limit("acme", 10.0, burst=5.0)
    state = held_back(None, limit, 2 * SECOND, 0.0)

    waits = []
    for _ in range(3):
        answer, state = ask(state, limit, 0.0)
        waits.append(answer.wait)

    assert waits == [pytest.approx(2000.0), pytest.approx(2100.0), pytest.approx(2200.0)]
    assert held_back(state, limit, SECOND, 0.0).ahead == pytest.approx(2000.0)


def test_a_hold_lasts_as_long_when_the_rate_changes():
    state = held_back(None, Limit("acme", 100.0), 30 * SECOND, 0.0)

    for rate in (1.0, 1000.0):
        answer, _ = ask(state, Limit("acme", rate), 0.0)
        assert answer.wait == pytest.approx(30 * SECOND)


def test_a_promise_of_a_state_that_is_gone_makes_everybody_wait_for_the_sleepers():
    # RATE-01
    limit = Limit("acme", 10.0, burst=3.0)

    answer, state = ask(None, limit, 0.0, {"acme": "12345"}, patience=SLEEP)
    other, _ = ask(state, limit, 0.0)

    assert (answer.kind, answer.wait) == (Kind.START, SLEEP)
    assert other.wait >= SLEEP

"""The demo's own checks: each has to see what it is there to see."""

import pytest

from demo.facts import all_done, busiest, one_owner, one_sweep, one_sync, rate_kept

PERIOD = 6_000_000
DUE = ["2026-01-01T00:00:00+00:00", "2026-01-01T00:00:06+00:00", "2026-01-01T00:00:12+00:00"]
FIRST = 1_767_225_600_000_000  # the first of them
LAST = FIRST + 2 * PERIOD


def sync(account, start, end, fence, worker="w1", task=None):
    entry = {"key": account, "fence": fence, "worker": worker, "task": task or f"t{fence}"}
    events = [{**entry, "event": "sync starts", "at": start}]
    return events + ([{**entry, "event": "sync ends", "at": end}] if end is not None else [])


def sweep(slot, due, worker="w1", task=None):
    task = task or f"{slot} {due}"
    return {"event": "sweep", "key": slot, "due": due, "worker": worker, "task": task, "at": 0.0}


def true(fact):
    return not fact.against


def test_two_workers_that_share_the_slots_are_fine():
    assert true(one_owner([(1, "w1", [0, 2]), (1, "w2", [1, 2]), (2, "w1", None)], 4))


@pytest.mark.parametrize("other", [[0, 2], [1, 3], [0, 1]])
def test_a_slot_with_two_owners_at_one_moment_is_seen(other):
    fact = one_owner([(1, "w1", [0, 2]), (1, "w2", other)], 128)

    assert any("moment 1: w1 and w2 own slot" in each for each in fact.against)


def test_another_owner_at_another_moment_is_fine():
    moments = [(1, "w1", [0, 2]), (1, "w2", [1, 2]), (2, "w1", [1, 2]), (2, "w2", [0, 2])]

    assert true(one_owner(moments, 128))


def test_moments_with_one_worker_prove_nothing():
    assert not true(one_owner([(1, "w1", [0, 1]), (2, "w2", [0, 1])], 128))


def test_syncs_one_after_the_other_are_fine():
    assert true(one_sync([*sync(7, 1.0, 2.0, 1), *sync(7, 2.0, 3.0, 2), *sync(8, 1.5, 2.5, 3)], {}))


def test_two_syncs_of_an_account_at_once_are_seen():
    fact = one_sync([*sync(7, 1.0, 2.0, 1), *sync(7, 1.9, 3.0, 2, worker="w2")], {})

    assert fact.against == ("account 7: two runs at once, 0.100 s",)


def test_a_fence_that_falls_back_is_seen():
    assert not true(one_sync([*sync(7, 1.0, 2.0, 2), *sync(7, 2.0, 3.0, 1)], {}))


def test_a_run_of_a_killed_worker_ends_with_it():
    begun = [*sync(7, 1.0, None, 1), *sync(7, 4.0, 5.0, 2, worker="w2")]

    assert true(one_sync(begun, {"w1": 1.5}))
    assert not true(one_sync(begun, {"w1": 4.5}))
    assert not true(one_sync(begun, {}))


def test_what_was_not_done_is_seen_unless_it_reached_nobody():
    asked = {"a": ("sync(7)", 1.0), "b": ("call(1)", 1.0)}
    done = sync(7, 1.0, 2.0, 1, task="a")

    assert all_done(done, asked, set()).against == ("call(1) was not done: b",)
    assert true(all_done(done, asked, {"b"}))
    assert "1 dropped" in all_done(done, asked, {"b"}).checked


@pytest.mark.parametrize(("seconds", "most"), [(0.5, 2), (1.0, 3), (5.0, 4)])
def test_the_busiest_window_is_found(seconds, most):
    assert busiest([3.0, 0.0, 0.45, 0.9], seconds) == most


def test_a_rate_that_is_exceeded_is_seen():
    calls = [0.0] * 5 + [each / 10 for each in range(1, 30)]

    assert true(rate_kept(calls, 10, 5))
    assert not true(rate_kept([*calls, 0.55, 0.56], 10, 5))
    assert not true(rate_kept([], 10, 5))


def judged(sweeps, *, killed=(), dropped=()):
    return one_sweep(sweeps, 2, PERIOD, LAST, killed=set(killed), dropped=set(dropped))


EVERY = [sweep(slot, due) for slot in range(2) for due in DUE]


def test_every_slot_at_every_tick_is_fine():
    assert true(judged(EVERY))


def test_a_slot_that_missed_a_tick_is_seen():
    assert not true(judged(EVERY[:-1]))
    assert not true(judged([*EVERY[:4], EVERY[5]]))
    assert not true(judged(EVERY[:3]))


def test_a_missing_tick_that_reached_nobody_is_excused():
    assert true(judged(EVERY[:-1], dropped={(1, LAST)}))


def test_a_slot_that_ran_twice_for_a_tick_is_seen():
    assert not true(judged([*EVERY, EVERY[0]]))
    assert not true(judged([*EVERY, sweep(0, DUE[0], worker="w2", task="another")]))


def test_a_run_that_was_killed_may_be_run_again():
    again = [*EVERY, sweep(0, DUE[0], worker="w2")]

    assert true(judged(again, killed={"w1"}))
    assert not true(judged([*again, sweep(0, DUE[0], worker="w3")], killed={"w1"}))

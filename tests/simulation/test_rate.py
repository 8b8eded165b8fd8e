"""
Fleets under limits in virtual time: no window holds too much, and no time is wasted.

``RATE_HISTORIES`` sets how many random histories there are, ``RATE_SEED`` where they begin.
"""

import os
from itertools import pairwise
from random import Random

import pytest

from celery_atomicity.primitives.debts import Debts
from celery_atomicity.primitives.limit import Limit
from simulation import rate_world
from simulation.rate_histories import random_history
from simulation.rate_world import History, World, excess

HISTORIES = int(os.environ.get("RATE_HISTORIES", "20000"))
SEED = int(os.environ.get("RATE_SEED", "0"))
CHUNKS = 10


@pytest.mark.timeout(max(120, HISTORIES // 20))
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_window_of_any_history_holds_too_much(chunk):
    # RATE-01
    share = HISTORIES // CHUNKS
    first = SEED + chunk * share
    for seed in range(first, first + share):
        world = World(random_history(seed)).run()

        assert excess(world) <= 1e-6, f"seed {seed}"
        assert min(world.ran.values()) >= 1, f"seed {seed}: a task never ran"


def fleet(rate, burst=1.0, *, workers=4, seconds=90.0, at_once=True, **more):
    """As many tasks as fill so many seconds."""
    number = int(rate * seconds + burst)
    chance = Random(7)
    spread = 0.0 if at_once else seconds * 0.7
    tasks = [(chance.random() * spread, "plain", 0.0) for _ in range(number)]
    limits = {"plain": [Limit("acme", rate, burst)]}
    return History(limits, tasks, workers=workers, slots=16, jitter=0.003, **more)


STALL = {"frozen": [(20.0, 3.0, None)]}
LATE = {"back": 0.2}


@pytest.mark.parametrize(
    ("rate", "burst", "workers"),
    [(10.0, 1.0, 1), (10.0, 20.0, 4), (100.0, 1.0, 64), (100.0, 20.0, 4), (600.0, 1.0, 16)],
)
@pytest.mark.parametrize(("trouble", "stalled"), [({}, 0.0), (LATE, 0.0), ({**LATE, **STALL}, 3.0)])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_fleet_runs_at_its_rate_and_asks_twice(rate, burst, workers, trouble, stalled, at_once):
    # RATE-02
    seconds = 90.0 if rate < 600 else 40.0
    history = fleet(rate, burst, workers=workers, seconds=seconds, at_once=at_once, **trouble)

    world = World(history).run()

    first = world.starts[0][0]
    attained = (len(world.starts) - burst) / (rate * (world.last - first - stalled))
    assert excess(world) <= 1e-6
    assert attained >= 0.95
    assert world.asked / len(history.tasks) <= 2.15
    assert set(world.ran.values()) == {1}


@pytest.mark.parametrize("trouble", [{}, LATE, {**LATE, "frozen": [(100.0, 3.0, None)]}])
def test_a_slow_rate_leaves_no_hole(trouble):
    # RATE-02: seven a minute, where a single place that stays empty would be seen
    history = fleet(7 / 60, workers=2, seconds=600.0, **trouble)

    world = World(history).run()

    times = [when for when, _, _ in world.starts]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert max(pauses) <= 60 / 7 + 3.5
    assert times[-1] - times[0] <= (len(times) - 1) * 60 / 7 / 0.95
    assert excess(world) <= 1e-6


def test_one_tenant_does_not_hold_up_the_others():
    # RATE-02, RATE-04: a busy tenant's backlog keeps no places in what all of them share
    everybody = Limit("all", 100.0, 5.0)
    limits = {
        "busy": [Limit("busy", 1.0), everybody],
        "other": [Limit("other", 200.0, 5.0), everybody],
    }
    tasks = [(0.0, "busy", 0.0)] * 30 + [(0.1, "other", 0.0)] * 1000

    world = World(History(limits, tasks, workers=4, slots=16, back=0.1)).run()

    others = [when for when, key, _ in world.starts if key == "other"]
    busy = [when for when, key, _ in world.starts if key == "busy"]
    assert others[-1] <= 1000 / 100.0 / 0.93 + 0.5
    assert busy[-1] <= 30 / 0.95 + 1
    assert excess(world) <= 1e-6


def test_nothing_starts_while_a_rate_is_held_back():
    # RATE-08
    history = fleet(20.0, 5.0, seconds=30.0, back=0.05)
    history.held = [(10.0, "plain", 4.0)]

    world = World(history).run()

    times = [when for when, _, _ in world.starts]
    # Those who were charged before may be asleep for half a second.
    assert not [when for when in times if 10.6 < when < 14.0]
    assert len([when for when in times if 14.0 <= when < 14.1]) <= 3
    assert (len(times) - 5) / (20.0 * (times[-1] - 4.0)) >= 0.95
    assert world.asked / len(times) <= 2.4


def test_who_is_refused_for_the_length_of_the_line_gets_through_in_time():
    # max_delay: 300 s of work, places for 30 s
    history = fleet(10.0, seconds=300.0, longest=30.0)

    world = World(history).run()

    attained = (len(world.starts) - 1) / (10.0 * (world.last - world.starts[0][0]))
    assert attained >= 0.95
    assert world.asked / len(history.tasks) <= 12


def break_the_second_debt(monkeypatch):
    """Who comes back starts at once."""
    monkeypatch.setattr(
        Debts,
        "start_of",
        lambda debts, limit: 0.0 if debts.promised > limit.burst else debts.ahead,
    )


def break_the_charge(monkeypatch):
    """Who was promised is not charged again."""
    real = Debts.charged
    monkeypatch.setattr(
        Debts,
        "charged",
        lambda debts, limit, start, *, promise: (
            real(debts, limit, start, promise=promise) if promise else debts
        ),
    )


def break_the_time(monkeypatch):
    """Each counts on a clock of its own, as a caller's would be."""
    real, skews = rate_world.judge, Random(1)
    monkeypatch.setattr(
        rate_world,
        "judge",
        lambda states, questions, promises, now, seen: real(
            states, questions, promises, now + skews.choice((-1000.0, 0.0, 1000.0)), seen
        ),
    )


def break_several_limits(monkeypatch):
    """A limit is charged as of now where another one makes it wait."""
    real = Debts.charged
    monkeypatch.setattr(
        Debts,
        "charged",
        lambda debts, limit, start, *, promise: real(
            debts, limit, min(start, debts.start_of(limit)), promise=promise
        ),
    )


def break_the_loss(monkeypatch):
    """Nobody minds that the store forgot."""
    monkeypatch.setattr(Debts, "after_loss", lambda debts, limit, ms: debts)


@pytest.mark.parametrize(
    "mutation",
    [
        break_the_second_debt,
        break_the_charge,
        break_the_time,
        break_several_limits,
        break_the_loss,
    ],
)
def test_the_simulation_sees_what_is_broken(monkeypatch, mutation):
    mutation(monkeypatch)

    assert any(excess(World(random_history(seed)).run()) > 1e-6 for seed in range(3000))


def test_the_simulation_sees_a_frozen_process_that_starts_at_once(monkeypatch):
    def worst(late):
        monkeypatch.setattr(rate_world, "TOLERATED", late)
        return max(excess(World(random_history(seed)).run()) for seed in range(1500))

    assert worst(rate_world.LATE) <= 1e-6
    assert worst(1e9) > 1e-6

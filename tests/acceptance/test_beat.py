"""
Several beats, killed, frozen and cut off: every tick runs, and none twice.

What is checked is what workers ran, by the instants at which it was due.
"""

import json
import random
from collections import Counter, defaultdict
from datetime import datetime
from itertools import pairwise

import pytest
from redis import Redis
from support import beat_tasks
from support.beat_tasks import SLOTS, TICKS
from support.nodes import BeatContainer, NodeContainer

from celery_atomicity import clock
from celery_atomicity.testing import wait_until

INTERVAL = 0.5
SETTLED = 5 * INTERVAL  # PART-03
# Beyond what is promised, for two cores that everything shares.
SLACK = 4.0

pytestmark = [pytest.mark.cluster(workers=2, concurrency=2), pytest.mark.timeout(240)]


@pytest.fixture
def default_worker_tasks(default_worker_tasks):
    return default_worker_tasks | {beat_tasks}


@pytest.fixture
def schedule():
    """Seconds from tick to tick, by entry."""
    return {f"second {n}": 1 for n in range(6)} | {f"other {n}": 2 for n in range(4)} | {"sweep": 2}


@pytest.fixture
def default_worker_app(default_worker_app, schedule):
    default_worker_app.conf.update(
        atomicity_interval=INTERVAL,
        atomicity_timeout=0.2,
        beat_schedule={
            name: {
                "task": f"{beat_tasks.__name__}.{'sweep' if name == 'sweep' else 'tick'}",
                "schedule": float(every),
            }
            for name, every in schedule.items()
        },
    )
    return default_worker_app


@pytest.fixture
def default_redis_backend_command():
    """It is the arbiter too, and what it acknowledged survives a restart."""
    return ["redis-server", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]


class Ticks:
    """What the workers ran."""

    def __init__(self, client):
        self.client = client

    def all(self):
        return [json.loads(tick) for tick in self.client.lrange(TICKS, 0, -1)]

    def __len__(self):
        return self.client.llen(TICKS)

    def by_unit(self):
        found = defaultdict(list)
        for tick in self.all():
            found[tick["entry"], tick["slot"]].append(tick)
        for ticks in found.values():
            ticks.sort(key=lambda tick: tick["due"])
        return found


@pytest.fixture
def ticks(celery_setup):
    with Redis.from_url(celery_setup.app.conf.broker_url) as client:
        yield Ticks(client)


def due(tick):
    return datetime.fromisoformat(tick["due"]).timestamp()


def check(ticks, schedule, longest):
    """Every instant of every unit is there: once, or made up for by a late one before it."""
    units = ticks.by_unit()
    slots = {"sweep": range(SLOTS)}
    assert set(units) == {(name, slot) for name in schedule for slot in slots.get(name, [None])}
    doubled = [
        one for one, count in Counter(tick["id"] for tick in ticks.all()).items() if count > 1
    ]
    assert doubled == []
    lateness = []
    for (entry, slot), run in units.items():
        every = schedule[entry]
        assert len({tick["due"] for tick in run}) == len(run), (entry, slot)
        for tick, after in pairwise(run):
            steps = (due(after) - due(tick)) / every
            assert steps == pytest.approx(round(steps), abs=1e-4), "the pace is kept"
            # What was left out had come due when the one before was sent, late.
            assert due(after) <= tick["at"] + every + 0.05, (entry, slot, tick, after)
        lateness += [tick["at"] - due(tick) for tick in run]
    assert max(lateness) <= longest
    return sorted(lateness)


def quiet(ticks, seconds):
    """Let *seconds* pass, in looks at what is coming in."""
    until = clock.monotonic() + seconds
    wait_until(lambda: clock.monotonic() >= until, seconds * 3 + 10, "time to pass")
    return len(ticks)


def complete_again(ticks, schedule):
    """Wait until every unit has run anew; how long that took, less its own longest period."""
    begin = clock.monotonic()
    at = len(ticks)
    wanted = len(schedule) - 1 + SLOTS

    def all_ran():
        return len({(t["entry"], t["slot"]) for t in ticks.all()[at:]}) == wanted

    wait_until(all_ran, 30, "every entry and slot to run again")
    return clock.monotonic() - begin


# BEAT-01, BEAT-02, BEAT-03, BEAT-06
def test_three_beats_through_kills_freezes_and_a_restart_of_the_arbiter(
    celery_setup, spawn, ticks, schedule
):
    beats = spawn(BeatContainer, 3, "-S", "atomicity")
    arbiter = celery_setup.backend_cluster[0]
    complete_again(ticks, schedule)
    period = max(schedule.values())

    beats[0].kill()
    assert complete_again(ticks, schedule) <= SETTLED + 2 * period + SLACK
    beats[1].freeze()
    complete_again(ticks, schedule)
    beats[1].thaw()
    beats[0].restart()
    complete_again(ticks, schedule)
    beats[2].kill("SIGTERM")
    assert complete_again(ticks, schedule) <= SETTLED + 2 * period + SLACK
    arbiter.restart(force=True)
    complete_again(ticks, schedule)
    beats[1].kill()
    beats[2].restart()
    complete_again(ticks, schedule)
    quiet(ticks, 3)

    # The arbiter's restart and a freeze are the longest: to be noticed, and to settle anew.
    check(ticks, schedule, longest=3 * SETTLED + period + 2 * SLACK)


# BEAT-01
@pytest.mark.cluster(workers=3, argv=("-B", "-S", "atomicity"), concurrency=2)
def test_embedded_in_every_worker(celery_setup, ticks, schedule):
    complete_again(ticks, schedule)
    first, second, _ = celery_setup.worker_cluster

    first.kill()
    complete_again(ticks, schedule)
    second.restart()
    complete_again(ticks, schedule)
    quiet(ticks, 2)

    check(ticks, schedule, longest=2 * SETTLED + max(schedule.values()) + 2 * SLACK)


# BEAT-07
def test_a_beat_that_is_frozen_loses_what_it_owns_and_sends_nothing_when_it_wakes(
    spawn, ticks, schedule
):
    beats = spawn(BeatContainer, 2, "-S", "atomicity")
    complete_again(ticks, schedule)

    for beat in beats:
        beat.freeze()
        complete_again(ticks, schedule)
        quiet(ticks, 4)
        beat.thaw()
        complete_again(ticks, schedule)

    check(ticks, schedule, longest=2 * SETTLED + max(schedule.values()) + 2 * SLACK)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.cluster(workers=3, concurrency=3)
class TestSoak:
    MINUTES = 10

    @pytest.fixture
    def schedule(self):
        return {f"entry {n}": 1 + n % 5 for n in range(80)} | {"sweep": 3}

    @pytest.mark.parametrize("embedded", [0, 7])
    def test_ten_minutes_of_faults(self, celery_setup, spawn, ticks, schedule, embedded):
        chance = random.Random(0)
        beats = spawn(BeatContainer, 3, "-S", "atomicity")
        beats += spawn(NodeContainer, embedded, "-B", "-S", "atomicity")
        complete_again(ticks, schedule)
        until = clock.monotonic() + self.MINUTES * 60

        while clock.monotonic() < until:
            beat = chance.choice(beats)
            fault = chance.choice(["kill", "term", "freeze", "freeze", "arbiter"])
            if fault == "freeze":
                beat.freeze()
                quiet(ticks, chance.uniform(0.2, 8))
                beat.thaw()
            elif fault == "arbiter":
                celery_setup.backend_cluster[0].restart(force=True)
            else:
                beat.kill("SIGKILL" if fault == "kill" else "SIGTERM")
                quiet(ticks, chance.uniform(0, 4))
                beat.restart()
            quiet(ticks, chance.uniform(1, 5))
        complete_again(ticks, schedule)
        quiet(ticks, 5)

        check(ticks, schedule, longest=60)

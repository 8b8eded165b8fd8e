"""What workers ran of what beats sent, and the checks that every test of beats makes of it."""

import json
from collections import Counter, defaultdict
from datetime import datetime
from itertools import pairwise

import pytest
from redis import Redis

from celery_atomicity import clock
from celery_atomicity.testing import wait_until
from support.beat_tasks import TICKS


class Ticks:
    """What the workers ran, as they noted it at *url*."""

    def __init__(self, url):
        self._client = Redis.from_url(url)
        self._read = []

    def close(self):
        self._client.close()

    def all(self):
        self._read += map(json.loads, self._client.lrange(TICKS, len(self._read), -1))
        return self._read

    def __len__(self):
        return self._client.llen(TICKS)

    def by_unit(self):
        found = defaultdict(list)
        for tick in self.all():
            found[tick["entry"], tick["slot"]].append(tick)
        for ticks in found.values():
            ticks.sort(key=lambda tick: tick["due"])
        return found


def due(tick):
    return datetime.fromisoformat(tick["due"]).timestamp()


def units_of(schedule, slots):
    """All that has to run: entries, and the slots of those in *slots*."""
    return {
        (name, slot)
        for name in schedule
        for slot in (range(slots[name]) if name in slots else [None])
    }


def check(ticks, schedule, longest, slots, *, redelivers=False):
    """
    Every instant of every unit is there: once, or made up for by a late one before it.

    Where a broker *redelivers*, since it restarted under its workers, the same copy of a message
    may run again; two copies may not.

    Returns how late each tick was sent, in order, and how many ran again.
    """
    units = ticks.by_unit()
    ran = sum(map(len, units.values()))
    assert set(units) == units_of(schedule, slots)
    runs = Counter(
        (tick["id"], None if redelivers else number, tick["copy"])
        for number, tick in enumerate(ticks.all())
    )
    doubled = [one for one, count in Counter(id_ for id_, *_ in runs).items() if count > 1]
    assert doubled == []
    lateness = []
    for (entry, slot), runs_of_it in units.items():
        every = schedule[entry]
        run = list({tick["id"]: tick for tick in runs_of_it}.values())
        assert len({tick["due"] for tick in run}) == len(run), (entry, slot)
        for tick, after in pairwise(run):
            steps = (due(after) - due(tick)) / every
            assert steps == pytest.approx(round(steps), abs=1e-4), "the pace is kept"
            # What was left out had come due when the one before was sent, late.
            assert due(after) <= tick["sent"] + every + 0.05, (entry, slot, tick, after)
        lateness += [tick["sent"] - due(tick) for tick in run]
    assert max(lateness) <= longest
    return sorted(lateness), ran - len(lateness)


def quiet(ticks, seconds):
    """Let *seconds* pass, in looks at what is coming in."""
    until = clock.monotonic() + seconds
    wait_until(lambda: clock.monotonic() >= until, seconds * 3 + 10, "time to pass")
    return len(ticks)


def complete_again(ticks, schedule, slots, timeout=30):
    """Wait until every unit has run anew; how long that took."""
    begin = clock.monotonic()
    at = len(ticks)
    wanted = len(units_of(schedule, slots))

    def all_ran():
        return len({(t["entry"], t["slot"]) for t in ticks.all()[at:]}) == wanted

    wait_until(all_ran, timeout, "every entry and slot to run again")
    return clock.monotonic() - begin

"""
What a tick costs, beside Celery's own scheduler.

    python benchmarks/beat.py

100 entries, all due in every round, and then none; 10,000 of which 250 are due; then one entry of
1,024 slots, all due, beside as many entries of Celery's own. Rounds of the schedulers alternate;
both publish to the same Redis, where ours keeps its ledger too. What is compared is the processor
time and the time that passed, of this one process, as ratios of medians. The clock is moved by
hand: nobody waits.

Celery compares all entries with those before at each tick, of which each sends one message. So its
cost a message grows with their number, and 10,000 at once are minutes.
"""

from __future__ import annotations

import logging
import math
import os
import platform
import statistics
import time
from datetime import datetime, timedelta, timezone

from celery import Celery
from celery.beat import Scheduler

from celery_atomicity import Atomicity
from celery_atomicity.integration.beat import PartitionedScheduler, partitioned
from celery_atomicity.integration.beat import scheduler as module
from celery_atomicity.primitives.membership import Assignment
from celery_atomicity.testing import Server

ENTRIES, SLOTS, DUE, ROUNDS = 10_000, 1_024, 250, 7
EVERY = 60.0  # seconds; all rounds together are less than an hour, when ours looks anew at all


class Clock:
    now = datetime(2024, 3, 1, 12, tzinfo=timezone.utc)

    def __call__(self):
        return self.now


class Alone:
    """In place of a replica: the only one of its group, settled."""

    name, nap, orphaned, assigned = "alone", 86_400.0, False, True
    assignment = Assignment(0, 1)

    def __init__(self, *_of_a_replica):
        self._changed = True

    def open(self): ...

    def close(self): ...

    def feed(self): ...

    def changed(self):
        changed, self._changed = self._changed, False
        return changed

    def owns(self, unit):
        return self.assignment.owns(unit.place[0])

    def owned(self, total):
        return self.assignment.slots(total)


class Ticking:
    """A scheduler on a clock of its own, and what its ticks have taken."""

    def __init__(self, kind, server, group, schedule):
        self.clock = Clock()
        self.app = Celery(group, broker=server.url, set_as_current=False)
        self.app.conf.update(
            atomicity_redis=server.url,
            atomicity_group=group,
            task_default_queue=f"queue-{group}",
            result_expires=None,
            beat_schedule=schedule,
        )
        self.app.now = self.clock
        Atomicity(self.app)

        @self.app.task(name="sweep", shared=False)
        @partitioned(slots=SLOTS)
        def sweep(slot): ...

        self.scheduler = kind(app=self.app)
        if kind is Scheduler:
            self.scheduler.merge_inplace(schedule)
        self.queue = self.app.conf.task_default_queue
        self.client = self.scheduler.producer.channel.client
        began = time.perf_counter()
        while not self.scheduler.tick():
            pass  # ours looks at a batch of entries at a time, once
        self.took_up = time.perf_counter() - began

    def round(self, due):
        """Let some become due, and send them; how long that took, by processor and by clock."""
        self.clock.now += timedelta(seconds=EVERY + 1)
        self.client.delete(self.queue)
        # One tick is one message of Celery's, and as many of ours as are due, up to a batch.
        ticks = due if type(self.scheduler) is Scheduler else math.ceil(due / module.BATCH)
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(ticks):
            self.scheduler.tick()
        took = time.process_time() - cpu, time.perf_counter() - wall
        sent = self.client.llen(self.queue)
        assert sent == due, f"{type(self.scheduler).__name__} sent {sent} of {due}"
        return took

    def idle(self, ticks=50):
        """Ticks at which nothing is due."""
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(ticks):
            self.scheduler.tick()
        return (time.process_time() - cpu) / ticks, (time.perf_counter() - wall) / ticks


def main():
    logging.disable(logging.WARNING)
    module.Replica = Alone
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, ", end="")
    print(f"Python {platform.python_version()}; medians of {ROUNDS} rounds")
    many = {
        f"entry {n}": {"task": "work", "schedule": EVERY if n < DUE else 1000 * EVERY}
        for n in range(ENTRIES)
    }
    fan = {"sweep": {"task": "sweep", "schedule": EVERY}}
    as_many = {
        f"slot {n}": {"task": "sweep", "schedule": EVERY, "args": (n,)} for n in range(SLOTS)
    }
    few = dict(list(many.items())[:100])
    with Server() as server:
        compare("100 entries", 100, server, few, few)
        compare(f"{ENTRIES} entries", DUE, server, many, many)
        compare(f"{SLOTS} slots", SLOTS, server, as_many, fan)


def compare(what, due, server, theirs, ours):
    celerys = Ticking(Scheduler, server, f"celery-{due}", theirs)
    atomicitys = Ticking(PartitionedScheduler, server, f"atomicity-{due}", ours)
    for each in (celerys, atomicitys):
        print(f"{what}, {type(each.scheduler).__name__}: taken up in {each.took_up * 1000:.0f} ms")
    times = {celerys: [], atomicitys: []}
    idle = {celerys: [], atomicitys: []}
    for _ in range(ROUNDS):
        for each, rows in times.items():
            rows.append(each.round(due))
            idle[each].append(each.idle())
    for name, found, scale in (("due", times, 1e6 / due), ("idle", idle, 1e6)):
        unit = "us a message" if name == "due" else "us a tick"
        for column, kind in enumerate(("processor", "clock")):
            base, own = (
                statistics.median(row[column] for row in found[each]) * scale
                for each in (celerys, atomicitys)
            )
            print(
                f"{what}, {name:4}, {kind:9}: Celery {base:8.1f}, here {own:8.1f} {unit}, "
                f"{own / base:5.2f} times",
                flush=True,
            )


if __name__ == "__main__":
    main()

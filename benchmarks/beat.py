"""
What a tick costs, beside Celery's own scheduler.

    python -m benchmarks.beat

10 to 10,000 entries, of which up to 250 are due in every round, and then none; then one entry of
1,024 slots, all due, beside as many entries of Celery's own. Rounds of the schedulers alternate;
both publish to the same Redis, where ours keeps its ledger too. What is compared is the processor
time and the time that passed, of this one process, as ratios of medians. The clock is moved by
hand: nobody waits.

Celery compares all entries with those before at each tick, of which each sends one message. So its
cost a message grows with their number, and 10,000 at once are minutes.
"""

from __future__ import annotations

import math
import statistics
import time
from datetime import datetime, timedelta, timezone

from celery import Celery
from celery.beat import Scheduler

from benchmarks import report, targets
from celery_atomicity import Atomicity
from celery_atomicity.integration.beat import PartitionedScheduler, partitioned
from celery_atomicity.integration.beat import scheduler as module
from celery_atomicity.primitives.membership import Assignment
from celery_atomicity.testing import Server

SIZES = (10, 100, 1_000, 10_000)
ENTRIES, SLOTS, DUE = 10_000, 1_024, 250
CELERY, OURS = "Celery", "celery-atomicity"
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

    def heed(self, *, stand_down): ...

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

    def idle(self, ticks=20):
        """Ticks at which nothing is due."""
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(ticks):
            self.scheduler.tick()
        return (time.process_time() - cpu) / ticks, (time.perf_counter() - wall) / ticks


def measure(run):
    module.Replica = Alone
    most = DUE if not run.quick else 50
    rounds = int(run.times(7, 2))
    curves = {
        f"{name}, {what}": []
        for name in (CELERY, OURS)
        for what in ("us a message", "us a tick without one")
    }
    with Server() as server:
        for size in SIZES:
            schedule = entries(size, most)
            section = run.section(f"Beat, {size:,} entries")
            found = compare(section, server, (schedule, schedule), min(size, most), rounds)
            for name, (due, idle) in found.items():
                curves[f"{name}, us a message"].append((size, due))
                curves[f"{name}, us a tick without one"].append((size, idle))
        if not run.quick:
            slots(run, server)
    run.results.curves.append(report.Curve("Beat", "entries", "us of the beat's processor", curves))


def slots(run, server):
    as_many = {
        f"slot {n}": {"task": "sweep", "schedule": EVERY, "args": (n,)} for n in range(SLOTS)
    }
    fan = {"sweep": {"task": "sweep", "schedule": EVERY}}
    section = run.section(f"Beat, {SLOTS:,} entries, here one of {SLOTS:,} slots")
    compare(section, server, (as_many, fan), SLOTS, 3)


def entries(size, due):
    """So many, of which up to *due* are due every minute."""
    return {
        f"entry {n}": {"task": "work", "schedule": EVERY if n < due else 1000 * EVERY}
        for n in range(size)
    }


def compare(section, server, schedules, due, rounds):
    """Add what messages and idle ticks cost; answer with the medians of both, of each scheduler."""
    theirs, ours = schedules
    group = f"{len(theirs)}-{due}"
    made = {
        CELERY: Ticking(Scheduler, server, f"celery-{group}", theirs),
        OURS: Ticking(PartitionedScheduler, server, f"atomicity-{group}", ours),
    }
    for name, each in made.items():
        section.notes.append(f"{name}: taken up in {each.took_up * 1000:.0f} ms")
    times, idle = {name: [] for name in made}, {name: [] for name in made}
    for _ in range(rounds):
        for name, each in made.items():
            times[name].append(each.round(due))
            idle[name].append(each.idle())
    medians = {name: [] for name in made}
    for what, found, scale in (("a message", times, 1e6 / due), ("an idle tick", idle, 1e6)):
        for column, kind in enumerate(("processor", "clock")):
            for name in made:
                median = statistics.median(row[column] for row in found[name]) * scale
                if kind == "processor":
                    medians[name].append(median)
                is_judged = name == OURS and kind == "processor" and len(ours) == ENTRIES
                section.add(
                    f"{name}, {what}, {kind}",
                    median,
                    basis=f"{CELERY}, {what}, {kind}",
                    target=targets.BEAT if is_judged else None,
                )
    return medians


if __name__ == "__main__":
    report.main(measure, __doc__)

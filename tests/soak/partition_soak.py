"""
Six real processes on a real server, under faults: does a slot ever have two owners?

    python tests/soak/partition_soak.py --minutes 2 --seed 7

Each process reads its assignment every millisecond and writes down from when to when it read the
same one, on a clock common to all processes. The checker reads only these logs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.checker.evidence import Span
from chaos.checker.slots import conflicts

from celery_atomicity.testing import Server, dies_with_us

PROCESSES = 6
INTERVAL = 0.5

# A departure or arrival is settled within five intervals; the sixth is for the machine's noise.
SETTLED = 6 * INTERVAL

# Seconds after which a group that has no owner for some slot is not just slow.
PATIENCE = 30.0

REPLICA = """
import os, sys, time
from celery_atomicity import Atom

atom = Atom(sys.argv[2], redis=sys.argv[1])
atom.open()
clock = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
log = open(sys.argv[3], "w", buffering=1)
first = last = shown = None
told = 0.0
while True:
    before = clock()
    slots = atom.slots(128)
    after = clock()
    found = None if slots is None else (slots[0], slots[1] - slots[0] if len(slots) > 1 else 128)
    if found != shown:
        if shown is not None:
            log.write(f"{first} {last} {shown[0]} {shown[1]}\\n")
        first, shown = after, found
        log.write(f"now {after} {found}\\n")
    last = before
    if before - told > 0.02:
        told = before
        log.write(f"seen {before}\\n")
    time.sleep(0.001)
"""


class Replica:
    """One process, its log, and whether it is frozen."""

    def __init__(self, number, url, group, directory):
        self.log = Path(directory) / f"{number}.log"
        self.process = subprocess.Popen(
            [*dies_with_us(), sys.executable, "-c", REPLICA, url, group, str(self.log)],
            env={
                **os.environ,
                "ATOMICITY_INTERVAL": str(INTERVAL),
                "ATOMICITY_TIMEOUT": "0.25",
                "ATOMICITY_RESTART_GRACE": "0",
            },
            stderr=subprocess.DEVNULL,
        )

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        self.process.kill()
        self.process.wait()

    def spans(self):
        """What it owned: (from, to, i, n)."""
        since, seen, shown = None, None, None
        text = self.log.read_text() if self.log.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():  # it may be in the middle of one
            words = line.split(maxsplit=2)
            if words[0] == "now":
                since = seen = float(words[1])
                shown = None if words[2] == "None" else eval(words[2])
            elif words[0] == "seen":
                seen = float(words[1])
            else:
                first, last, i, n = line.split()
                yield float(first), float(last), int(i), int(n)
                shown = None
        if shown is not None:
            # It ended in the middle of one; how long it owned it after its last word is not known.
            yield since, seen, *shown


def complete(spans, moment, total=128):
    """How many of the slots have an owner at *moment*."""
    owned = itertools.chain(
        *(range(i, total, n) for first, last, i, n, *_ in spans if first <= moment <= last)
    )
    return len(set(owned))


def settled_after(spans, moment):
    """Seconds from *moment* until all slots have owners; None if they never have."""
    candidates = sorted({moment, *(first for first, *_ in spans if first > moment)})
    return next((one - moment for one in candidates if complete(spans, one) == 128), None)


def settle(spans):
    """Wait until all slots have owners, but not for ever; a moment at which they had."""
    ends = time.monotonic() + PATIENCE
    while True:
        moment = time.clock_gettime(time.CLOCK_BOOTTIME) - 0.05
        if complete(spans(), moment) == 128 or time.monotonic() > ends:
            return moment
        time.sleep(0.05)


class Faults:
    """Breaks one thing after the other, and lets the group settle after each."""

    def __init__(self, server, replicas, spawn, chance):
        self.server = server
        self.replicas = replicas
        self.spawn = spawn
        self.chance = chance
        self.done = {}

    def one(self):
        kind = self.chance.choice(
            ["freeze", "freeze_long", "kill", "replace", "restart", "flush", "freeze_server"]
        )
        self.done[kind] = self.done.get(kind, 0) + 1
        getattr(self, kind)()

    def freeze(self, seconds=None):
        victim = self.chance.choice(self.replicas)
        victim.signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.1, 1.2) * INTERVAL if seconds is None else seconds)
        victim.signal(signal.SIGCONT)

    def freeze_long(self):
        self.freeze(self.chance.uniform(2, 5) * INTERVAL)

    def kill(self):
        self.chance.choice(self.replicas).end()
        self.replicas[:] = [one for one in self.replicas if one.process.poll() is None]
        time.sleep(self.chance.uniform(0, 2) * INTERVAL)
        self.spawn()

    def replace(self):
        self.spawn()
        time.sleep(self.chance.uniform(0, 1) * INTERVAL)
        self.replicas.pop(0).end()

    def restart(self):
        self.server.kill()
        time.sleep(self.chance.uniform(0, 3) * INTERVAL)
        self.server.start()

    def flush(self):
        for _ in range(self.chance.randint(1, 3)):
            self.server.cli("FLUSHALL")
            time.sleep(self.chance.uniform(0, 1) * INTERVAL)

    def freeze_server(self):
        self.server.freeze()
        time.sleep(self.chance.uniform(0.1, 2) * INTERVAL)
        self.server.thaw()


def run(seconds, seed, tell=lambda _line: None):
    """
    Let the fleet run for *seconds*.

    Returns:
        What was found: conflicts, moments at which a settled group was incomplete, and figures.
    """
    chance = random.Random(seed)
    everyone, replicas, moments, ends = [], [], [], []
    with tempfile.TemporaryDirectory() as directory, Server() as server:

        def spawn():
            one = Replica(len(everyone), server.url, "soak", directory)
            everyone.append(one)
            replicas.append(one)

        def spans():
            logs = enumerate(everyone)
            return [Span(*span, number) for number, one in logs for span in one.spans()]

        for _ in range(PROCESSES):
            spawn()
        faults = Faults(server, replicas, spawn, chance)
        began = time.monotonic()
        try:
            time.sleep(2 + SETTLED)
            while time.monotonic() - began < seconds:
                moments.append(settle(spans))
                # Whoever is killed next has written down what it owned until 20 ms before.
                time.sleep(0.05)
                faults.one()
                ends.append(time.clock_gettime(time.CLOCK_BOOTTIME))
                # A new process has to start first.
                time.sleep(1.0 + SETTLED + 0.5)
                tell(f"{time.monotonic() - began:5.0f} s  faults {faults.done}")
            moments.append(settle(spans))
            time.sleep(2 * INTERVAL)
        finally:
            for one in replicas:
                one.end()
        found = spans()
    waits = [wait for end in ends if (wait := settled_after(found, end)) is not None]
    return {
        "settled_after_intervals": {
            "median": round(statistics.median(waits) / INTERVAL, 2),
            "most": round(max(waits) / INTERVAL, 2),
        },
        "conflicts": list(conflicts(found)),
        "incomplete": [moment for moment in moments if complete(found, moment) != 128],
        "spans": len(found),
        "checks": len(moments),
        "faults": faults.done,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    found = run(options.minutes * 60, options.seed, lambda line: print(line, flush=True))
    print(found)
    sys.exit(1 if found["conflicts"] or found["incomplete"] else 0)


if __name__ == "__main__":
    main()

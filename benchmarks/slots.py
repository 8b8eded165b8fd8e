"""
What reading the assignment costs, beside building the same list in Python.

    python -m benchmarks.slots

In a child forked by the process that registers, as in a prefork pool.
"""

from __future__ import annotations

import json
import os
import time
import timeit

from benchmarks import report, targets
from celery_atomicity import Atom
from celery_atomicity.testing import Server, wait_until

LIST = "list(range(i, 128, n))"


def measure(run):
    section = run.section("Reading the assignment in a pool child")
    os.environ.setdefault("ATOMICITY_INTERVAL", "1")
    with Server() as server:
        atom = Atom("slots", redis=server.url)
        with atom:
            wait_until(lambda: atom.slots(128), 30, "the group is settled")
            samples = in_child(lambda: read(atom, int(run.times(101, 15))))
    section.add_samples(
        samples,
        basis=LIST,
        targets={"atom.slots(128)": targets.SLOTS, "atom.owns(17, 128)": targets.OWNS},
    )


def read(atom, rounds, calls=2_000):
    """Microseconds a call of each case; a sample is the mean of many calls."""
    i, n = atom.assignment.i, atom.assignment.n
    cases = {
        LIST: lambda: list(range(i, 128, n)),
        "atom.slots(128)": lambda: atom.slots(128),
        "atom.owns(17, 128)": lambda: atom.owns(17, 128),
        "atom.assignment": lambda: atom.assignment,
    }
    times = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            # By processor: nothing here waits for anybody.
            took = timeit.timeit(case, number=calls, timer=time.process_time)
            times[name].append(took / calls * 1e6)
    return times


def in_child(work):
    """What *work* answers in a child of this process."""
    ours, its = os.pipe()
    if os.fork() == 0:
        try:
            with os.fdopen(its, "w") as out:
                json.dump(work(), out)
        finally:
            os._exit(0)
    os.close(its)
    with os.fdopen(ours) as found:
        answer = found.read()
    os.wait()
    return json.loads(answer)


if __name__ == "__main__":
    report.main(measure, __doc__)

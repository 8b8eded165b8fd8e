"""
What reading the assignment costs, beside building the same list in Python.

    python benchmarks/slots.py

In a child forked by the process that registers, as in a prefork pool.
"""

from __future__ import annotations

import os
import statistics
import timeit

from celery_atomicity import Atom
from celery_atomicity.testing import Server, wait_until

ROUNDS, CALLS = 15, 20_000


def main():
    os.environ.setdefault("ATOMICITY_INTERVAL", "1")
    with Server() as server:
        atom = Atom("slots", redis=server.url)
        with atom:
            wait_until(lambda: atom.slots(128), what="the group is settled")
            if os.fork() == 0:
                measure(atom)
                os._exit(0)
            os.wait()


def measure(atom):
    i, n = atom.assignment.i, atom.assignment.n
    cases = {
        "list(range(i, 128, n))": lambda: list(range(i, 128, n)),
        "atom.slots(128)": lambda: atom.slots(128),
        "atom.owns(17, 128)": lambda: atom.owns(17, 128),
        "atom.assignment": lambda: atom.assignment,
    }
    times = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, case in cases.items():
            times[name].append(timeit.timeit(case, number=CALLS) / CALLS * 1e6)
    medians = {name: statistics.median(values) for name, values in times.items()}
    base = next(iter(medians.values()))
    for name, value in medians.items():
        print(f"{name:24} {value:6.2f} us   {value / base:5.2f} times the list", flush=True)


if __name__ == "__main__":
    main()

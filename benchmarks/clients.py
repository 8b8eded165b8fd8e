"""
Locks a second by clients: 1 to 64 threads of a process, and as many processes, each on its own key.

    python -m benchmarks.clients           # peers: pip install --group bench
"""

from __future__ import annotations

import threading
import time

from benchmarks import contenders, report
from benchmarks.contention import children, fork
from celery_atomicity.testing import Server

CLIENTS = (1, 4, 16, 64)


def measure(run):
    run.progress("Locks a second by clients")
    kinds = {
        "celery-atomicity, threads": (threads, contenders.ours),
        "celery-atomicity, processes": (processes, contenders.ours),
        "redis-py Lock, processes": (processes, contenders.redis_py),
    }
    lines = {name: [] for name in kinds}
    with Server() as server:
        for count in CLIENTS:
            for name, (how, make) in kinds.items():
                run.progress(f"Locks a second by clients: {count} {name}")
                lines[name].append((count, how(server, make, count, run.times(2.0, 0.7))))
    run.results.curves.append(
        report.Curve("Locks a second", "clients, each on a key of its own", "locks a second", lines)
    )


def threads(server, make, count, seconds):
    """Of one atom, so of one process's connections."""
    del make
    atom = contenders.atom_on(server)
    done = []

    def work(number):
        end, turns = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            with atom.lock(f"thread {number}"):
                turns += 1
        done.append(turns)

    made = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    began = time.monotonic()
    for one in made:
        one.start()
    for one in made:
        one.join()
    return sum(done) / (time.monotonic() - began)


def processes(server, make, count, seconds):
    start = fork.Barrier(count)
    with children(_use, make, server, start, seconds, count=count) as made:
        return sum(connection.recv() for _, connection in made) / seconds


def _use(connection, make, server, start, seconds):
    take, let_go = make([server], f"process {id(connection)} {fork.current_process().pid}")
    let_go(take())
    start.wait()
    end, turns = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        let_go(take())
        turns += 1
    connection.send(turns)
    connection.recv()


if __name__ == "__main__":
    report.main(measure, __doc__)

"""
What a decorated task that does nothing costs a worker, beside the plain one.

    python benchmarks/tasks.py
    python benchmarks/tasks.py --results      # each result is stored in Redis as well

One prefork worker with one process runs batches of each kind in turn; between two of them a task
notes the time, so that the throughput of a batch is that of the worker alone. Everything was sent
before the worker started. The limit is never reached, and no key is ever taken.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from celery import Celery
from redis import Redis

from celery_atomicity import Atomicity, rate_limited, singleton_by
from celery_atomicity.testing import Server, dies_with_us, wait_until

COUNT, ROUNDS = 300, 9
NOTES = "notes"

app = Celery("bench", broker=os.environ.get("BENCH_BROKER"))
app.conf.result_backend = os.environ.get("BENCH_RESULTS") or None
app.conf.atomicity_redis = os.environ.get("BENCH_BROKER")
app.conf.atomicity_restart_grace = 0
Atomicity(app)


@app.task(name="plain")
def plain(number): ...


@app.task(name="rate_limited")
@rate_limited(1e6, burst=1e6, key="{number}")
def limited(number): ...


@app.task(name="singleton_by")
@singleton_by("{number}")
def single(number): ...


@app.task(name="both")
@singleton_by("{number}")
@rate_limited(1e6, burst=1e6)
def both(number): ...


@app.task(name="note", ignore_result=True)
def note(name):
    client = Redis.from_url(os.environ["BENCH_BROKER"])
    client.rpush(NOTES, f"{name} {time.perf_counter()} {time.process_time()}")
    client.close()


KINDS = (plain, limited, single, both)


def run(server, options):
    os.environ["BENCH_BROKER"] = app.conf.broker_url = app.conf.atomicity_redis = server.url
    os.environ["BENCH_RESULTS"] = server.url if options.results else ""
    with app.producer_pool.acquire(block=True) as producer:
        for kind in KINDS:  # whatever is done once is done before
            for number in range(50):
                kind.apply_async((number,), producer=producer)
        note.apply_async(("start",), producer=producer)
        for _ in range(ROUNDS):
            for kind in KINDS:
                for number in range(options.count):
                    kind.apply_async((number,), producer=producer)
                note.apply_async((kind.name,), producer=producer)
    notes = ROUNDS * len(KINDS) + 1
    with tempfile.TemporaryFile() as log, Redis.from_url(server.url) as client:
        argv = ["-m", "celery", "-A", "tasks", "worker", "-c", "1", "-l", "WARNING"]
        worker = subprocess.Popen(
            [*dies_with_us(), sys.executable, *argv, "--without-gossip", "--without-mingle"],
            cwd=Path(__file__).parent,
            stdout=log,
            stderr=log,
        )
        wait_until(lambda: client.llen(NOTES) == notes, 600, "all have run")
        worker.terminate()
        worker.wait()
        return [line.decode().split() for line in client.lrange(NOTES, 0, -1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--results", action="store_true", help="store each result in Redis")
    parser.add_argument("--count", type=int, default=COUNT, help="tasks of a batch")
    options = parser.parse_args()
    with Server() as server:
        print_machine(server)
        notes = run(server, options)
    passed, busy = {}, {}
    for (_, then, cpu_then), (name, now, cpu_now) in itertools.pairwise(notes):
        passed.setdefault(name, []).append((float(now) - float(then)) / options.count)
        busy.setdefault(name, []).append((float(cpu_now) - float(cpu_then)) / options.count)
    plain_passed, plain_busy = (statistics.median(each["plain"]) for each in (passed, busy))
    print("a task of                time        throughput   its process's processor time")
    for name, times in passed.items():
        each, cpu = statistics.median(times), statistics.median(busy[name])
        print(
            f"{name:20} {each * 1e6:8.0f} us {plain_passed / each:13.0%}"
            f" {cpu * 1e6:12.0f} us, +{(cpu - plain_busy) * 1e6:.0f}"
        )


def print_machine(server):
    import meter  # a worker that loads this file has no use for it

    meter.print_machine(server)


if __name__ == "__main__":
    main()

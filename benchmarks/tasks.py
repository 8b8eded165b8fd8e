"""
What a decorated task that does nothing costs a worker, beside the plain one and other packages'.

    python -m benchmarks.tasks             # peers: pip install --group bench

One prefork worker with one process runs batches of each kind in turn; between two of them a task
notes the time, so that the throughput of a batch is that of the worker alone. Everything was sent
before the worker started. The limit is never reached, and no key is ever taken.

celery-singleton and celery-once take their key where a task is sent, so that half of their cost is
there; the second table counts sending too. celery-heimdall is left out: its tasks took a second
each.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path

from celery import Celery
from redis import Redis

from benchmarks import report, targets
from celery_atomicity import Atomicity, rate_limited, singleton_by
from celery_atomicity.integration.arguments.template import compile_key
from celery_atomicity.testing import Server, dies_with_us, wait_until

NOTES = "notes"
URL = os.environ.get("BENCH_BROKER")

app = Celery("bench", broker=URL, set_as_current=False)
app.conf.atomicity_redis = URL
app.conf.atomicity_restart_grace = 0
# Each has to find its own server in the sender and in the worker.
app.conf.singleton_backend_url = URL
app.conf.ONCE = {
    "backend": "celery_once.backends.Redis",
    "settings": {"url": URL or "redis://", "default_timeout": 600},
}
Atomicity(app)

RAW = "raw lock in the body"


@app.task(name="plain")
def plain(number): ...


@app.task(name="rate_limited")
@rate_limited(1e6, burst=1e6, key="{number}")
def limited(number): ...


@app.task(name="singleton_by")
@singleton_by("{number}")
def single(number): ...


@app.task(name="both decorators")
@singleton_by("{number}")
@rate_limited(1e6, burst=1e6)
def both(number): ...


@app.task(name=RAW)
def raw(number):
    """SET NX and a script that compares and deletes, by redis-py: the least that people write."""
    client = _client()
    key, mine = f"raw:{number}", secrets.token_hex(16)
    if client.set(key, mine, nx=True, px=10_000):
        client.let_go(keys=[key], args=[mine])


def _client(made=[]):  # noqa: B006 - one client a process, made after the fork
    if not made:
        client = Redis.from_url(URL)
        client.let_go = client.register_script(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"
        )
        made.append(client)
    return made[0]


@app.task(name="note", ignore_result=True)
def note(name):
    client = Redis.from_url(URL)
    client.rpush(NOTES, f"{name}|{time.perf_counter()}|{time.process_time()}")
    client.close()


def peers():
    """The same task under other packages, those that are installed."""
    found = []
    if importlib.util.find_spec("celery_singleton"):
        from celery_singleton import Singleton

        found.append(app.task(name="celery-singleton", base=Singleton, lock_expiry=600)(_nothing))
    if importlib.util.find_spec("celery_once"):
        from celery_once import QueueOnce

        found.append(
            app.task(name="celery-once", base=QueueOnce, once={"keys": ["number"]})(_nothing)
        )
    return found


def _nothing(number): ...


KINDS = (plain, limited, single, both, raw, *peers())


def measure(run):
    key_computation(run)
    throughput = run.section("A task that does nothing, one prefork process: tasks a second")
    for name in ("celery-singleton", "celery-once"):
        if name not in app.tasks:
            throughput.notes.append(f"{name} is not installed and left out")
    with Server() as server, tempfile.TemporaryDirectory() as directory:
        # A process of its own sends, since the app is made for a server that is known by then.
        notes = Path(directory) / "sent"
        count, rounds = int(run.times(300, 60)), int(run.times(7, 3))
        environment = {**os.environ, "BENCH_BROKER": server.url}
        subprocess.run(
            [sys.executable, "-m", "benchmarks.tasks", "send", notes, str(count), str(rounds)],
            env=environment,
            check=True,
        )
        run.progress(f"{throughput.title}: {len(KINDS)} kinds")
        ran = work(server, environment, rounds)
        sent = [line.split("|") for line in notes.read_text().splitlines()]
    passed, busy = {}, {}
    for (_, then, cpu_then), (name, now, cpu_now) in itertools.pairwise(ran):
        passed.setdefault(name, []).append((float(now) - float(then)) / count)
        busy.setdefault(name, []).append((float(cpu_now) - float(cpu_then)) / count)
    judged = {single.name: targets.TASK, limited.name: targets.TASK}
    for name, times in passed.items():
        throughput.add(
            name,
            1 / statistics.median(times),
            unit="/s",
            basis=plain.name,
            target=judged.get(name),
        )
    sending = {}
    for name, cpu in sent:
        sending.setdefault(name, []).append(float(cpu) / count)
    processor = run.results.section(
        "A task that does nothing: processor time of its sender and its pool process"
    )
    for name, times in busy.items():
        total = statistics.median(times) + statistics.median(sending[name])
        processor.add(name, total * 1e6, basis=plain.name)


def key_computation(run):
    section = run.section("A key from the arguments of a call")

    def sync(account_id, day="today"): ...

    compute = compile_key("{account_id}:{day}", sync)
    times = [
        timeit.timeit(lambda: compute((17,), {}), number=2_000, timer=time.process_time) / 2e3 * 1e6
        for _ in range(int(run.times(101, 15)))
    ]
    section.add(
        '"{account_id}:{day}"',
        statistics.median(times),
        p99=report.late(times),
        target=targets.KEY,
    )


def send(path, count, rounds):
    """Send all batches and the notes between them; write down what sending took, by processor."""
    numbers = itertools.count()
    with app.producer_pool.acquire(block=True) as producer, path.open("w") as out:

        def batch(kind, size):
            for _ in range(size):
                kind.apply_async((next(numbers),), producer=producer)

        for kind in KINDS:  # whatever is done once is done before
            batch(kind, 50)
        note.apply_async(("start",), producer=producer)
        for _ in range(rounds):
            for kind in KINDS:
                began = time.process_time()
                batch(kind, count)
                out.write(f"{kind.name}|{time.process_time() - began}\n")
                note.apply_async((kind.name,), producer=producer)


def work(server, environment, rounds):
    """Run a worker until all has run; what the notes say."""
    notes = rounds * len(KINDS) + 1
    with tempfile.TemporaryFile() as log, Redis.from_url(server.url) as client:
        argv = ["-m", "celery", "-A", "benchmarks.tasks", "worker", "-c", "1", "-l", "ERROR"]
        worker = subprocess.Popen(
            [*dies_with_us(), sys.executable, *argv, "--without-gossip", "--without-mingle"],
            cwd=Path(__file__).parents[1],
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(lambda: client.llen(NOTES) == notes, 200, "all have run")
        except AssertionError:
            log.seek(0)
            raise RuntimeError(log.read().decode()[-2000:]) from None
        finally:
            worker.terminate()
            worker.wait()
        return [line.decode().split("|") for line in client.lrange(NOTES, 0, -1)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["send"]:
        send(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        report.main(measure, __doc__)

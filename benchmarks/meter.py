"""
What a meter check and a rate check cost, beside their bare scripts and beside other limiters.

    python -m benchmarks.meter             # peers: pip install --group bench

The bare script is the same EVALSHA, packed once, over a raw socket that reads until the answer is
there. All cases take turns, call by call, so that whatever else the machine does meets each of
them; what counts is the ratio of the medians. Batches are also held against what the server says
that it spent on them.
"""

from __future__ import annotations

import os
import statistics

from redis import Redis

from benchmarks import report, targets
from benchmarks.wire import APART, TOGETHER, Bare, Fixed, pin, unpin
from celery_atomicity import Atom
from celery_atomicity.connection import Script
from celery_atomicity.primitives.limit import Limit
from celery_atomicity.primitives.rate import SLEEP, Question
from celery_atomicity.testing import Server

PER_SECOND = 1e9  # whoever asks finds room
BATCHES = (1, 10, 100, 1_000, 2_000, 10_000)

METER, RATE = "meter: the bare script", "rate: the bare script"
OURS = "celery-atomicity: meter"


def measure(run):
    os.environ["ATOMICITY_RESTART_GRACE"] = "0"  # nothing here is a lease
    for how in (APART, TOGETHER):
        with Server() as server:
            if not pin(how, server) and how == TOGETHER:
                continue
            try:
                single(run, server, how)
                if how == APART:
                    batches(run, server)
            finally:
                unpin()


def single(run, server, how):
    section = run.section(f"Meter and rate, one key, {how}")
    atom = Atom("bench", redis=server.url)
    question = [Question(Limit("bench", PER_SECOND, PER_SECOND))]
    cases = {
        METER: Fixed(server, Script("meter"), ["raw:meter"], ["1"]),
        "a bare round trip": Bare(server),
        OURS: lambda: atom.meter(["bench"], [1]),
        RATE: Fixed(server, Script("rate"), ["raw:rate"], rate_arguments()),
        "celery-atomicity: rate": lambda: atom.rates.admit(question),
        **peers(server, section),
    }
    samples = report.turns(cases, int(run.times(3_000, 300)), warm=50)
    section.add_samples(
        samples,
        basis=lambda case: RATE if case in (RATE, "celery-atomicity: rate") else METER,
        targets={OURS: targets.METER},
    )


def rate_arguments():
    return ["0", SLEEP, PER_SECOND / 1000, PER_SECOND, 1, "", 20, 900_000, ""]


def peers(server, section):
    cases = {}
    try:
        from limits import parse, storage, strategies

        item, store = parse("1000000000/second"), storage.RedisStorage(server.url)
        for kind in ("FixedWindow", "SlidingWindowCounter"):
            limiter = getattr(strategies, f"{kind}RateLimiter")(store)
            cases[f"limits: {kind}"] = lambda limiter=limiter: limiter.hit(item, "bench")
    except ImportError:
        section.notes.append("limits is not installed and left out")
    try:
        from pyrate_limiter import Limiter, Rate, RedisBucket

        # It keeps every hit in a sorted set: one that is full would be another measurement.
        bucket = RedisBucket.init([Rate(1_000_000, 100)], Redis.from_url(server.url), "pyrate")
        limiter = Limiter(bucket)
        cases["pyrate-limiter: RedisBucket"] = lambda: limiter.try_acquire("bench", blocking=False)
    except ImportError:
        section.notes.append("pyrate-limiter is not installed and left out")
    return cases


def batches(run, server):
    """Many keys a call, held against the bare script and what the server itself has spent."""
    atom = Atom("bench", redis=server.url)
    curve = {"celery-atomicity": [], "the bare script": [], "the server's own time": []}
    for count in BATCHES:
        run.progress(f"Meter, {count} keys a call")
        keys, deltas = [f"key:{n}" for n in range(count)], [1] * count
        call = lambda keys=keys, deltas=deltas: atom.meter(keys, deltas)  # noqa: E731
        raw = Fixed(server, Script("meter"), [f"raw:{key}" for key in keys], ["1"] * count)
        rounds = int(
            max(run.times(30, 5), min(run.times(400, 60), run.times(60_000, 6_000) / count))
        )
        cases = {"the bare script": raw, "celery-atomicity": call}
        samples = report.turns(cases, rounds, warm=3)
        own = spent(server, call, 20)
        for name, found in samples.items():
            curve[name].append((count, statistics.median(found) / count))
        curve["the server's own time"].append((count, own / count))
        if count == 2_000:
            section = run.results.section(f"Meter, {count:,} keys a call")
            section.add("the server's own time", own)
            for name, found in samples.items():
                section.add(
                    name,
                    statistics.median(found),
                    p99=report.late(found),
                    basis="the server's own time",
                    target=targets.BATCH if name == "celery-atomicity" else None,
                )
    run.results.curves.append(
        report.Curve("A meter call of many keys", "keys a call", "us a key", curve)
    )


def spent(server, call, times):
    """Microseconds that the server says it spends in the scripts of one *call*."""
    before = _spent(server)
    for _ in range(times):
        call()
    return (_spent(server) - before) / times


def _spent(server):
    lines = server.cli("INFO", "commandstats").splitlines()
    [stats] = [line for line in lines if line.startswith("cmdstat_evalsha:")]
    return int(dict(part.split("=") for part in stats.split(":")[1].split(","))["usec"])


if __name__ == "__main__":
    report.main(measure, __doc__)

"""
What a meter check and a rate check cost, beside their bare scripts and beside other limiters.

    python benchmarks/meter.py            # needs the dependency group ``bench``
    python benchmarks/meter.py --pin      # client and server on one core: only work is counted

The bare script is the same EVALSHA, packed once, over a raw socket that reads until the answer is
there. All cases take turns, call by call, so that whatever else the machine does meets each of
them; what counts is the ratio of the medians. Batches are also held against what the server says
that it spent on them.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import socket
import statistics
import time
from contextlib import suppress
from importlib.metadata import version

from redis import Redis

from celery_atomicity import Atom
from celery_atomicity.connection import Script
from celery_atomicity.connection.resp import pack
from celery_atomicity.primitives.limit import Limit
from celery_atomicity.primitives.rate import SLEEP, Question
from celery_atomicity.testing import Server

ROUNDS = 4_000
BATCHES = {100: 300, 2_000: 60}
PER_SECOND = 1e9  # whoever asks finds room


class Raw:
    """A script over a bare socket: the least that any client can do."""

    def __init__(self, server, script, keys, arguments):
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        script = Script(script)
        self.command = script.command(keys, arguments).data
        self.socket.sendall(pack(("SCRIPT", "LOAD", script.source)))
        self.socket.recv(65536)
        self.socket.sendall(self.command)
        time.sleep(0.2)
        # The answers of later calls are as long, or nearly.
        self.tail = self.socket.recv(1 << 20).count(b"\r\n")

    def __call__(self):
        self.socket.sendall(self.command)
        lines = 0
        while lines < self.tail:
            lines += self.socket.recv(1 << 20).count(b"\r\n")


def rate_arguments():
    return ["0", SLEEP, PER_SECOND / 1000, PER_SECOND, 1, "", 20, 900_000, ""]


def single(server, atom):
    question = [Question(Limit("bench", PER_SECOND, PER_SECOND))]
    cases = {
        "meter: bare script": Raw(server, "meter", ["raw:meter"], ["1"]),
        "meter: atom.meter": lambda: atom.meter(["bench"], [1]),
        "rate: bare script": Raw(server, "rate", ["raw:rate"], rate_arguments()),
        "rate: rates.admit": lambda: atom.rates.admit(question),
    }
    with suppress(ImportError):
        from limits import parse, storage, strategies

        item, store = parse("1000000000/second"), storage.RedisStorage(server.url)
        for kind in ("FixedWindow", "SlidingWindowCounter"):
            limiter = getattr(strategies, f"{kind}RateLimiter")(store)
            cases[f"limits: {kind}"] = lambda limiter=limiter: limiter.hit(item, "bench")
    with suppress(ImportError):
        from pyrate_limiter import Limiter, Rate, RedisBucket

        # It keeps every hit in a sorted set: one that is full would be another measurement.
        bucket = RedisBucket.init([Rate(1_000_000, 100)], Redis.from_url(server.url), "pyrate")
        limiter = Limiter(bucket)
        cases["pyrate-limiter: RedisBucket"] = lambda: limiter.try_acquire("bench", blocking=False)
    return cases


def batches(server, atom, count):
    keys = [f"key:{n}" for n in range(count)]
    raw = Raw(server, "meter", [f"raw:{key}" for key in keys], ["1"] * count)
    return {"bare script": raw, "atom.meter": lambda: atom.meter(keys, [1] * count)}


def measure(cases, rounds):
    times = {name: [] for name in cases}
    for case in cases.values():
        for _ in range(50):
            case()
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for name, case in cases.items():
            began = time.perf_counter_ns()
            case()
            times[name].append(time.perf_counter_ns() - began)
    gc.enable()
    return {name: statistics.median(each) / 1000 for name, each in times.items()}


def spent(server):
    """Microseconds that the server has spent in scripts, and how many it has run."""
    lines = server.cli("INFO", "commandstats").splitlines()
    [stats] = [line for line in lines if line.startswith("cmdstat_evalsha:")]
    fields = dict(part.split("=") for part in stats.split(":")[1].split(","))
    return int(fields["usec"]), int(fields["calls"])


def show(medians, basis):
    for name, median in medians.items():
        ratio = median / medians[basis(name)]
        print(f"  {name:30} {median:9.1f} us  {ratio:5.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--pin", action="store_true", help="everything on one core")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    if options.pin:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["ATOMICITY_RESTART_GRACE"] = "0"  # nothing here is a lease
    with Server() as server:
        print_machine(server)
        atom = Atom("bench", redis=server.url)
        print("one key")
        show(
            measure(single(server, atom), options.rounds),
            lambda name: "rate: bare script" if name.startswith("rate") else "meter: bare script",
        )
        for count, rounds in BATCHES.items():
            medians = measure(batches(server, atom, count), rounds)
            before = spent(server)
            keys = [f"key:{n}" for n in range(count)]
            for _ in range(20):
                atom.meter(keys, [1] * count)
            after = spent(server)
            medians["of which the server's script"] = (after[0] - before[0]) / 20
            print(f"{count} keys, {count / medians['atom.meter'] * 1e6:,.0f} keys a second")
            show(medians, lambda _: "bare script")


def print_machine(server):
    known = server.cli("INFO", "server")
    [release] = [line for line in known.splitlines() if line.startswith("redis_version")]
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, Python", end=" ")
    print(platform.python_version(), release.strip().replace(":", " "), end="")
    for name in ("celery", "redis", "hiredis", "limits", "pyrate-limiter"):
        with suppress(ImportError):
            print(f", {name} {version(name)}", end="")
    print()


if __name__ == "__main__":
    main()

"""
Up to ten thousand replicas on one server: does the group settle, and what does it cost the server?

    python -m benchmarks.partition_scale

Each replica follows the package's own rules and registers with its own script; only their threads
are left out: one loop asks for whichever replica is due, several in one round trip when they are.
"""

from __future__ import annotations

import heapq
import re

from benchmarks import report
from celery_atomicity import clock, keys
from celery_atomicity.connection import Clients, Script
from celery_atomicity.primitives.membership import Membership, Registration
from celery_atomicity.settings import Settings
from celery_atomicity.testing import Server

# Replicas, interval in seconds and intervals. Ten thousand at 0.35 ms apart do not settle, and cost
# what they cost all the same.
FULL = ((10, 1.0, 7), (100, 2.0, 7), (1_000, 5.0, 7), (10_000, 5.0, 5))
QUICK = ((10, 1.0, 4), (100, 1.0, 5), (1_000, 2.0, 3))

GROUP = "scale"
MOST = 100  # registrations in one round trip


def info(server, section):
    """The figures of one section of INFO."""
    text = server.cli("INFO", section)
    return dict(re.findall(r"(?m)^(\w+):(.*?)\r?$", text))


def registration(reply):
    number, place, previous, now = reply.value
    return Registration(
        number, place - 1, previous, now / 1000, reply.sent, reply.received, reply.run
    )


def scale(server, count, interval, intervals):
    clients = Clients(Settings.read({"atomicity_redis": server.url}, {}))
    script, base = Script("register"), [keys.slots_base(GROUP)]
    arguments = [round(interval * 1000), round(interval * 3000)]
    replicas = [Membership(interval, 0.15) for _ in range(count)]
    began = clock.monotonic()
    due = [(began + interval * index / count, index) for index in range(count)]
    settled_at, registrations, late = None, 0, 0.0
    start = {}
    while (now := clock.monotonic()) < began + intervals * interval:
        if not start and now > began + interval * (intervals - 2):
            start = (
                {"at": now, "count": registrations} | info(server, "stats") | info(server, "cpu")
            )
        batch = []
        while due and due[0][0] <= now and len(batch) < MOST:
            late = max(late, now - due[0][0])
            batch.append(heapq.heappop(due)[1])
        if not batch:
            clock.sleep(max(0.0, due[0][0] - now))
            continue
        for index, reply in zip(
            batch, clients.ask_many([(script, base, arguments)] * len(batch)), strict=True
        ):
            replicas[index].registered(registration(reply))
            heapq.heappush(due, (replicas[index].next_at, index))
        registrations += len(batch)
        if settled_at is None and sum(one.assignment is not None for one in replicas) == count:
            settled_at = clock.monotonic() - began
    now = clock.monotonic()
    end = info(server, "stats") | info(server, "cpu")
    owned = [one.assignment for one in replicas if one.at(now) is not None]
    return {
        "settled_after_intervals": settled_at and settled_at / interval,
        "owners": len(owned),
        "distinct": len({one.i for one in owned}),
        "sizes": sorted({one.n for one in owned}),
        "latest_ms": late * 1000,
        **cost(start, end, now - start["at"], registrations - start["count"]),
    }


def cost(start, end, seconds, registrations):
    """What the server had to do per second and per registration."""

    def more(name):
        return float(end[name]) - float(start[name])

    cpu = more("used_cpu_user") + more("used_cpu_sys")
    return {
        "registrations_per_second": registrations / seconds,
        "bytes_in_per_registration": more("total_net_input_bytes") / registrations,
        "bytes_out_per_registration": more("total_net_output_bytes") / registrations,
        "kilobytes_per_second": (more("total_net_input_bytes") + more("total_net_output_bytes"))
        / seconds
        / 1000,
        "server_cpu_percent": 100 * cpu / seconds,
    }


def measure(run):
    section = run.section("Registering: the processor of the server that each one takes")
    lines = {"the server's processor": [], "per registration, in and out": []}
    for count, interval, intervals in QUICK if run.quick else FULL:
        run.progress(f"{section.title}: {count} replicas")
        with Server() as server:
            found = scale(server, count, interval, intervals)
        seconds = found["server_cpu_percent"] / 100 / found["registrations_per_second"]
        settled = found["settled_after_intervals"]
        section.add(f"{count:,} replicas, every {interval:g} s", seconds * 1e6)
        section.notes.append(
            f"{count:,} replicas, every {interval:g} s: {found['server_cpu_percent']:.1f}% of the "
            f"server's core, {found['kilobytes_per_second']:.0f} kB/s, "
            + (f"all settled after {settled:.1f} intervals" if settled else "not all settled")
        )
        lines["the server's processor"].append((count, seconds * 1e6))
        traffic = found["bytes_in_per_registration"] + found["bytes_out_per_registration"]
        lines["per registration, in and out"].append((count, traffic))
    run.results.curves.append(
        report.Curve("Registering", "replicas of a group", "us, and bytes, a registration", lines)
    )


if __name__ == "__main__":
    report.main(measure, __doc__)

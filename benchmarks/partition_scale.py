"""
Ten thousand replicas on one server: does the group settle, and what does it cost the server?

    python benchmarks/partition_scale.py --replicas 10000 --intervals 8

Each replica follows the package's own rules and registers with its own script; only their threads
are left out: one loop asks for whichever replica is due, several in one round trip when they are.
"""

from __future__ import annotations

import argparse
import heapq
import re

from celery_atomicity import clock, keys
from celery_atomicity.connection import Clients, Script
from celery_atomicity.primitives.membership import Membership, Registration
from celery_atomicity.settings import Settings
from celery_atomicity.testing import Server

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


def run(server, count, interval, intervals):
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--replicas", type=int, default=10_000)
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--intervals", type=int, default=8)
    options = parser.parse_args()
    with Server() as server:
        found = run(server, options.replicas, options.interval, options.intervals)
    for name, value in found.items():
        print(f"{name:28} {value:,.1f}" if isinstance(value, float) else f"{name:28} {value}")


if __name__ == "__main__":
    main()

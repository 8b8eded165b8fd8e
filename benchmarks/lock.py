"""
What a lock costs, beside bare round trips and other packages' locks; on several addresses too.

    python -m benchmarks.lock              # peers: pip install --group bench

A bare round trip is a raw socket that sends an EVALSHA of a trivial script and reads the answer;
two are the least that taking and letting go can cost. All cases take turns, so that whatever else
the machine does meets each of them; what counts is the ratio of the medians.
"""

from __future__ import annotations

import itertools
import time

from benchmarks import contenders, report, targets
from benchmarks.contenders import OURS, both
from benchmarks.wire import APART, TOGETHER, Bare, pin, unpin
from celery_atomicity.testing import Server

BARE = "two bare round trips"
SCRIPTS = "the raw lock scripts"
CALLS = 20
# Longer than it takes to find out that an address does not answer; seconds.
NOTICED = 2.5


def measure(run):
    for how in (APART, TOGETHER):
        with Server() as server:
            if not pin(how, server) and how == TOGETHER:
                continue
            try:
                one_address(run, server, how)
            finally:
                unpin()
    with Servers(8) as servers:
        pin(APART, *servers)
        try:
            several_addresses(run, servers)
            minority(run, servers)
            first_second(run, servers)
        finally:
            unpin()


class Servers(list):
    """So many servers."""

    def __init__(self, count):
        super().__init__(Server() for _ in range(count))

    def __enter__(self):
        for server in self:
            server.start()
        return self

    def __exit__(self, *_):
        for server in self:
            server.close()


def twice(bare):
    def both_ways():
        bare()
        bare()

    return both_ways


def on(*servers, group):
    """Take and let go of ours, on *servers*."""
    atom = contenders.atom_on(*servers, group=group)

    def once():
        with atom.lock("k"):
            pass

    return once


def one_address(run, server, how):
    section = run.section(f"Take and let go, one address, {how}")
    cases = {
        BARE: twice(Bare(server)),
        SCRIPTS: contenders.raw_scripts(server),
        OURS: on(server, group="bench"),
    }
    cases |= {
        name: both(make([server], name)) for name, make in contenders.present(section).items()
    }
    samples = report.turns(cases, int(run.times(75, 10)), CALLS)
    section.add_samples(samples, basis=BARE, targets={OURS: targets.LOCK})
    medians = {row.case: row.median for row in section.rows}
    section.add(f"{OURS}, over the raw scripts", medians[OURS], basis=SCRIPTS)
    peers = [name for name in contenders.PEERS if name in medians]
    if peers:
        fastest = min(peers, key=medians.__getitem__)
        section.add(
            f"{OURS}, over the fastest peer", medians[OURS], basis=fastest, target=targets.FASTEST
        )


def several_addresses(run, servers):
    section = run.section("Take and let go, more addresses")
    cases = {f"{n} address{'es'[: n - 1]}": on(*servers[:n], group=f"of-{n}") for n in (1, 3, 5)}
    pottery = contenders.present(section).get("pottery Redlock")
    if pottery:
        cases["pottery Redlock, 3 addresses"] = both(pottery(servers[:3], "pottery"))
    samples = report.turns(cases, int(run.times(50, 8)), CALLS)
    wanted = dict.fromkeys(("3 addresses", "5 addresses"), targets.ADDRESSES)
    section.add_samples(samples, basis="1 address", targets=wanted)


def minority(run, servers):
    """Addresses that are down or hang, after that was noticed."""
    section = run.section("Take and let go, a minority does not answer")
    a, b, c, d, e, frozen, frozen_too, stopped = servers
    cases = {
        "3 addresses": on(a, b, c, group="three"),
        "3 addresses, 1 hanging": on(a, b, frozen, group="three-hanging"),
        "3 addresses, 1 stopped": on(a, b, stopped, group="three-stopped"),
        "5 addresses": on(a, b, c, d, e, group="five"),
        "5 addresses, 2 hanging": on(a, b, c, frozen, frozen_too, group="five-hanging"),
    }
    for case in cases.values():
        case()
    frozen.freeze()
    frozen_too.freeze()
    stopped.stop()
    until = time.monotonic() + NOTICED
    while time.monotonic() < until:
        for case in cases.values():
            case()
    samples = report.turns(cases, int(run.times(50, 8)), CALLS)
    frozen.thaw()
    frozen_too.thaw()
    section.add_samples(
        samples,
        basis=lambda case: case.split(",")[0],
        targets={name: targets.MINORITY for name in cases if "," in name},
    )


def first_second(run, servers):
    """One of three hangs, and nobody has noticed yet."""
    section = run.section("Take and let go, in the second after one of three begins to hang")
    well, hanging = "3 addresses", "3 addresses, 1 hanging"
    a, b, c, frozen = servers[1:5]
    samples = {well: [], hanging: []}
    for number in range(12):
        if number >= run.times(4, 1) and len(samples[well]) >= 100:
            break  # enough for a 99th percentile, on a slow machine too
        cases = {
            well: on(a, b, c, group=f"well-{number}"),
            hanging: on(a, b, frozen, group=f"hanging-{number}"),
        }
        for case, _ in itertools.product(cases.values(), range(20)):
            case()
        frozen.freeze()
        until = time.monotonic() + 0.9
        while time.monotonic() < until:
            for name, found in report.turns(cases, 1, CALLS, warm=0).items():
                samples[name] += found
        frozen.thaw()
    section.add_samples(samples, basis=well, targets={hanging: targets.MINORITY})


if __name__ == "__main__":
    report.main(measure, __doc__)

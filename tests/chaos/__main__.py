"""
A fleet of real workers and beats under faults, and whether everything held that is promised.

    make chaos                            # two minutes: one over one arbiter, one over three
    make chaos MINUTES=10 SEED=7
    make chaos SERVERS=3                  # over three arbiters only
    make chaos BROKEN=fence               # a broken build, in a play that lets it do wrong
    make chaos BROKER=rabbitmq            # the timelines are build/chaos-1.svg and chaos-3.svg

Exits with 0 if nothing was violated, with 1 if something was.
"""

import argparse
import random
import signal
import sys
import time
from pathlib import Path

from chaos import broken, report
from chaos.checker import judge
from chaos.directed import direct
from chaos.play import play
from chaos.plot import draw


def main():
    """Do as the command line says; the exit code."""
    options = parse()
    # A run that is cut off by its surroundings leaves nothing behind either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return convict(options.broken) if options.broken else storm(options)


def convict(build):
    """The play in which that broken *build* does wrong."""
    began = time.monotonic()
    evidence = direct(build, build=build)
    violations = judge(evidence)
    print(report.text(evidence, violations, time.monotonic() - began))
    return 1 if violations else 0


def storm(options):
    """Faults over one and over three arbiters."""
    print(f"seed {options.seed}, {options.minutes:g} minutes", flush=True)
    found = 0
    halves = [1, 3] if options.servers == "both" else [int(options.servers)]
    for servers in halves:
        print(f"\nThe fleet over {servers} arbiter{'s' * (servers > 1)}", flush=True)
        began = time.monotonic()
        evidence, violations = play(
            servers,
            f"{options.seed}/{servers}",
            options.minutes * 60 / len(halves),
            lambda line: print(line, flush=True),
            broker=options.broker,
            keep=options.keep,
        )
        found += len(violations)
        print(report.text(evidence, violations, time.monotonic() - began))
        if options.plot:
            path = Path(options.plot) / f"chaos-{servers}.svg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(draw(evidence, violations))
            print(f"The timeline is in {path}")
    again = f"make chaos MINUTES={options.minutes:g} SEED={options.seed}"
    again += "" if options.servers == "both" else f" SERVERS={options.servers}"
    again += "" if options.broker == "redis" else f" BROKER={options.broker}"
    print(f"\nThe same faults again: {again}")
    return 1 if found else 0


def parse():
    parser = argparse.ArgumentParser(
        prog="chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="of storm and calm, in all")
    parser.add_argument("--seed", type=int, help="decides the faults; by chance if it is not given")
    parser.add_argument("--servers", choices=("1", "3", "both"), default="both")
    parser.add_argument("--broker", choices=("redis", "rabbitmq"), default="redis")
    parser.add_argument("--broken", choices=("", *broken.BUILDS), default="")
    parser.add_argument("--plot", default="build", help="directory of the timelines; empty: none")
    parser.add_argument("--keep", action="store_true", help="the logs and journals of the fleet")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.randrange(10**6)
    return options


if __name__ == "__main__":
    sys.exit(main())

"""
Many histories, for as long as it takes: ``python tests/simulation/soak.py --histories 1000000``.

Half of them are random, half are bred towards a conflict. Ends with 1 at the first history in which
a slot had two owners or a group that was left alone did not settle, and says how to repeat it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from simulation.histories import breed, random_history
from simulation.membership_world import World

PORTION = 1000


def portion(first: int) -> tuple[int, str | None]:
    """Run the histories that belong to the seeds from *first* on; what was wrong with one."""
    for seed in range(first, first + PORTION):
        world = World(random_history(seed)).run()
        if world.conflicts():
            return seed, f"World(random_history({seed})) has {world.conflicts()[0]}"
        if wrong := world.unsettled():
            return seed, f"World(random_history({seed})) is not settled: {wrong}"
    closest, history, _ = breed(first, PORTION)
    if closest < 0:
        return first, f"breed({first}, {PORTION}) found {history!r}"
    return first, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()) * PORTION)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args()
    began = time.monotonic()
    firsts = range(options.seed, options.seed + max(PORTION, options.histories // 2), PORTION)
    print(f"seeds from {options.seed}", flush=True)
    with multiprocessing.Pool(options.jobs) as pool:
        for done, (_, wrong) in enumerate(pool.imap_unordered(portion, firsts), 1):
            if wrong:
                print(f"\nFAILED {wrong}")
                return 1
            seconds = time.monotonic() - began
            count = done * PORTION * 2
            print(f"\r{count} histories, {count / seconds:.0f} a second", end="", flush=True)
    print("\nno slot had two owners, every group that was left alone settled")
    return 0


if __name__ == "__main__":
    sys.exit(main())

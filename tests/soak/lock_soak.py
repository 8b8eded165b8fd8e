"""
Locks under everything at once: processes that are killed and frozen, links that are cut, servers
that die and come back empty, and a table that refuses the writes of a smaller fence.

    python tests/soak/lock_soak.py --servers 3 --minutes 10

Every process writes down, on the clock that all of them share, when its lease was seen to live. The
checks read that afterwards: no two leases of a key lived at the same time, fences grew, the table
took no late write, and the servers keep nothing that does not run out.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.table import Table
from support.proxy import Proxy

from celery_atomicity import LockTimeout, clock, keys
from celery_atomicity.atom import Atom
from celery_atomicity.settings import Settings
from celery_atomicity.testing import Server, dies_with_us, wait_until

GROUP = "soak"
TTL = 1.0
LONGER = 60.0
NAMES = (("a",), ("a",), ("b",), ("a", "b"), ("b", "a"))


def work(options):
    """What each process does until it is killed."""
    atom = Atom(GROUP, settings=Settings.read(options["settings"], {}))
    table = Table(options["table"])
    chance = random.Random(os.getpid())
    with Path(options["log"]).open("a", buffering=1) as log:

        def note(*what):
            log.write(json.dumps(what) + "\n")

        while True:
            names = chance.choice(NAMES)
            wait = chance.choice((0.0, 0.5, 5.0, None))
            try:
                lease = atom.lock(names, ttl=TTL, wait=wait).acquire()
            except LockTimeout:
                note("timeout")
                clock.sleep(chance.random() * 0.05)
                continue
            note("given", names, lease.fence)
            ends = clock.monotonic() + chance.choice((0.0, 0.0, 0.02, 0.1, 1.5)) * chance.random()
            while True:
                now = clock.monotonic()
                if lease.lost:
                    note("lost", names, lease.fence)
                    break
                note("lives", names, lease.fence, now)
                for name in names:
                    # Somebody may freeze us right here: then the table has to refuse.
                    if not table.write(name, lease.fence):
                        note("refused", name, lease.fence, lease.lost)
                if now >= ends:
                    break
                clock.sleep(0.01)
            lease.release()


class Soak:
    def __init__(self, servers, processes, seed):
        self.chance = random.Random(seed)
        self.directory = Path(tempfile.mkdtemp(prefix="lock-soak-"))
        self.servers = [Server() for _ in range(servers)]
        for server in self.servers:
            server.start()
        self.proxies = [Proxy(server.port) for server in self.servers]
        self.table = Table(self.directory / "table")
        self.table.create("ab")
        self.settings = {
            "atomicity_redis": [proxy.url for proxy in self.proxies],
            "atomicity_timeout": 0.3,
            "atomicity_lock_ttl": TTL,
        }
        self.started = 0
        self.workers = [self.spawn() for _ in range(processes)]
        self.done = Counter()
        self.endless = set()
        self.frozen = set()
        self.later = []

    def spawn(self):
        self.started += 1
        options = {
            "settings": self.settings,
            "table": str(self.directory / "table"),
            "log": str(self.directory / f"log-{self.started}"),
        }
        with (self.directory / "errors").open("ab") as errors:
            return subprocess.Popen(
                [*dies_with_us(), sys.executable, __file__, "--work", json.dumps(options)],
                stderr=errors,
            )

    def run(self, seconds, leases):
        """Make trouble for *seconds*, and longer if so many *leases* were not given by then."""
        wait_until(
            lambda: len(list(self.directory.glob("log-*"))) == self.started, 60, "all have begun"
        )
        ends = clock.monotonic() + seconds
        pause = threading.Event()
        while (now := clock.monotonic()) < ends or self.read()[0]["given"] < leases:
            assert now < ends + LONGER, f"fewer than {leases} leases were given"
            self.trouble()
            for entry in [entry for entry in self.later if entry[0] <= now]:
                self.later.remove(entry)
                entry[1]()
            self.look()
            pause.wait(self.chance.random() * 0.8)
        for _, undo in self.later:
            undo()
        self.later = []

    def trouble(self):
        now = clock.monotonic()
        kind = self.chance.choice(
            ("kill", "freeze", "freeze", "cut", "hang", "delay", "drop", "restart", "stop", "calm")
        )
        which = self.chance.randrange(len(self.servers))
        server, proxy = self.servers[which], self.proxies[which]
        number = self.chance.randrange(len(self.workers))
        worker = self.workers[number]
        self.done[kind] += 1
        if kind == "kill":
            worker.kill()
            worker.wait()
            self.workers[number] = self.spawn()
        elif kind == "freeze":
            worker.send_signal(signal.SIGSTOP)
            length = self.chance.random() ** 2 * 3
            self.later.append((now + length, lambda: worker.send_signal(signal.SIGCONT)))
        elif kind in ("cut", "hang", "delay"):
            arguments = (self.chance.random() * 0.4,) if kind == "delay" else ()
            getattr(proxy, kind)(*arguments)
            self.later.append((now + self.chance.random() * 1.2, proxy.heal))
        elif kind == "drop":
            proxy.drop_answers(self.chance.randint(1, 5))
        elif kind == "restart" and self.chance.random() < 0.5:
            self.frozen.discard(which)
            server.kill()
            if self.chance.random() < 0.5:
                threading.Event().wait(self.chance.random() * 0.5)
            server.restart()
        elif kind == "stop" and which not in self.frozen:
            server.freeze()
            self.frozen.add(which)
            self.later.append((now + self.chance.random(), lambda: self.thaw(which)))

    def thaw(self, which):
        self.frozen.discard(which)
        self.servers[which].thaw()

    def look(self):
        """Keys without a ttl, on the servers that answer."""
        for server in self.servers:
            with contextlib.suppress(OSError):
                for key in server.cli("KEYS", "atom:*", timeout=0.2):
                    stays = key in (keys.MARKER, keys.fence_key(GROUP))
                    if not stays and server.cli("PTTL", key, timeout=0.2) == -1:
                        self.endless.add(key)

    def close(self):
        for worker in self.workers:
            worker.kill()
            worker.wait()

    def leftovers(self):
        kept = (keys.MARKER, keys.fence_key(GROUP))
        return [
            key for server in self.servers for key in server.cli("KEYS", "*") if key not in kept
        ]

    def read(self):
        """What the processes wrote: how often what, and for each lease when it was seen to live."""
        events = Counter()
        lives = {}
        for path in self.directory.glob("log-*"):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):  # cut off by a kill
                    what, *rest = json.loads(line)
                    events[what] += 1
                    if what == "lives":
                        names, fence, at = rest
                        for name in names:
                            first, last = lives.get((name, fence), (at, at))
                            lives[name, fence] = (min(first, at), max(last, at))
        return events, lives

    def report(self):
        """Figures, and what is wrong."""
        complaints = []
        events, lives = self.read()
        for name in "ab":
            spans = sorted((*span, fence) for (key, fence), span in lives.items() if key == name)
            for (_, ended, fence), (began, _, later) in pairwise(spans):
                if began < ended:
                    complaints.append(f"{name}: {later} lived from {began}, {fence} to {ended}")
                if later <= fence:
                    complaints.append(f"{name}: fence {later} came after {fence}")
        written = self.table.writes()
        for name in "ab":
            fences = [fence for key, fence, *_ in written if key == name]
            if fences != sorted(fences):
                complaints.append(f"{name}: a late write was taken")
        if self.endless:
            complaints.append(f"without a ttl: {self.endless}")
        errors = (self.directory / "errors").read_text()
        if "Traceback" in errors:
            complaints.append(errors[errors.index("Traceback") :][:3000])
        figures = {
            "leases": events["given"],
            "timeouts": events["timeout"],
            "lost": events["lost"],
            "refused writes": events["refused"],
            "writes": len(written),
            "processes": self.started,
            "troubles": dict(self.done),
        }
        return figures, complaints


def soak(servers, processes, seconds, seed=None, leases=0):
    """Run it, until *leases* were given; what came of it, and what is wrong."""
    seed = random.randrange(10**6) if seed is None else seed
    it = Soak(servers, processes, seed)
    try:
        it.run(seconds, leases)
        it.close()
        ended = clock.monotonic()
        figures, complaints = it.report()
        try:
            lock_keys = lambda: [key for key in it.leftovers() if ":lock:" in key]
            wait_until(lambda: not lock_keys(), TTL + 1, "the last keys have run out")
            figures["locks gone after"] = round(clock.monotonic() - ended, 2)
            wait_until(lambda: not it.leftovers(), 10, "the last lines have run out")
        except AssertionError as error:
            complaints.append(f"{error}: {it.leftovers()}")
        return {"seed": seed, **figures}, complaints
    finally:
        it.close()
        for proxy in it.proxies:
            proxy.close()
        for server in it.servers:
            server.close()
        it.table.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    if arguments.work:
        work(json.loads(arguments.work))
    found, wrong = soak(
        arguments.servers, arguments.processes, 60 * arguments.minutes, arguments.seed
    )
    print(json.dumps(found, indent=1))
    print("\n".join(wrong) or "nothing is wrong")
    sys.exit(bool(wrong))

"""
Processes that share locks over 1, 3 or 5 servers, in virtual time.

The code under test is the real one, *Acquisition*, *Keeper* and *Holding* with the rules they use;
it runs in greenlets, one for each thread of a process. What they stand on is played here: clocks,
threads, the network, the servers. A connection keeps the order of what is sent on it; two
connections of one process keep none. What has been sent may arrive long after its sender gave up.
"""

from __future__ import annotations

import heapq
import random as chance
from dataclasses import dataclass, field
from itertools import count

import greenlet

from celery_atomicity import keys
from celery_atomicity.errors import LockTimeout
from celery_atomicity.primitives import acquisition, holding, keeper
from celery_atomicity.settings import Settings
from simulation.lock_network import USED, Clients, Mailbox, Server
from simulation.lock_store import Store
from simulation.lock_time import EPOCH, played

GROUP = "simulated"


@dataclass
class Use:
    """One use of a lock by a process: when, of what, how long it waits and holds."""

    at: float
    names: tuple[str, ...]
    wait: float | None
    hold: float
    ttl: float = 1.0
    min_hold: float | None = None
    max_hold: float | None = None


@dataclass
class History:
    """
    What happens.

    Attributes:
        uses: Of each process, one after the other.
        events: (when, kind, index of process or server, size).
        faults: How likely a message meets: request lost, answer lost, slow, doubled.
        latency: Seconds of a message, up to twice.
        slow: Seconds that a slow message takes at the most.
        stutter: How likely a thread is held up where it reads the clock, and for how long.
        drift: How much faster each process's clock runs than the servers'.
        skew: How much ahead each server's clock is, seconds.
    """

    servers: int
    uses: list[list[Use]]
    events: list[tuple[float, str, int, float]] = field(default_factory=list)
    faults: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    latency: float = 0.001
    slow: float = 1.0
    stutter: tuple[float, float] = (0.0, 0.0)
    drift: list[float] = field(default_factory=list)
    skew: list[float] = field(default_factory=list)
    timeout: float = 0.25
    grace: float | None = None
    lock_ttl: float | None = None
    until: float = 8.0
    seed: int = 0


class Task:
    """One thread of a process."""

    __slots__ = ("greenlet", "process", "token")

    def __init__(self, process, target, args=()):
        self.process = process
        self.greenlet = greenlet.greenlet(target, process.world.hub)
        self.token = 0
        process.world.tasks[self.greenlet] = self


class Process:
    def __init__(self, world, index):
        self.world, self.index = world, index
        drift = world.history.drift
        self.rate = 1.0 + (drift[index] if index < len(drift) else 0.0)
        self.frozen_until = 0.0
        self.dead = False
        self.clients = Clients(self, world.settings)
        self.mailbox = Mailbox(self, f"mail-{index}")
        self.keeper = None
        world.by_channel[self.mailbox.channel] = self

    def clock(self):
        return (EPOCH + self.world.now) * self.rate if self.rate != 1.0 else self.world.now + EPOCH


class World:
    """Runs one history; *complaints* says what went wrong."""

    def __init__(self, history):
        self.history = history
        self.chance = chance.Random(history.seed)
        self.now = 0.0
        self.heap = []
        self.ticket = count()
        self.over = False
        self.tasks = {}
        self.by_channel = {}
        self.complaints = []
        self.grants = []  # (when asked, when given, names, fence)
        self.held = {}  # name -> [(process, holding)]
        self.waited = []
        self.timeouts = 0
        self.asked = 0
        self.settings = Settings.read(
            {
                "atomicity_redis": [f"redis://server{i}" for i in range(history.servers)],
                "atomicity_timeout": history.timeout,
                "atomicity_lock_ttl": history.lock_ttl
                or max(1.0, *(u.ttl for us in history.uses for u in us), 1.0),
                "atomicity_restart_grace": history.grace,
            },
            {},
        )
        skew = history.skew
        self.servers = [
            Server(self, i, skew[i] if i < len(skew) else 0.0) for i in range(history.servers)
        ]
        for server in self.servers:
            server.store.data[keys.MARKER] = {
                "run": server.run,
                "since": str(server.now_us() // 1000 - int(USED * 1000)),
            }
            server.store.data[keys.fence_key(GROUP)] = str(int((EPOCH - USED) * 1e6))
        self.processes = [Process(self, i) for i in range(len(history.uses))]

    # -- time -----------------------------------------------------------------------------------

    def at(self, when, process, function, *args):
        heapq.heappush(self.heap, (when, next(self.ticket), process, function, args))

    def later(self, seconds, process, function, *args):
        self.at(self.now + seconds, process, function, *args)

    def latency(self):
        return self.history.latency * (0.2 + self.chance.random())

    def current(self):
        return self.tasks.get(greenlet.getcurrent())

    def spawn(self, process, target, *args):
        task = Task(process, target)
        self.later(0.0, process, task.greenlet.switch, *args)
        return task

    def block(self, seconds):
        """Park the running thread until it is woken, at most *seconds* (None: for good)."""
        if self.over:
            raise greenlet.GreenletExit
        task = self.current()
        task.token += 1
        if seconds is not None:
            self.later(max(0.0, seconds), task.process, self._resume, task, task.token)
        self.hub.switch()
        if self.over:
            raise greenlet.GreenletExit

    def wake(self, task):
        self.later(0.0, task.process, self._resume, task, task.token)

    def _resume(self, task, token):
        if task.token == token and not task.greenlet.dead:
            task.token += 1
            task.greenlet.switch()

    def run(self):
        self.hub = greenlet.getcurrent()
        with played(self):
            for process in self.processes:
                process.keeper = keeper.Keeper(process.clients)
                self.spawn(process, self._live, process)
            for when, kind, who, size in self.history.events:
                self.at(when, None, self._befall, kind, who, size)
            heap, until = self.heap, self.history.until
            while heap and heap[0][0] <= until:
                self.now, _, process, function, args = heapq.heappop(heap)
                if process is not None:
                    if process.dead:
                        continue
                    if process.frozen_until > self.now:
                        self.at(process.frozen_until, process, function, *args)
                        continue
                function(*args)
                self._look()
            self.over = True
            for task in list(self.tasks.values()):
                if task.greenlet and not task.greenlet.dead:
                    task.greenlet.throw(greenlet.GreenletExit)
        return self

    # -- what processes do ----------------------------------------------------------------------

    def _live(self, process):
        for use in self.history.uses[process.index]:
            if self.now < use.at:
                self.block(use.at - self.now)
            self._use(process, use)

    def _use(self, process, use):
        terms = terms_of(use, self.settings)
        asking = acquisition.Acquisition(process.clients, process.mailbox, terms)
        began = self.now

        def keep(granted):
            self._given(process, granted)
            return process.keeper.keep(granted)

        try:
            granted = asking.run(use.wait, keep)._holding
        except LockTimeout:
            self.timeouts += 1
            return
        self.waited.append((self.now - began, use))
        ends = self.now + use.hold
        seen_lost = False
        while self.now < ends:
            # Looked at now and then, and at the first moment at which it has to be lost.
            left = granted.deadline / process.rate - EPOCH - self.now
            self.block(min(0.4, ends - self.now, left + 1e-6 if left > 0 else 0.4))
            is_lost = granted.lost()
            if seen_lost and not is_lost:
                self.complaints.append("LOCK-05: a lost lease was revived")
            seen_lost = is_lost
        process.keeper.release(granted)

    def _given(self, process, granted):
        now = self.now
        if process.clock() >= granted.deadline:
            return  # held up until it was over; it says so to whoever gets it
        asked = granted.asked / process.rate - EPOCH
        fence = granted.fence
        for given, names, other in self.grants:
            if other == fence:
                self.complaints.append(f"LOCK-02: fence {fence} was given twice")
            if other > fence and (
                given < asked - 1e-6 or not set(names).isdisjoint(granted.terms.keys)
            ):
                self.complaints.append(f"LOCK-02: fence {fence} was given after {other}")
        self.grants.append((now, granted.terms.keys, fence))
        for name in granted.terms.keys:
            self.held.setdefault(name, []).append((process, granted))

    def _look(self):
        """LOCK-01, at every moment at which something happens."""
        for name, those in self.held.items():
            if len(those) > 1:
                live = [
                    (process, one)
                    for process, one in those
                    if not one.released and not one._failure and not process.dead
                ]
                if len(live) < len(those):
                    self.held[name] = live
                    self._look()
                    return
                if sum(process.clock() < one.deadline for process, one in live) > 1:
                    self.complaints.append(f"LOCK-01: two hold {name} at {self.now:.4f}")

    # -- what befalls them ----------------------------------------------------------------------

    def _befall(self, kind, who, size):
        if kind == "freeze":
            process = self.processes[who % len(self.processes)]
            process.frozen_until = max(process.frozen_until, self.now + size)
        elif kind == "die":
            self.processes[who % len(self.processes)].dead = True
        elif kind == "cut":
            # Nothing that it sends arrives, and nothing that is sent to it.
            self.processes[who % len(self.processes)].clients.cut(size)
        elif kind == "blip":
            process = self.processes[who % len(self.processes)]
            process.mailbox.subscribed = False
            self.later(size, process, process.mailbox.resubscribe)
        else:
            self._befall_server(kind, self.servers[who % len(self.servers)], size)

    def _befall_server(self, kind, server, size):
        if kind == "step":
            server.skew += size
        elif kind == "copy":
            server.copies.append(server.store.copy())
        elif not server.up:
            pass
        elif kind == "failover":
            # To a copy that lags behind by the time since the last "copy", or not at all.
            store = server.copies[-1].copy() if server.copies else server.store
            server.down()
            self.later(size, None, server.back, store)
        elif kind == "promote":
            # A replica that lags behind in nothing takes over; the old master becomes its replica.
            server.down(silences=False)
            self.later(size, None, lambda: server.back(server.store, silenced=False))
        elif kind in ("restart", "wipe"):
            server.down()
            self.later(size, None, server.back, server.store if kind == "restart" else Store())
        elif kind == "stall":
            # Cut off from everybody for a while: connections break, data stay.
            run = server.run
            server.down()
            self.later(size, None, self._reconnected, server, run)

    def _reconnected(self, server, run):
        started = server.started
        server.back(server.store)
        server.run, server.started = run, started

    def leftovers(self):
        """What is left on the servers of locks and lines, now."""
        kept = (keys.MARKER, keys.fence_key(GROUP))
        found = []
        for server in self.servers:
            server.store.expire(server.now_us() // 1000)
            found += [key for key in server.store.data if key not in kept]
        return found


def terms_of(use, settings):
    return holding.Terms(
        group=GROUP,
        keys=use.names,
        places=keys.lock_places(GROUP, use.names),
        holder="a process",
        ttl=use.ttl,
        grace=settings.grace_of(use.ttl),
        min_hold=use.min_hold,
        max_hold=use.max_hold,
    )

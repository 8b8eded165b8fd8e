"""
Processes that share locks over 1, 3 or 5 servers, in virtual time.

The code under test is the real one, *Acquisition*, *Keeper* and *Holding* with the rules they use;
it runs in greenlets, one for each thread of a process. What they stand on is played here: clocks,
threads, the network, the servers. A connection keeps the order of what is sent on it; two
connections of one process keep none. What has been sent may arrive long after its sender gave up.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import math
import random as chance
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from unittest import mock

import greenlet

from celery_atomicity import clock, keys
from celery_atomicity.connection import Reply
from celery_atomicity.connection.exchange import HELLO
from celery_atomicity.connection.question import PATIENCE
from celery_atomicity.errors import LockTimeout, Unavailable
from celery_atomicity.primitives import acquisition, holding, lease
from celery_atomicity.settings import Settings
from simulation.lock_store import SCRIPTS, Store

GROUP = "simulated"
EPOCH = 1_700_000_000.0
# The group has been in use for an hour when a history begins.
USED = 3600.0


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


class Server:
    def __init__(self, world, index, skew):
        self.world, self.index, self.skew = world, index, skew
        self.store = Store()
        self.copies = []
        self.up = True
        self.links = set()
        self.run = f"run-{index}-0"
        self.runs = count(1)
        self.started = -USED

    def now_us(self):
        return int((EPOCH + self.world.now + self.skew) * 1e6)

    def execute(self, name, names, arguments):
        return SCRIPTS[name](self.store, self.now_us(), names, list(arguments), self.publish)

    def publish(self, channel, ticket):
        process = self.world.by_channel.get(channel)
        if process is None or process.dead or not process.mailbox.subscribed:
            return 0
        self.world.later(self.world.latency(), process, process.mailbox.ring, ticket)
        return 1

    def down(self):
        self.up = False
        for link in list(self.links):
            link.broken = True
            process = link.process
            self.world.later(self.world.latency(), process, process.clients.reset, link)
        self.links.clear()
        if self.index == 0:
            for process in self.world.processes:
                process.mailbox.subscribed = False

    def back(self, store):
        self.store = store
        self.run = f"run-{self.index}-{next(self.runs)}"
        self.started = self.world.now
        self.up = True
        if self.index == 0:
            for process in self.world.processes:
                self.world.later(0.01, process, process.mailbox.resubscribe)

    def uptime(self):
        """As INFO tells it: the difference of two whole seconds."""
        base = EPOCH + self.skew
        return math.floor(base + self.world.now) - math.floor(base + self.started)


class Link:
    """A connection: what is sent on it arrives in order, or not at all any more."""

    __slots__ = ("answered", "arrived", "broken", "deaf", "pending", "process", "server")

    def __init__(self, process, server):
        self.process, self.server = process, server
        self.broken = False  # nothing of it reaches the server any more
        self.deaf = False  # nothing of it reaches the client any more
        self.arrived = self.answered = 0.0
        self.pending = []


class Question:
    def __init__(self, task, width, decided, sent, deadline, enough=None):
        self.task, self.decided, self.sent, self.deadline = task, decided, sent, deadline
        self.enough = enough
        self.replies = [None] * width
        self.missing = width
        self.done = False

    def answer(self, world, index, value, run):
        if self.done or self.replies[index] is not None:
            return
        process = self.task.process
        self.replies[index] = Reply(value, self.sent, process.clock(), run)
        self.missing -= 1
        if not self.missing or (self.decided and self.decided(self.replies)):
            self.finish(world)
        elif self.enough and self.enough(self.replies):
            self.enough = None
            world.later(PATIENCE, process, self.finish, world)

    def finish(self, world):
        if not self.done:
            self.done = True
            world.wake(self.task)


class Clients:
    """What the connections of a process do, as far as those who ask can tell."""

    def __init__(self, process, settings):
        self.process, self.world = process, process.world
        self.settings = settings
        self.links = [None] * self.count
        self.connecting = [False] * self.count
        self.failed = [False] * self.count
        self.owed = [[] for _ in range(self.count)]
        self.retry_at = [0.0] * self.count
        self.pauses = [0.02] * self.count
        self.waiters = []
        self.cut_until = 0.0

    @property
    def count(self):
        return len(self.world.servers)

    def ask(self, script, names, arguments):
        self._connect([0], 1)
        question = self._question(1, None)
        self._send(0, question, [(0, (script, names, arguments))])
        self._await(question)
        [reply] = question.replies
        if isinstance(reply.value, Exception):
            raise Unavailable("not served")
        return reply

    def ask_each(self, calls, *, decided, enough=None):
        self._connect(range(self.count), self.count // 2 + 1)
        width = len(calls[0])
        question = self._question(self.count * width, decided, enough)
        for address, its in enumerate(calls):
            self._send(
                address, question, [(address * width + i, call) for i, call in enumerate(its)]
            )
        if not question.done and decided(question.replies):
            question.done = True
        self._await(question)
        return list(question.replies)

    def _question(self, width, decided, enough=None):
        sent = self.process.clock()
        return Question(
            self.world.current(),
            width,
            decided,
            sent,
            self.world.now + self.settings.timeout,
            enough,
        )

    def _connect(self, addresses, needed):
        world = self.world
        for address in addresses:
            if (
                self.links[address] is None
                and not self.connecting[address]
                and world.now >= self.retry_at[address]
            ):
                self.connecting[address] = True
                world.later(world.latency(), self.process, self._reach, address)
        deadline = world.now + self.settings.timeout
        while (
            world.now < deadline
            and sum(self.links[one] is not None for one in addresses) < needed
            and any(self.connecting[one] for one in addresses)
        ):
            self.waiters.append(world.current())
            world.block(deadline - world.now)
        deadline = world.now + HELLO
        while world.now < deadline and any(
            self.connecting[one] and not self.failed[one] for one in addresses
        ):
            self.waiters.append(world.current())
            world.block(deadline - world.now)

    def _reach(self, address):
        """The connection stands or is refused; the server is asked for its run, and told of ours."""
        world, server = self.world, self.world.servers[address]
        if server.up and self.cut_until <= world.now:
            uptime = max(0, server.uptime() - 1) * 1000
            grace = round(self.settings.grace * 1000)
            server.execute("arrive", [keys.MARKER], [server.run, uptime, grace])
            link = Link(self.process, server)
            server.links.add(link)
            world.later(world.latency(), self.process, self._reached, address, link, server.run)
        else:
            world.later(world.latency(), self.process, self._refused, address)

    def _reached(self, address, link, run):
        self.connecting[address] = False
        if link.broken:
            self._refused(address)
            return
        self.links[address] = link
        self.failed[address] = False
        owed, self.owed[address] = self.owed[address], []
        if owed:
            done = Question(None, len(owed), None, 0.0, self.world.now + self.settings.timeout)
            done.done = True
            self._send(address, done, list(enumerate(owed)))
        self.pauses[address] = 0.02
        self._wake()

    def _refused(self, address):
        self.connecting[address] = False
        self.failed[address] = True
        self.retry_at[address] = self.world.now + self.pauses[address]
        self.pauses[address] = min(0.5, 2 * self.pauses[address])
        self._wake()

    def _wake(self):
        waiters, self.waiters = self.waiters, []
        for task in waiters:
            self.world.wake(task)

    def _send(self, address, question, calls):
        world, link = self.world, self.links[address]
        if link is None:
            self.owed[address] += [call for _, call in calls if call[0]._late]
            for index, _ in calls:
                question.answer(world, index, ConnectionError("down"), "")
            return
        lost, unheard, slow, doubled = world.history.faults
        dice = world.chance.random()
        delay = world.latency()
        link.pending.append((question, calls))
        if dice < lost:
            link.broken = link.deaf = True  # it and all that follows is lost
        elif dice < lost + unheard:
            link.deaf = True
        elif dice < lost + unheard + slow:
            delay += world.chance.random() * world.history.slow
        link.arrived = max(link.arrived, world.now + delay)
        if not link.broken:
            world.at(link.arrived, None, self._serve, link, question, calls, True)
            if dice > 1 - doubled:
                late = link.arrived + world.chance.random() * world.history.slow
                world.at(late, None, self._serve, link, question, calls, False)

    def _serve(self, link, question, calls, is_first):
        world, server = self.world, link.server
        if link.broken or not server.up:
            return
        answers = [
            (index, server.execute(script.name, names, arguments))
            for index, (script, names, arguments) in calls
        ]
        if is_first and not link.deaf:
            delay = world.latency()
            if world.chance.random() < world.history.faults[2]:
                delay += world.chance.random() * world.history.slow
            link.answered = max(link.answered, world.now + delay)
            world.at(
                link.answered, self.process, self._answered, link, question, answers, server.run
            )

    def _answered(self, link, question, answers, run):
        if link not in self.links or link.deaf:
            return
        link.pending.pop(0)
        for index, value in answers:
            question.answer(self.world, index, _wire(value), run)

    def _await(self, question):
        world = self.world
        while not question.done:
            left = question.deadline - world.now
            if left <= 0:
                for link in list(self.links):
                    if (
                        link is not None
                        and link.pending
                        and link.pending[0][0].deadline <= world.now
                    ):
                        self._drop(link, TimeoutError("no answer"))
                for index, reply in enumerate(question.replies):
                    if reply is None:
                        question.answer(world, index, TimeoutError("no answer"), "")
                return
            world.block(left)
        # A link whose oldest question is overdue is given up when next somebody asks.
        for link in list(self.links):
            if link is not None and link.pending and link.pending[0][0].deadline < world.now:
                self._drop(link, TimeoutError("no answer"))

    def cut(self, seconds):
        self.cut_until = self.world.now + seconds
        for link in self.links:
            if link is not None:
                link.broken = link.deaf = True

    def reset(self, link):
        if link in self.links:
            self._drop(link, ConnectionError("reset"))

    def _drop(self, link, error):
        address = link.server.index
        self.links[address] = None
        self.failed[address] = True
        self.retry_at[address] = self.world.now + self.pauses[address]
        pending, link.pending = link.pending, []
        for question, calls in pending:
            self.owed[address] += [call for _, call in calls if call[0]._late]
            for index, _ in calls:
                question.answer(self.world, index, error, "")


def _wire(value):
    if isinstance(value, list):
        return [each.encode() if isinstance(each, str) else each for each in value]
    return value


class Event:
    def __init__(self):
        self.is_set = False
        self.tasks = []

    def set(self):
        self.is_set = True
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.process.world.wake(task)

    def clear(self):
        self.is_set = False


class Mailbox:
    def __init__(self, process, channel):
        self.process, self.channel = process, channel
        self.waiting = {}
        self.subscribed = True

    def expect(self, ticket):
        if not self.subscribed:
            return None
        event = self.waiting[ticket] = Event()
        return event

    def forget(self, ticket):
        self.waiting.pop(ticket, None)

    def ring(self, ticket):
        if ticket in self.waiting:
            self.waiting[ticket].set()

    def resubscribe(self):
        self.subscribed = self.process.world.servers[0].up
        for event in list(self.waiting.values()):
            event.set()


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
                "atomicity_lock_ttl": max(1.0, *(u.ttl for us in history.uses for u in us), 1.0),
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
                process.keeper = lease.Keeper(process.clients)
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
        asked = granted.granted / process.rate - EPOCH
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
            self.processes[who % len(self.processes)].mailbox.subscribed = False
            process = self.processes[who % len(self.processes)]
            self.later(size, process, process.mailbox.resubscribe)
        else:
            server = self.servers[who % len(self.servers)]
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
        places=tuple(
            place
            for name in use.names
            for place in (
                keys.lock_key(GROUP, name),
                keys.line_key(GROUP, name),
                keys.seen_key(GROUP, name),
            )
        ),
        holder="a process",
        ttl=use.ttl,
        grace=settings.grace_of(use.ttl),
        min_hold=use.min_hold,
        max_hold=use.max_hold,
    )


# -- clocks and threads -------------------------------------------------------------------------


class _Threads:
    """As much of *threading* as the keeper needs, in virtual time."""

    def __init__(self, world):
        self.world = world

    def Lock(self):
        return _Lock(self.world)

    def Condition(self, lock):
        return _Condition(self.world, lock)

    def Thread(self, target, args=(), name="", daemon=None):
        world, process = self.world, self.world.current().process

        class Thread:
            def start(self):
                self.task = world.spawn(process, target, *args)

            def is_alive(self):
                return not self.task.greenlet.dead

        return Thread()


class _Lock:
    def __init__(self, world):
        self.world, self.owner, self.queue = world, None, []

    def __enter__(self):
        while self.owner is not None and not self.world.over:
            self.queue.append(self.world.current())
            self.world.block(None)
        self.owner = self.world.current()

    def __exit__(self, *_):
        self.owner = None
        queue, self.queue = self.queue, []
        for task in queue:
            self.world.wake(task)


class _Condition:
    def __init__(self, world, lock):
        self.world, self.lock, self.queue = world, lock, []

    def wait(self, seconds=None):
        self.queue.append(self.world.current())
        self.lock.__exit__()
        try:
            self.world.block(seconds)
        finally:
            self.lock.__enter__()

    def wait_for(self, predicate, seconds):
        deadline = self.world.now + seconds
        while not predicate() and self.world.now < deadline:
            self.wait(deadline - self.world.now)
        return predicate()

    def notify_all(self):
        queue, self.queue = self.queue, []
        for task in queue:
            self.world.wake(task)


@contextlib.contextmanager
def played(world):
    """Put virtual time in place of the clocks, and greenlets in place of threads."""
    likely, longest = world.history.stutter
    dice = world.chance.random

    def monotonic():
        task = world.current()
        if task is None:
            return EPOCH + world.now
        reading = task.process.clock()
        if likely and not world.over and dice() < likely:
            world.block(dice() * longest)
        return reading

    def wait(event, seconds):
        if not event.is_set:
            event.tasks.append(world.current())
            world.block(seconds)
        return event.is_set

    fakes = SimpleNamespace(uniform=world.chance.uniform)
    hexes = SimpleNamespace(token_hex=lambda n: f"{world.chance.getrandbits(n * 8):0{2 * n}x}")
    logging.disable(logging.CRITICAL)
    try:
        with (
            mock.patch.multiple(
                clock,
                monotonic=monotonic,
                wait=wait,
                sleep=world.block,
                wall=lambda: EPOCH,
                utc=lambda _: "then",
            ),
            mock.patch.object(lease, "threading", _Threads(world)),
            mock.patch.object(lease, "_every", set()),
            mock.patch.object(acquisition, "random", fakes),
            mock.patch.object(acquisition, "secrets", hexes),
        ):
            yield
    finally:
        logging.disable(logging.NOTSET)

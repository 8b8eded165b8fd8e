"""
A fleet under limits in virtual time, one history at a run.

The tasks drive the real rules (``primitives/rate.py``) on a server that keeps what they say, and
sleep and judge lateness as the shell does (``primitives/rates.py``). All times are seconds since
the start of the history; the server's clock is the true one, in milliseconds. What befalls the
fleet: comebacks that are late, workers that are frozen, killed and replaced, messages that come
twice, answers that get lost, a server that is away or forgets, rates that change version by
version, and rates that are held back.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from random import Random

from celery_atomicity.primitives.debts import held_back
from celery_atomicity.primitives.limit import Limit
from celery_atomicity.primitives.rate import SHORT, SLEEP, Kind, Question, judge
from celery_atomicity.primitives.rates import LATE

AWAY = 0.5  # seconds after which one whom the server did not answer asks again, at the least

TOLERATED = LATE  # seconds; a test of the simulation takes it away
SURE = 9.0  # seconds
DOUBLES = 8  # messages of one history that come twice, at the most


@dataclass(slots=True)
class History:
    """
    Everything that a run depends on: the same history gives the same run.

    Args:
        limits: What a task of each kind asks for: kind -> limits.
        tasks: (when it arrives, its kind, how long it runs).
        workers, slots: How many, and how many tasks each runs at once.
        back: How late a comeback is at most.
        trip: How long a round trip takes at most; *jitter*: how late a sleeper wakes.
        busy: How long a slot is busy with a task before that asks.
        frozen: (from, for how long, which worker or None for all).
        killed: (when, which worker): its tasks come again after *visibility*, it is replaced.
        doubled: How likely a task that is given back comes twice.
        lost: How likely an answer is lost after it was given.
        away: (from, to) when the server does not answer.
        flushed: When the server forgets everything.
        changed: (when, factor of rate, factor of burst): each worker follows within *rollout*.
        held: (when, key's kind, seconds).
        longest: max_delay.
    """

    limits: dict[str, list[Limit]]
    tasks: list[tuple[float, str, float]]
    workers: int = 1
    slots: int = 4
    back: float = 0.0
    trip: float = 0.001
    jitter: float = 0.0
    busy: float = 0.0
    frozen: list[tuple[float, float, int | None]] = field(default_factory=list)
    killed: list[tuple[float, int]] = field(default_factory=list)
    visibility: float = 5.0
    doubled: float = 0.0
    lost: float = 0.0
    away: list[tuple[float, float]] = field(default_factory=list)
    flushed: list[float] = field(default_factory=list)
    changed: list[tuple[float, float, float]] = field(default_factory=list)
    rollout: float = 0.0
    held: list[tuple[float, str, float]] = field(default_factory=list)
    longest: float = 900.0
    seed: int = 0


@dataclass(slots=True)
class Message:
    """A task on its way; a copy has the same *name*."""

    name: int
    kind: str
    runs: float
    promises: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Worker:
    """One worker; *life* counts its replacements, so that what a dead one had begun is void."""

    free: int
    life: int = 0
    quickest: float = 0.0
    seen: dict[str, tuple[float, str]] = field(default_factory=dict)
    holding: dict[int, Message] = field(default_factory=dict)


class World:
    """
    One run.

    Attributes:
        starts: (when, key, cost) of each start under each key, in order.
        ran: How often each task ran.
        asked: How many questions there were.
        last: When the last start was.
        asleep: Under each key, what was charged and had not started when data were lost.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.chance = Random(history.seed)
        self.states: dict = {}
        self.workers = [Worker(history.slots) for _ in range(history.workers)]
        self.queue: deque[Message] = deque()
        self.starts: list[tuple[float, str, float]] = []
        self.ran: dict[int, int] = {}
        self.asked = 0
        self.last = 0.0
        self._events: list = []
        self._serial = count()
        self._tickets = count()
        self._now = 0.0
        self._doubles = DOUBLES
        self._sleeping: dict[int, list[Question]] = {}
        self.asleep: dict[str, float] = {}

    def run(self) -> World:
        history = self.history
        for name, (when, kind, runs) in enumerate(history.tasks):
            self.ran[name] = 0
            self._at(when, self._arrive, Message(name, kind, runs))
        for when, who in history.killed:
            self._at(when, self._kill, who % history.workers)
        for when in history.flushed:
            self._at(when, self._flush)
        for when, kind, seconds in history.held:
            self._at(when, self._hold, kind, seconds)
        events = self._events
        while events:
            self._now, _, action, arguments = heapq.heappop(events)
            action(*arguments)
        return self

    def limits(self, kind, worker=0):
        """What a task of *kind* asks for, in the version that this worker runs."""
        rate = burst = 1.0
        for when, by_rate, by_burst in self.history.changed:
            offset = (worker * 0.618) % 1.0 * self.history.rollout
            if self._now >= when + offset:
                rate, burst = by_rate, by_burst
        limits = self.history.limits[kind]
        if rate == burst == 1.0:
            return limits
        return [
            Limit(each.key, each.rate * rate, max(each.burst * burst, each.cost), each.cost)
            for each in limits
        ]

    def _at(self, when, action, *arguments):
        heapq.heappush(self._events, (when, next(self._serial), action, arguments))

    def _arrive(self, message):
        self.queue.append(message)
        self._serve()

    def _serve(self):
        while self.queue:
            ready = [i for i, worker in enumerate(self.workers) if worker.free > 0]
            if not ready:
                return
            who = ready[0] if len(ready) == 1 else ready[int(self.chance.random() * len(ready))]
            message = self.queue.popleft()
            worker = self.workers[who]
            worker.free -= 1
            ticket = next(self._tickets)
            worker.holding[ticket] = message
            begin = self._now + self.history.busy
            self._at(begin, self._ask, who, worker.life, ticket, message.promises)

    def _alive(self, who, life, again, *arguments):
        """Whether a step of this worker is to be taken now; a frozen one takes it later."""
        if self.workers[who].life != life:
            return False
        for since, length, which in self.history.frozen:
            if which in (None, who) and since <= self._now < since + length:
                self._at(since + length, again, who, life, *arguments)
                return False
        return True

    def _ask(self, who, life, ticket, promises):
        if not self._alive(who, life, self._ask, ticket, promises):
            return
        there = self.chance.random() * self.history.trip / 2
        self._at(self._now + there, self._judge, who, life, ticket, promises, self._now)

    def _judge(self, who, life, ticket, promises, sent):
        """The moment of the server."""
        message = self.workers[who].holding.get(ticket)
        if self.workers[who].life != life or message is None:
            return
        self.asked += 1
        answer = questions = None
        if not any(since <= self._now < until for since, until in self.history.away):
            longest = self.history.longest * 1000.0
            patience = SLEEP if promises else SHORT
            questions = [
                Question(each, patience, longest) for each in self.limits(message.kind, who)
            ]
            keys = [question.limit.key for question in questions]
            states = [self.states.get(key) for key in keys]
            memory = self.workers[who].seen
            seen = {key: born for key, (when, born) in memory.items() if when > self._now - SURE}
            answer, states = judge(states, questions, promises, self._now * 1000.0, seen)
            for key, state in zip(keys, states, strict=True):
                if state is not None:
                    self.states[key] = state
            if self.chance.random() < self.history.lost:
                answer = None
        back = self.chance.random() * self.history.trip / 2
        self._at(self._now + back, self._hear, who, life, ticket, promises, sent, answer, questions)

    def _hear(self, who, life, ticket, promises, sent, answer, questions):
        arguments = (ticket, promises, sent, answer, questions)
        if not self._alive(who, life, self._hear, *arguments):
            return
        if answer is None:
            self._give_back(who, ticket, promises, AWAY * (1 + self.chance.random()))
            return
        wait = answer.wait / 1000.0
        promises = answer.promises(questions, promises)
        if answer.kind is Kind.START:
            worker = self.workers[who]
            quickest = min(self._now - sent, worker.quickest * 1.25 + 0.001)
            worker.quickest = quickest
            self._sleeping[ticket] = questions
            due = self._now + wait + (self.chance.random() * self.history.jitter if wait else 0)
            self._at(
                due, self._start, who, life, ticket, promises, sent + wait, quickest, questions
            )
        elif answer.kind is Kind.REFUSED:
            later = self.history.longest * (0.5 + 0.5 * self.chance.random())
            self._give_back(who, ticket, promises, later)
        else:
            self._give_back(who, ticket, promises, wait)

    def _start(self, who, life, ticket, promises, due, quickest, questions):
        if not self._alive(who, life, self._start, ticket, promises, due, quickest, questions):
            return
        self._sleeping.pop(ticket, None)
        if self._now - due > TOLERATED + quickest:
            self._at(self._now, self._ask, who, life, ticket, promises)
            return
        message = self.workers[who].holding[ticket]
        self.ran[message.name] += 1
        self.last = self._now
        for question in questions:
            self.starts.append((self._now, question.limit.key, question.limit.cost))
        self._at(self._now + message.runs, self._end, who, life, ticket)

    def _end(self, who, life, ticket):
        if self._alive(who, life, self._end, ticket):
            self._release(who, ticket)

    def _give_back(self, who, ticket, promises, wait):
        """Publish the copy, acknowledge, be free; the copy waits in this worker's timer."""
        worker = self.workers[who]
        message = worker.holding[ticket]
        late = self.chance.random() * self.history.back
        copy = Message(message.name, message.kind, message.runs, promises)
        timer = next(self._tickets)
        worker.holding[timer] = copy
        self._at(self._now + wait + late, self._come_back, who, worker.life, timer)
        if self._doubles and self.chance.random() < self.history.doubled:
            self._doubles -= 1
            self._at(self._now + self.history.visibility, self._arrive, message)
        self._release(who, ticket)

    def _come_back(self, who, life, timer):
        if self._alive(who, life, self._come_back, timer):
            self._arrive(self.workers[who].holding.pop(timer))

    def _release(self, who, ticket):
        worker = self.workers[who]
        del worker.holding[ticket]
        worker.free += 1
        self._serve()

    def _kill(self, who):
        worker = self.workers[who]
        for message in worker.holding.values():
            again = Message(message.name, message.kind, message.runs, message.promises)
            self._at(self._now + self.history.visibility, self._arrive, again)
        worker.life += 1
        worker.seen = {}
        for ticket in worker.holding:
            self._sleeping.pop(ticket, None)
        worker.holding = {}
        worker.free = 0
        self._at(self._now + 1.0, self._replace, who, worker.life)

    def _replace(self, who, life):
        if self.workers[who].life == life:
            self.workers[who].free = self.history.slots
            self._serve()

    def _flush(self):
        """Forget everything; what was charged and has not started starts all the same."""
        for questions in self._sleeping.values():
            for limit in (question.limit for question in questions):
                self.asleep[limit.key] = self.asleep.get(limit.key, 0.0) + limit.cost
        self.states.clear()

    def _hold(self, kind, seconds):
        now = self._now * 1000.0
        for limit in self.limits(kind):
            state = self.states.get(limit.key)
            self.states[limit.key] = held_back(state, limit, seconds * 1000.0, now)


def excess(world: World) -> float:
    """
    By how many units the worst window of any key holds too much; at most 0 is right.

    A start may come *LATE* and a round trip after its moment, so a window may hold what belongs to
    one that is longer by that. Where versions differ, the larger numbers count.
    """
    history = world.history
    by_rate = max([1.0, *(rate for _, rate, _ in history.changed)])
    by_burst = max([1.0, *(burst for _, _, burst in history.changed)])
    limits = {limit.key: limit for limits in history.limits.values() for limit in limits}
    worst = -1.0
    for key, limit in limits.items():
        rate, burst = limit.rate * by_rate, max(limit.burst * by_burst, limit.cost)
        starts = [(when, cost) for when, of, cost in world.starts if of == key]
        if not starts:
            continue
        room = burst + rate * (LATE + history.trip)
        forgiven = burst + min(world.asleep.get(key, 0.0), 2 * max(cost for _, cost in starts))
        found = _windows(starts, rate, forgiven, history.flushed) if history.flushed else None
        worst = max(worst, (_bucket(starts, rate) if found is None else found) - room)
    return worst


def _bucket(starts, rate):
    """The most that any window holds beyond what drains in it: a bucket is all windows at once."""
    highest = level = before = 0.0
    for when, cost in starts:
        level = max(0.0, level - rate * (when - before)) + cost
        before = when
        highest = max(highest, level)
    return highest


def _windows(starts, rate, forgiven, flushed):
    """
    The same window by window.

    One that sees a loss of data, or sleepers of before it, may hold a burst more, and beside it
    two of those who were asleep: until somebody comes who knows better, the state seems new.
    """
    highest = 0.0
    for i, (since, _) in enumerate(starts):
        total = 0.0
        for until, cost in starts[i:]:
            total += cost
            lost = sum(since - SLEEP / 1000.0 <= when <= until for when in flushed)
            highest = max(highest, total - rate * (until - since) - forgiven * lost)
    return highest

"""
A group of replicas and their server in virtual time, one history at a run.

The replicas drive the real *Membership*; the server does what register.lua does. All times inside
are true seconds since the start of the history; every process has a clock of its own. Who owns what
from when to when is computed, not sampled: a process that is asked, frozen or not, answers by its
own clock, so an ownership lasts from the moment the answer was taken in, or from the moment it
begins, to its deadline or the moment of a change, whichever comes first.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from celery_atomicity.primitives.membership import Membership, Registration


class Event(NamedTuple):
    """
    What happens from outside, *at* so many intervals after the start.

    *who* picks one of the replicas that are there (modulo their number), *size* is in intervals;
    for a failover, *who* is how many of its last writes the new server lacks.
    """

    at: float
    kind: str
    who: int = 0
    size: float = 0.0


@dataclass(slots=True)
class History:
    """
    Everything that a run depends on: the same history gives the same run.

    Times are in intervals. *there* and *back* are how long a request and an answer take at most
    where nothing befalls them; *timeout* is when a replica gives up.
    """

    joins: list[float]
    events: list[Event] = field(default_factory=list)
    until: float = 12.0
    interval: float = 1.0
    gap: float = 0.15
    timeout: float = 0.2
    there: float = 0.002
    back: float = 0.002
    seed: int = 0


class Span(NamedTuple):
    """That *name* owned the slots of (i, n) from *start* to *end*."""

    start: float
    end: float
    name: int
    i: int
    n: int


class Down(Exception):
    """The server does not answer."""


# What befalls one request, by its size: what is added to the way there and to the way back, how
# long the process is frozen between reading its clock and sending, how long between reading it and
# taking the answer in, and how long in all from now.
TRIALS = {
    "lost request": lambda size: (math.inf, 0.0, 0.0, 0.0, 0.0),
    "lost answer": lambda size: (0.0, math.inf, 0.0, 0.0, 0.0),
    "slow request": lambda size: (size, 0.0, 0.0, 0.0, 0.0),
    "slow answer": lambda size: (0.0, size, 0.0, 0.0, 0.0),
    "late send": lambda size: (0.0, 0.0, size, 0.0, size),
    "late read": lambda size: (0.0, 0.0, 0.0, size, 0.0),
    "frozen answer": lambda size: (0.0, 0.0, 0.0, 0.0, size),
}


class SimServer:
    """What register.lua does, on a clock that steps and a store that forgets."""

    def __init__(self, interval: float, *, guard: bool = True) -> None:
        self.interval_ms = round(interval * 1000)
        self.guard = guard
        self.offset = 1_700_000_000.0
        self.run = 0
        self.back_at = 0.0
        self.highest = 0.0
        self._counters: dict[int, tuple[int, int]] = {}
        self._undo: list[tuple[int, tuple[int, int] | None]] = []

    def clock_ms(self, now: float) -> int:
        return math.floor((now + self.offset) * 1000)

    def _get(self, number: int, clock: int) -> int | None:
        found = self._counters.get(number)
        return found[0] if found is not None and found[1] > clock else None

    def register(self, now: float) -> tuple[int, int, int, float]:
        """The script's answer: interval, our index, count of the one before or -1, clock in s."""
        if now < self.back_at:
            raise Down
        clock = self.clock_ms(now)
        self.highest = max(self.highest, clock)
        number = clock // self.interval_ms
        if self.guard:
            while self._get(number + 1, clock) is not None:
                number += 1
        count = self._get(number, clock) or 0
        self._undo.append((number, self._counters.get(number)))
        self._counters[number] = (count + 1, clock + 3 * self.interval_ms)
        before = self._get(number - 1, clock)
        return number, count, -1 if before is None else before, clock / 1000

    def step(self, seconds: float) -> None:
        self.offset += seconds

    def flush(self) -> None:
        self._counters = {}
        self._undo = []

    def restart(self, now: float, down: float, *, keep: bool) -> None:
        self.run += 1
        self.back_at = now + down
        if not keep:
            self.flush()

    def failover(self, now: float, down: float, lag: int, offset: float) -> None:
        """A replica takes over that has not seen the last *lag* writes and has another clock."""
        self.restart(now, down, keep=True)
        self.offset += offset
        while lag and self._undo:
            number, was = self._undo.pop()
            if was is None:
                self._counters.pop(number, None)
            else:
                self._counters[number] = was
            lag -= 1
        self._undo = []


class SimReplica:
    """One process: a membership, a clock, what is still to befall it and what it has owned."""

    __slots__ = (
        "alive",
        "base",
        "frozen_until",
        "membership",
        "name",
        "rate",
        "spans",
        "token",
        "trials",
    )

    def __init__(self, name: int, membership: Membership, base: float, rate: float) -> None:
        self.name = name
        self.membership = membership
        self.base = base
        self.rate = rate
        self.alive = True
        self.frozen_until = 0.0
        self.token = 0
        self.trials: list[tuple[str, float]] = []
        self.spans: list[list] = []

    def own(self, now: float) -> float:
        return self.base + now * self.rate

    def true(self, own: float) -> float:
        return (own - self.base) / self.rate

    def changed(self, now: float) -> None:
        """Note what is owned after the membership has taken something in."""
        membership = self.membership
        pair = membership.assignment
        last = self.spans[-1] if self.spans else None
        if pair is None:
            if last is not None and last[1] > now:
                last[1] = now
            return
        begins = max(now, self.true(membership.begins))
        ends = self.true(membership.deadline)
        if last is not None and last[1] >= now:
            if last[2] is pair or (last[2] == pair and begins <= last[1]):
                last[1] = ends
                return
            last[1] = now
        if ends > begins:
            self.spans.append([begins, ends, pair])


class World:
    """One run of one history."""

    def __init__(self, history: History, kind: type[Membership] = Membership, *, guard=True):
        self.history = history
        self.kind = kind
        self.interval = history.interval
        self.timeout = history.timeout * history.interval
        self.there = history.there * history.interval
        self.back = history.back * history.interval
        self.random = Random(history.seed)
        self.server = SimServer(history.interval, guard=guard)
        self.server.offset += self.random.random() * self.interval
        self.replicas: list[SimReplica] = []
        self.living: list[SimReplica] = []
        self.now = 0.0
        self.disturbed = 0.0
        self.registrations = 0
        self._heap: list[tuple] = []
        self._order = 0

    # -- the loop

    def run(self) -> World:
        interval = self.interval
        for at in self.history.joins:
            self._at(at * interval, self._join, None)
        for event in self.history.events:
            self._at(event.at * interval, self._befall, event)
        until = self.history.until * interval
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, what, argument = heapq.heappop(heap)
            what(argument)
        self.now = until
        return self

    def _at(self, when: float, what, argument) -> None:
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, what, argument))

    # -- a replica's loop

    def _join(self, _) -> None:
        random = self.random.random
        membership = self.kind(self.interval, self.history.gap)
        rate = 1 + (random() * 2 - 1) * 0.0005
        replica = SimReplica(len(self.replicas), membership, random() * 1e6, rate)
        self.replicas.append(replica)
        self.living.append(replica)
        self.disturbed = max(self.disturbed, self.now)
        self._send((replica, 0))

    def _sleep(self, replica: SimReplica) -> None:
        replica.token += 1
        due = max(self.now, replica.true(replica.membership.next_at))
        self._at(due, self._send, (replica, replica.token))

    def _send(self, what) -> None:
        replica, token = what
        now = self.now
        if not replica.alive or token != replica.token:
            return
        if now < replica.frozen_until:
            self._at(replica.frozen_until, self._send, what)
            return
        sent = replica.own(now)
        there = self.random.random() * self.there
        back = self.random.random() * self.back
        pause = late = 0.0
        if replica.trials:
            kind, size = replica.trials.pop()
            self.disturbed = max(self.disturbed, now + size + self.timeout)
            add_there, add_back, pause, late, freeze = TRIALS[kind](size)
            there += add_there
            back += add_back
            replica.frozen_until = max(replica.frozen_until, now + freeze)
        leaves = now + pause
        expires = leaves + self.timeout
        if there < math.inf:
            flight = (replica, token, sent, back, late, expires)
            self._at(leaves + there, self._execute, flight)
        if leaves + there > expires:
            self._at(expires, self._fail, (replica, token, math.inf, None))

    def _execute(self, flight) -> None:
        replica, token, sent, back, late, expires = flight
        now = self.now
        run = self.server.run
        try:
            number, index, previous, clock = self.server.register(now)
        except Down:
            if now <= expires:  # refused; a server that hangs looks like a lost request
                self._at(now, self._fail, (replica, token, math.inf, None))
            return
        if now > expires:
            return  # given up already, and counted nevertheless
        self.registrations += 1
        answer = (replica, token, number, index, previous, clock, sent, run, late)
        if now + back <= expires:
            self._at(now + back, self._receive, answer)
        else:
            self._at(expires, self._fail, (replica, token, now + back, answer))

    def _fail(self, what) -> None:
        replica, token, arrives, answer = what
        if not replica.alive or token != replica.token:
            return
        if self.now < replica.frozen_until:
            # What came in while the process was frozen is read before its timeout is looked at.
            arrived = arrives <= replica.frozen_until
            next_ = (self._receive, answer) if arrived else (self._fail, what)
            self._at(replica.frozen_until, *next_)
            return
        replica.membership.failed(replica.own(self.now))
        replica.changed(self.now)
        self._sleep(replica)

    def _receive(self, answer) -> None:
        replica, token, number, index, previous, clock, sent, run, late = answer
        now = self.now
        if not replica.alive or token != replica.token:
            return
        if now < replica.frozen_until:
            self._at(replica.frozen_until, self._receive, answer)
            return
        taken = Registration(number, index, previous, clock, sent, replica.own(now), str(run))
        if late:
            replica.frozen_until = now + late
            self._at(now + late, self._take, (replica, token, taken))
        else:
            self._take((replica, token, taken))

    def _take(self, what) -> None:
        replica, token, taken = what
        if not replica.alive or token != replica.token:
            return
        if self.now < replica.frozen_until:
            self._at(replica.frozen_until, self._take, what)
            return
        replica.membership.registered(taken)
        replica.changed(self.now)
        self._sleep(replica)

    # -- what happens from outside

    def _befall(self, event: Event) -> None:
        _, kind, who, size = event
        now = self.now
        size *= self.interval
        server = self.server
        calm = now
        if kind == "join":
            self._join(None)
        elif kind == "step":
            server.highest = max(server.highest, server.clock_ms(now))
            server.step(size)
            # Numbers that have been used are met again until the clock has passed them.
            behind = server.highest / 1000 + self.interval - server.clock_ms(now) / 1000
            calm = now + max(0.0, behind)
        elif kind == "flush":
            server.flush()
        elif kind == "restart":
            server.restart(now, size, keep=who % 2 == 1)
            calm = now + size
        elif kind == "failover":
            lag, offset = who % 100, (who // 100 % 5 - 2) / 4 * self.interval
            server.failover(now, size, lag, offset)
            calm = now + size + 2 * self.interval
        elif self.living:
            replica = self.living[who % len(self.living)]
            if kind in ("leave", "crash"):
                self.living.remove(replica)
                self._gone((replica, kind))
            elif kind == "freeze":
                replica.frozen_until = max(replica.frozen_until, now + size)
                calm = now + size
            else:
                replica.trials.append((kind, size))
                calm = now + 2 * self.interval
        self.disturbed = max(self.disturbed, calm)

    def _gone(self, what) -> None:
        replica, kind = what
        if kind == "leave" and self.now < replica.frozen_until:
            self._at(replica.frozen_until, self._gone, what)
            return
        self.disturbed = max(self.disturbed, self.now)
        replica.alive = False
        replica.membership.reset()
        replica.changed(self.now)

    # -- what came of it

    def spans(self) -> list[Span]:
        """All ownerships, by their start."""
        found = [
            Span(start, end, replica.name, pair.i, pair.n)
            for replica in self.replicas
            for start, end, pair in replica.spans
            if start < end
        ]
        found.sort()
        return found

    def conflicts(self) -> list[tuple[Span, Span]]:
        """Every two ownerships of different replicas that met in time and share a slot."""
        return [(one, other) for one, other, apart in self._rivals() if apart < 0]

    def closest(self) -> float:
        """
        Intervals between the end of an ownership and the begin of the next of the same slots.

        The least of all; negative where there is a conflict.
        """
        return min((apart for _, _, apart in self._rivals()), default=math.inf) / self.interval

    def _rivals(self):
        earlier: list[Span] = []
        for span in self.spans():
            start, _, name, i, n = span
            for one in earlier:
                # Some slot is i mod n and j mod m exactly if i and j agree mod gcd(n, m).
                if one[2] != name and (i - one[3]) % math.gcd(n, one[4]) == 0:
                    yield one, span, start - one[1]
            earlier = [one for one in earlier if one[1] > start - self.interval]
            earlier.append(span)

    def owners(self, start: float, end: float) -> list[Span]:
        """The ownerships that lasted from *start* to *end* without a change."""
        return [one for one in self.spans() if one.start <= start and one.end >= end]

    def unsettled(self) -> str | None:
        """What is wrong if the group, long undisturbed, is not complete, even and unchanged."""
        # One join or departure is settled within five, which is tested by itself. A clock that
        # stepped by more than the gap makes everybody join anew, one interval later at the most.
        calm = self.disturbed + 7 * self.interval
        if calm >= self.now:
            return None
        owners = self.owners(calm, self.now)
        n = len(self.living)
        pairs = sorted((one.i, one.n) for one in owners)
        if pairs == [(i, n) for i in range(n)]:
            return None
        return f"{n} replicas, calm from {calm:.3f}, at {self.now:.3f} own {pairs}"

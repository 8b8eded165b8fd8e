"""
Which replica is which: the rules of n-and-i, without clock, thread or socket.

The algorithm is Gurtovoy's "Distributed Peer Indexing". Every replica registers once per interval
by incrementing that interval's counter, on the server's clock. The count that interval N-1 closed
on, together with the index the replica itself was given in N-1, is a *pair*. A pair becomes the
assignment when the interval before implied the same pair.

**Why no slot has two owners.** An assignment formed by a registration in interval N rests on the
pairs of N-2 and N-1, and its deadline is at the latest the end of N+1 on the server's clock. So at
any moment of an interval M the live assignments were formed in M-1 or M; they rest on M-3 and M-2,
or on M-2 and M-1: all of them on M-2. Within one interval the counter gave each replica another
index, and its closing count is one number. Two live assignments therefore agree on ``n`` and
differ in ``i``.

The argument needs a counter that only grows within an interval and a clock that only goes forward.
Four rules hold it up where they do not:

- *Starting over.* A registration that met another run of the server (restart, failover), or whose
  server clock disagrees with our own by more than a quarter of the gap since one of the last
  registrations, counts as the first one after joining.
- *Quarantine.* Nothing is owned until ``(1 + gap) * interval`` after that first registration was
  answered: by then, whatever others owned from before has run out.
- *Certainty.* To begin to own something, the last registrations must be quick enough to prove that
  the server's clock did not step by more than half of the gap. What is already owned is renewed
  by slow ones, too: a slow network does not take away what it cannot give to somebody else.
- *The edge.* A registration in the first half of the gap of an interval neither begins nor renews
  an ownership, so that a step too small to be noticed finds those of two intervals ago run out.

A store emptied in mid-interval (FLUSHALL) loses the count of the interval before as well. Who
registers after it reads no count, has no pair, and needs two further intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

# Our clock and the server's drift apart by up to 500 ppm; what we own ends that much earlier.
DRIFT = 0.001

# A first retry comes after this fraction of the interval, each further one after twice the pause.
RETRY = 1 / 8

# How many registrations back the clocks are compared: those that an assignment can rest on.
WINDOW = 3


@dataclass(frozen=True, slots=True)
class Assignment:
    """This replica's index *i* among the *n* replicas of its group."""

    i: int
    n: int

    def owns(self, slot: int) -> bool:
        """Whether *slot* belongs to this replica."""
        return slot % self.n == self.i

    def slots(self, total: int) -> list[int]:
        """The slots of ``0 .. total-1`` that belong to this replica, ascending."""
        return list(range(self.i, total, self.n))


@dataclass(frozen=True, slots=True)
class Registration:
    """
    One answered registration; all times in seconds.

    Args:
        interval: The number of the interval in which the server counted us.
        index: Our index in it, from 0.
        previous: How many registered in the interval before, -1 if the server does not know.
        now: The server's clock when it counted us.
        sent: Our clock before the request was sent.
        received: Our clock when the answer was there.
        run: What distinguishes this run of this server from any other.
    """

    interval: int
    index: int
    previous: int
    now: float
    sent: float
    received: float
    run: str


class Membership:
    """
    One replica's view of its group: registrations in, assignment and next registration out.

    Not thread-safe; it belongs to the loop that registers.

    Args:
        interval: Seconds between two registrations.
        gap: The slack, as a fraction of the interval.
    """

    def __init__(self, interval: float, gap: float) -> None:
        self.interval = interval
        self.gap = gap
        self.assignment: Assignment | None = None
        self.deadline = 0.0
        self.next_at = 0.0
        self._pair: Assignment | None = None
        self._since = 0.0
        self._window: list[Registration] = []
        self._failures = 0

    def at(self, now: float) -> Assignment | None:
        """What is owned at *now* on our clock."""
        return self.assignment if now < self.deadline else None

    def registered(self, answer: Registration) -> None:
        """Take in an answered registration."""
        self._failures = 0
        if not self._continues(answer):
            self._start_over(answer)
        pair = self._pair_of(answer)
        agreed = pair is not None and pair == self._pair
        self._pair = pair
        self._window = [*self._window, answer][-WINDOW:]
        if not agreed:
            self._stand_down()
        elif self._may_own(answer, pair):
            self.assignment = pair
            self.deadline = answer.sent + self._lasts(answer)
        self.next_at = self._next(answer)

    def failed(self, now: float) -> None:
        """Take in a registration that was not answered; it is tried again after a growing pause."""
        pause = min(1.0, RETRY * 2**self._failures) * self.interval
        self._failures = min(self._failures + 1, 16)
        self.next_at = now + pause

    def lapse(self) -> None:
        """Drop an assignment whose time is over, while keeping what was learned."""
        self._stand_down()

    def reset(self) -> None:
        """Forget everything, as if this replica had not joined yet."""
        self._window = []
        self._pair = None
        self._stand_down()

    def _stand_down(self) -> None:
        self.assignment = None
        self.deadline = 0.0

    def _start_over(self, answer: Registration) -> None:
        self.reset()
        self._since = answer.received

    def _continues(self, answer: Registration) -> bool:
        """Whether *answer* comes from the same run and clock as the ones before."""
        if not self._window:
            return False
        last = self._window[-1]
        if last.run != answer.run or answer.interval <= last.interval:
            return False
        allowed = self.gap / 4 * self.interval
        return all(_certain_step(one, answer) <= allowed for one in self._window)

    def _pair_of(self, answer: Registration) -> Assignment | None:
        """What the interval before *answer* implies for us; None if we were not counted in it."""
        if not self._window:
            return None
        last = self._window[-1]
        if last.interval != answer.interval - 1 or last.index >= answer.previous:
            return None
        return Assignment(last.index, answer.previous)

    def _may_own(self, answer: Registration, pair: Assignment | None) -> bool:
        position = answer.now / self.interval - answer.interval
        if position < self.gap / 2:
            return False
        if pair == self.at(answer.received):
            return True
        if answer.sent < self._since + (1 + self.gap) * self.interval:
            return False
        allowed = self.gap / 2 * self.interval
        return all(_possible_step(one, answer) <= allowed for one in self._window)

    def _lasts(self, answer: Registration) -> float:
        """Seconds from the sending of *answer* for which what it confirms is owned."""
        closes = (answer.interval + 2) * self.interval - answer.now
        return min((1 + self.gap) * self.interval, closes) * (1 - DRIFT)

    def _next(self, answer: Registration) -> float:
        """When to register next, so that the order within the interval repeats itself."""
        of = max(answer.previous, answer.index + 1)
        phase = self.gap + (answer.index + 0.5) / of * (1 - 2 * self.gap)
        due = (answer.interval + 1 + phase) * self.interval
        return (answer.sent + answer.received) / 2 + due - answer.now


def _certain_step(one: Registration, other: Registration) -> float:
    """The least by which the server's clock must have stepped between the two, either way."""
    return max(
        (other.now - other.received) - (one.now - one.sent),
        (one.now - one.received) - (other.now - other.sent),
    )


def _possible_step(one: Registration, other: Registration) -> float:
    """The most by which the server's clock may have stepped between the two, either way."""
    return max(
        (other.now - other.sent) - (one.now - one.received),
        (one.now - one.sent) - (other.now - other.received),
    )

"""
Which replica is which: the rules of n-and-i, without clock, thread or socket.

The algorithm is Gurtovoy's "Distributed Peer Indexing". Every replica registers once per interval
by incrementing that interval's counter, on the server's clock. The count that interval N-1 closed
on, together with the index the replica itself was given in N-1, is a *pair*. A pair becomes the
assignment when the interval before implied the same pair.

**Why no slot has two owners.** Say that an assignment is formed in N when a registration counted
in N agrees; it then rests on the pairs of N-2 and N-1. It ends ``(1 + gap) * interval`` after that
registration was sent. An assignment that is new, not renewed, begins that long after the answer of
N-1 was there, so the index it has of N-1 is older than any that is still in use.

Take two assignments that are both alive, one last formed in A, the other in B, with A <= B.

- If B <= A + 1, they rest on one interval in common. In it the counter gave each replica another
  index, and its closing count is one number: they agree on ``n`` and differ in ``i``.
- If B is later, look at where the other one began, in C, since when its pair never changed. If
  C <= A + 1, it was also formed in A or A + 1, of the same pair, and the above holds. If C is
  later still, it was counted in C-1 > A, after the first one was last sent; it began
  ``(1 + gap) * interval`` after that, when the first one had ended.

No clock but our own is trusted in this: the server's may step as it likes, as long as

- the number of an interval never goes back, and with it no count grows that was read: the script
  counts into the next interval if somebody is in it already; and
- two replicas never have the same index in one interval. A store that was emptied in mid-interval
  (FLUSHALL) gives indices a second time, but it has also forgotten the interval before: an index
  that came with no count before it is not used.

Emptied after its clock has stepped back, the store may go through an interval a second time. So an
index is not used either if the clock had not come to its interval yet; and who sees the clock step
by more than the gap starts over, as if it had just joined. So does who meets another run of the
server, which may have lost what was counted last (restart, failover): what others own from before
ends before anything new begins.

What is left is a store that is emptied while its clock slips back and is put right again, all
between two registrations of one replica, and two servers of one name that both answer.
"""

from __future__ import annotations

from dataclasses import dataclass

# Two replicas' clocks drift apart by up to 1000 ppm (500 each); what we own ends that much earlier.
DRIFT = 0.001

# A first retry comes after this fraction of the interval, each further one after twice the pause.
RETRY = 1 / 8


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

    Not thread-safe; it belongs to the loop that registers. On our own clock, *assignment* is owned
    from *begins* to *deadline*, and *next_at* is when to register next.

    Args:
        interval: Seconds between two registrations.
        gap: The slack, as a fraction of the interval.
    """

    def __init__(self, interval: float, gap: float) -> None:
        self.interval = interval
        self.gap = gap
        self.assignment: Assignment | None = None
        self.begins = 0.0
        self.deadline = 0.0
        self.next_at = 0.0
        self._pair: Assignment | None = None
        self._last: Registration | None = None
        self._size = 0
        self._failures = 0

    def at(self, now: float) -> Assignment | None:
        """What is owned at *now* on our clock."""
        return self.assignment if self.begins <= now < self.deadline else None

    def due(self, now: float) -> float:
        """When, seen from *now*, to look again: to register, or because *at* answers otherwise."""
        changes = (self.begins, self.deadline) if self.assignment is not None else ()
        return min([self.next_at, *(change for change in changes if change > now)])

    def registered(self, answer: Registration) -> None:
        """Take in an answered registration."""
        self._failures = 0
        last = self._last
        if last is not None and not self._continues(last, answer):
            self.reset()
            last = None
        pair = self._pair_of(last, answer)
        if last is None or pair is None or pair != self._pair:
            self._stand_down()
        else:
            self._own(pair, last, answer)
        self._pair = pair
        self._last = answer
        self._size = answer.previous if answer.previous > 0 else self._size
        self.next_at = self._next(last or answer, answer)

    def failed(self, now: float) -> None:
        """Take in a registration that was not answered; it is tried again after a growing pause."""
        pause = min(1.0, RETRY * 2**self._failures) * self.interval
        self._failures = min(self._failures + 1, 16)
        self.next_at = now + pause

    def reset(self) -> None:
        """Forget everything, as if this replica had not joined yet."""
        self._last = None
        self._pair = None
        self._stand_down()

    def _stand_down(self) -> None:
        self.assignment = None
        self.begins = self.deadline = 0.0

    def _own(self, pair: Assignment, last: Registration, answer: Registration) -> None:
        lasts = (1 + self.gap) * self.interval
        if pair != self.assignment:
            self.assignment = pair
            self.begins = last.received + lasts
        self.deadline = answer.sent + lasts * (1 - DRIFT)

    def _continues(self, last: Registration, answer: Registration) -> bool:
        """Whether *answer* comes from the same run and, as far as can be told, the same clock."""
        return last.run == answer.run and _step(last, answer) <= self.gap * self.interval

    def _pair_of(self, last: Registration | None, answer: Registration) -> Assignment | None:
        """What the interval before *answer* implies for us; None if it implies nothing."""
        if last is None or last.previous < 0 or last.now < last.interval * self.interval:
            return None
        if last.interval != answer.interval - 1 or last.index >= answer.previous:
            return None
        return Assignment(last.index, answer.previous)

    def _next(self, last: Registration, answer: Registration) -> float:
        """
        When to register next, so that the order within the interval repeats itself.

        Counted from the sending, so that it does not matter how long answers take; and from the
        quicker of the last two, since a request that was held up says little about the clock.
        """
        of = max(self._size, answer.index + 1)
        phase = self.gap + (answer.index + 0.5) / of * (1 - 2 * self.gap)
        due = (answer.interval + 1 + phase) * self.interval
        best = min(answer, last, key=_trip)
        return best.sent + due - best.now


def _trip(one: Registration) -> float:
    return one.received - one.sent


def _step(one: Registration, other: Registration) -> float:
    """The least by which the server's clock must have stepped between the two, either way."""
    return max(
        (other.now - other.received) - (one.now - one.sent),
        (one.now - one.received) - (other.now - other.sent),
    )

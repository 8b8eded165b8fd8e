"""
What debts mean for a rate: the rules, without clock, server or Celery.

Under each key stand two debts on one clock, in units that drain at the rate: *started* is what has
really started, *promised* what has been given a place in time, started or not, and so it is never
the smaller one. The rules:

- **Arriving.** Who arrives is judged by what is promised: with room for its cost below the burst
  it starts and is charged to both debts. Otherwise it is promised the moment at which there will
  be room, goes away, and asks nothing until then. Unless a start is going to waste: where there is
  room in what has started, those it was promised to are late (they may stand behind the very
  arrivals in front of their pool), so that it is taken by whoever is here.
- **Coming back.** Who comes back has been promised for, and is judged by what has started. A wait
  shorter than half a second is charged at once and slept out: those who come late, one by one,
  thereby fill the gaps that others left. A longer one means that the fleet was held up: the task is
  promised another place, at the end, so that those whose places come now keep them. Unless it is
  the very next to start: then it comes again a little later and keeps its promise, since a place
  at the end would leave a hole as wide as the rate is slow. This it may do once, or those who meet
  would all come again and again.
- **Late.** Who was charged and slept too long (a frozen process) must be judged again, because its
  start would fall into somebody else's time.
- **Several limits.** All are charged, or none. A place is promised by the limit that has the
  latest one, and by it alone: in the others it would stay empty, and be missing to others. For
  the same reason one limit is not kept idle by a sleeper who waits for another: it comes again.
- **Holding back.** For a while nothing starts, and then at the pace of the rate, without a burst:
  whoever asked for the pause would not thank us for one.
- **Lost data.** A promise carries the moment when its state was made, and so does the memory of
  each process. If that is another one by now, the store has lost its data, and those who were
  charged before may still be asleep: so nothing starts for as long as they may sleep. Until
  somebody comes who knows, a state that seems new lets a burst through beside them.

**Why no window holds too much.** A start is charged when there is room for it, at a moment that
has not passed yet, to a debt that drains at the rate and never stands above the burst when a start
comes due. Promises can be lost, kept twice or kept late: they charge nothing.

``scripts/rate.lua`` does the same on the server; a test drives both with the same questions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from celery_atomicity.primitives.debts import Debts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from celery_atomicity.primitives.limit import Limit

# Milliseconds that one who arrives may sleep in place: a pool slot that sleeps serves nobody.
SHORT = 20.0

# Milliseconds that one who has come back may sleep, charged.
SLEEP = 500.0

# Starts of one limit that may go to waste because of a wait for another one.
IDLE = 0.5

# Milliseconds for which a state outlives its debt, and so for which it is sure to be remembered.
REMEMBERED = 10_000.0

NOTHING: Mapping[str, str] = MappingProxyType({})

# What a promise ends in once its owner was told to come again.
_AGAIN = "*"


@dataclass(frozen=True, slots=True)
class Question:
    """
    One limit as it is asked.

    Args:
        limit: Which, and how much of it.
        patience: Milliseconds that may be slept out in place, once charged.
        longest: Milliseconds that a place may lie ahead; below zero none is given.
    """

    limit: Limit
    patience: float = SHORT
    longest: float = math.inf


class Kind(IntEnum):
    """What a question ends in."""

    REFUSED = 0  # nothing was charged, nothing promised
    START = 1  # charged: start after the wait
    PLACE = 2  # promised: come back after the wait
    AGAIN = 3  # come back after the wait, with the promise that you have


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What a question ends in.

    Args:
        kind: What to do.
        wait: Milliseconds.
        which: The index of the question that decided it; -1 for a start.
        born: When the state of each key was made.
    """

    kind: Kind
    wait: float
    which: int
    born: tuple[str, ...]

    def promises(self, questions: Sequence[Question], brought: Mapping[str, str]) -> dict[str, str]:
        """What one who was answered so is to bring when it comes back, having *brought* that."""
        keys = [question.limit.key for question in questions]
        if self.kind is Kind.START:
            return dict(zip(keys, self.born, strict=True))
        if self.kind is Kind.PLACE:
            return {keys[self.which]: self.born[self.which]}
        if self.kind is Kind.AGAIN:
            return {key: token.rstrip(_AGAIN) + _AGAIN for key, token in brought.items()}
        return {}


def judge(
    states: Sequence[Debts | None],
    questions: Sequence[Question],
    promises: Mapping[str, str],
    now: float,
    seen: Mapping[str, str] = NOTHING,
) -> tuple[Answer, list[Debts | None]]:
    """
    Answer one who arrives, or who comes back with *promises*.

    Args:
        states: What stands under each question's key; None: nothing, or nothing that makes sense.
        questions: The limits of one start, no key twice.
        promises: For each key that has promised a place, when its state was made.
        now: Milliseconds on the server's clock.
        seen: For each key that the caller's process has lately seen, when its state was made.

    Returns:
        The answer, and what stands under the keys from now on.
    """
    asked = _look(states, questions, promises, seen, now)
    born = tuple(each.debts.born for each in asked)
    unchanged: list[Debts | None] = [each.debts for each in asked]
    back = any(each.token for each in asked)
    keeps = back and not any(each.told_again for each in asked)
    for each in asked:
        each.wait = each.start if back or each.start <= each.question.patience else each.place
    slowest = max(asked, key=lambda each: each.wait)
    when = slowest.wait
    late = [each for each in asked if each.wait > each.question.patience]

    if not late:
        idle = max(each.idle_until(when) for each in asked)
        if keeps and idle > IDLE and when <= slowest.question.longest:
            return Answer(Kind.AGAIN, when, slowest.index, born), unchanged
        return Answer(Kind.START, when, -1, born), [each.charged(when, back) for each in asked]

    worst = max(late, key=lambda each: each.wait)
    if keeps and worst.token and worst.wait <= min(worst.question.longest, worst.next_to_start):
        return Answer(Kind.AGAIN, worst.wait, worst.index, born), unchanged

    last = max(asked, key=lambda each: each.place)
    if last.place > last.question.longest:
        none_made = [None if each.is_new else each.debts for each in asked]
        return Answer(Kind.REFUSED, last.place, last.index, born), none_made
    unchanged[last.index] = last.debts.with_place(last.question.limit)
    return Answer(Kind.PLACE, last.place, last.index, born), unchanged


@dataclass(slots=True)
class _Asked:
    """
    One of the questions, with what stands under its key.

    Attributes:
        token: What its promise says; empty: there is none.
        told_again: Whether its owner was told before to keep it and come again.
        is_new: Whether nothing stood there.
        start, place: Milliseconds until there is room in what has started, and in both.
        wait: Which of them counts.
    """

    index: int
    question: Question
    debts: Debts
    token: str
    told_again: bool
    is_new: bool
    start: float = 0.0
    place: float = 0.0
    wait: float = 0.0

    def idle_until(self, when: float) -> float:
        """Starts of this limit that go to waste if its own waits until *when*."""
        return (when - self.start) * self.question.limit.per_ms / self.question.limit.cost

    @property
    def next_to_start(self) -> float:
        """Milliseconds within which nobody else has a place."""
        return self.question.limit.cost / self.question.limit.per_ms

    def charged(self, when: float, back: bool) -> Debts:
        """What stands here once the start is charged."""
        fresh = not self.token and (back or self.start == self.place)
        return self.debts.charged(self.question.limit, when, promise=fresh)


def _look(
    states: Sequence[Debts | None],
    questions: Sequence[Question],
    promises: Mapping[str, str],
    seen: Mapping[str, str],
    now: float,
) -> list[_Asked]:
    asked, lost = [], False
    for index, (state, question) in enumerate(zip(states, questions, strict=True)):
        limit = question.limit
        debts = Debts.drained(state, limit, now)
        brought = promises.get(limit.key, "")
        token, mark = brought.rstrip(_AGAIN), seen.get(limit.key, "")
        lost = lost or any(known and known != debts.born for known in (token, mark))
        asked.append(_Asked(index, question, debts, token, brought.endswith(_AGAIN), state is None))
    for each in asked:
        limit = each.question.limit
        if lost:
            each.debts = each.debts.after_loss(limit, SLEEP)
        each.start, each.place = each.debts.start_of(limit), each.debts.place_of(limit)
    return asked

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

Debts are units and not milliseconds so that versions of the code with different rates can share a
key: the debt drains at no more than the larger rate and fills no more than the larger burst. Only
time that is held back is counted in milliseconds and turned into units at the rate of each call.

``scripts/rate.lua`` does the same on the server; a test drives both with the same questions.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

_NOTATION = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?:/\s*([smhd])\s*)?\Z")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def per_second(rate: str | float) -> float:
    """
    *rate* in units a second, from Celery's notation: ``"10/s"``, ``"100/m"``, ``"5/h"``, a number.

    Raises:
        TypeError: It is neither text nor a number.
        ValueError: It is not written so, or is not positive. None is unlimited, nor paused.
    """
    if isinstance(rate, bool) or not isinstance(rate, (str, int, float)):
        raise TypeError(f'a rate is a text such as "10/s" or a number a second, not {rate!r}')
    if isinstance(rate, str):
        match = _NOTATION.match(rate)
        if match is None:
            raise ValueError(f'a rate is written as "10/s", "100/m", "5/h" or "1/d", not {rate!r}')
        number = float(match[1]) / _SECONDS[match[2] or "s"]
    else:
        number = float(rate)
    if not 0 < number < math.inf:
        raise ValueError(f"a rate must be positive and finite, not {rate!r}")
    return number


@dataclass(frozen=True, slots=True)
class Limit:
    """
    At most ``burst + rate * t`` units start in any window of t seconds.

    Args:
        key: What is limited, within the group.
        rate: Units a second.
        burst: Units that may start at once.
        cost: Units of this one start.

    Raises:
        ValueError: A number is not positive and finite, or the cost is above the burst.
    """

    key: str
    rate: float
    burst: float = 1.0
    cost: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rate", "burst", "cost"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, not {getattr(self, name)!r}")
        if self.cost > self.burst:
            raise ValueError(
                f"a cost of {self.cost:g} is above the burst of {self.burst:g}, so it could never "
                f"be let through: raise burst to at least {self.cost:g}, or split the work"
            )


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


@dataclass(frozen=True, slots=True)
class Debts:
    """
    What stands under a key; times in milliseconds on the server's clock.

    Args:
        started: Units that the last start leaves, of all that were charged; they drain from it on.
        ahead: How far ahead of *at* that start lies.
        promised: Units that have a place or have started; they drain from *at* on.
        at: When all this was true.
        rate: Units a millisecond, of the last call.
        born: When this state was made, as the server writes it.
    """

    started: float
    ahead: float
    promised: float
    at: float
    rate: float
    born: str


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
    brought = [promises.get(question.limit.key, "") for question in questions]
    tokens = [token.rstrip(_AGAIN) for token in brought]
    back = any(tokens)
    debts = [
        _drained(state, question.limit, now)
        for state, question in zip(states, questions, strict=True)
    ]
    marks = [seen.get(question.limit.key, "") for question in questions]
    if any(
        mark and mark != each.born
        for each, token, mark_ in zip(debts, tokens, marks, strict=True)
        for mark in (token, mark_)
    ):
        debts = [
            _after_loss(each, question.limit)
            for each, question in zip(debts, questions, strict=True)
        ]
    born = tuple(each.born for each in debts)
    untouched = [None if state is None else each for state, each in zip(states, debts, strict=True)]

    starts = [_start(each, question.limit) for each, question in zip(debts, questions, strict=True)]
    places = [_place(each, question.limit) for each, question in zip(debts, questions, strict=True)]
    waits = [
        start if back or start <= question.patience else place
        for start, place, question in zip(starts, places, questions, strict=True)
    ]
    late = [i for i, wait in enumerate(waits) if wait > questions[i].patience]
    when = max(waits)
    once = back and not any(token.endswith(_AGAIN) for token in brought)
    slowest = waits.index(when)
    if not late and once and when <= questions[slowest].longest:
        idle = max(
            (when - start) * _per_ms(question.limit) / question.limit.cost
            for start, question in zip(starts, questions, strict=True)
        )
        if idle > IDLE:
            return Answer(Kind.AGAIN, when, slowest, born), list(debts)
    if not late:
        charged = [
            _charged(each, question.limit, when, promise=not token and (back or start == place))
            for each, question, token, start, place in zip(
                debts, questions, tokens, starts, places, strict=True
            )
        ]
        return Answer(Kind.START, when, -1, born), list(charged)

    worst = max(late, key=waits.__getitem__)
    limit = questions[worst].limit
    next_to_start = limit.cost / _per_ms(limit)
    if tokens[worst] and once and waits[worst] <= min(questions[worst].longest, next_to_start):
        return Answer(Kind.AGAIN, waits[worst], worst, born), list(debts)

    worst = max(range(len(places)), key=places.__getitem__)
    if places[worst] > questions[worst].longest:
        return Answer(Kind.REFUSED, places[worst], worst, born), untouched
    promised = debts[worst].promised + questions[worst].limit.cost
    debts[worst] = replace(debts[worst], promised=promised)
    return Answer(Kind.PLACE, places[worst], worst, born), list(debts)


def held_back(state: Debts | None, limit: Limit, ms: float, now: float) -> Debts:
    """What stands under the key of *limit* once nothing may start for *ms* milliseconds."""
    return _held(_drained(state, limit, now), limit, ms)


def _per_ms(limit: Limit) -> float:
    return limit.rate / 1000.0


def _drained(state: Debts | None, limit: Limit, now: float) -> Debts:
    rate = _per_ms(limit)
    if state is None:
        return Debts(0.0, 0.0, 0.0, now, rate, f"{now:.17g}")
    # A clock that stepped back drains nothing, and counts from where it stands now.
    elapsed = max(0.0, now - state.at)
    started = max(0.0, state.started - rate * max(0.0, elapsed - state.ahead))
    ahead = max(0.0, state.ahead - elapsed)
    # The part of the promises that only covers the time ahead was counted at the rate of then.
    promised = state.promised + (rate - state.rate) * state.ahead - rate * elapsed
    return Debts(started, ahead, max(started + rate * ahead, promised), now, rate, state.born)


def _after_loss(debts: Debts, limit: Limit) -> Debts:
    left = SLEEP - max(0.0, debts.at - float(debts.born))
    return _held(debts, limit, left) if left > 0 else debts


def _held(debts: Debts, limit: Limit, ms: float) -> Debts:
    rate = _per_ms(limit)
    left = debts.started - rate * max(0.0, ms - debts.ahead)
    started, ahead = max(0.0, left, limit.burst - limit.cost), max(debts.ahead, ms)
    promised = max(debts.promised, started + rate * ahead)
    return replace(debts, started=started, ahead=ahead, promised=promised)


def _start(debts: Debts, limit: Limit) -> float:
    """How long until there is room in what has started: never before a start that is charged."""
    return debts.ahead + max(0.0, (debts.started + limit.cost - limit.burst) / _per_ms(limit))


def _place(debts: Debts, limit: Limit) -> float:
    """How long until there is room in what is promised, too."""
    promised = (debts.promised + limit.cost - limit.burst) / _per_ms(limit)
    return max(_start(debts, limit), promised)


def _charged(debts: Debts, limit: Limit, start: float, *, promise: bool) -> Debts:
    rate = _per_ms(limit)
    started = max(0.0, debts.started - rate * (start - debts.ahead)) + limit.cost
    promised = debts.promised + limit.cost if promise else debts.promised
    promised = max(started + rate * start, promised)
    return replace(debts, started=started, ahead=start, promised=promised)

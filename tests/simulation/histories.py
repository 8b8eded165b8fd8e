"""Histories: at random, and bred towards two owners of one slot."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

from simulation.membership_world import Event, History, World

# Kind, weight, and the sizes it comes in; what befalls replicas, then the server.
KINDS = {
    "join": (6, None),
    "leave": (2, None),
    "crash": (4, None),
    "freeze": (5, "long"),
    "lost request": (2, None),
    "lost answer": (3, None),
    "slow request": (4, "long"),
    "slow answer": (4, "long"),
    "late send": (2, "long"),
    "late read": (2, "long"),
    "frozen answer": (2, "long"),
    "step": (10, "step"),
    "flush": (6, None),
    "restart": (2, "short"),
    "failover": (4, "short"),
}
_NAMES = list(KINDS)
_WEIGHTS = [weight for weight, _ in KINDS.values()]

# Steps of these many intervals are met more often than chance would have it.
EVEN = (0.25, 0.5, 0.75, 1.0, 1.0, 1.5, 2.0, 3.0, 5.0)


def _events(random: Random, at: float, kinds: list[str]) -> list[Event]:
    kind = random.choice(kinds)
    who = random.randrange(1000)
    sizes = KINDS[kind][1]
    if sizes == "long":
        return [Event(at, kind, who, random.random() ** 2 * 6)]
    if sizes == "short":
        return [Event(at, kind, who, random.random() ** 2)]
    if sizes == "step":
        size = random.choice(EVEN) if random.random() < 0.3 else random.random() ** 2 * 2.5
        size *= random.choice((-1, 1))
        found = [Event(at, kind, who, size)]
        if random.random() < 0.6:  # a slip that is put right again soon after
            found.append(Event(at + random.random() ** 2 * 1.5, kind, who, -size))
        return found
    return [Event(at, kind, who)]


def random_history(seed: int) -> History:
    """The history that belongs to *seed*: some calm, one or two bursts of trouble, calm again."""
    random = Random(seed)
    dice = random.random()
    size = random.randint(1, 4) if dice < 0.9 else random.randint(5, 12)
    if dice > 0.985:
        size = random.randint(13, 50)
    # Few kinds in one history: what takes three of the same is not drowned by the others.
    kinds = random.choices(_NAMES, _WEIGHTS, k=random.randint(1, 5))
    events: list[Event] = []
    at = 2 + random.random() * 4
    for _ in range(random.choice((1, 1, 2))):
        length = random.random() * 3
        for _ in range(random.randint(1, 8)):
            events += _events(random, at + random.random() * length, kinds)
        at += length + random.random() * 3
    events.sort()
    gap = random.choice((0.15, 0.15, 0.15, 0.05, 0.3, 0.45))
    tail = 13.0 if random.random() < 0.15 else 8.0
    interval = random.choice((1.0, 1.0, 5.0, 0.5))
    if size > 12:  # neighbours register more than the millisecond apart to which the server tells
        gap, interval = min(gap, 0.3), max(interval, 1.0)
    # A settled group bears answers that take most of the gap, but not requests that overtake.
    spacing = (1 - 2 * gap) / (size + 7)
    timeout = random.choice((0.2, 0.5, 1.0, 2.0))
    return History(
        joins=[random.random() for _ in range(size)],
        events=events,
        until=events[-1].at + tail,
        interval=interval,
        gap=gap,
        timeout=timeout,
        there=random.choice((0.0, min(0.2 * spacing, 0.1 * gap))),
        back=min(random.choice((0.0, 0.01, 0.1, 0.6)) * gap, timeout / 2),
        seed=seed,
    )


def _bred(random: Random, history: History) -> History:
    """*history*, changed a little."""
    events = list(history.events)
    joins = list(history.joins)
    for _ in range(random.choice((1, 1, 2, 3))):
        dice = random.random()
        at = random.randrange(len(events)) if events else 0
        nudge = random.gauss(0, random.choice((0.02, 0.1, 0.5)))
        if dice < 0.3 or not events:
            kinds = random.choices(_NAMES, _WEIGHTS)
            events += _events(random, 3 + random.random() * 5, kinds)
        elif dice < 0.45:
            events.pop(at)
        elif dice < 0.8:
            events[at] = events[at]._replace(at=min(10.0, max(1.0, events[at].at + nudge)))
        elif dice < 0.92:
            size = events[at].size
            moved = size + nudge if events[at].kind == "step" else abs(size + nudge)
            events[at] = events[at]._replace(size=moved if size else 0.0)
        elif dice < 0.96:
            events[at] = events[at]._replace(who=random.randrange(1000))
        else:
            joins[random.randrange(len(joins))] = random.random()
    return replace(history, events=sorted(events)[:14], joins=joins)


def breed(seed: int, steps: int, run=World) -> tuple[float, History, int]:
    """
    Search for two owners of one slot, by changes that bring ownerships of one slot closer.

    Returns:
        How close they came (negative: a conflict), in which history, and how many were run.
    """
    random = Random(seed)
    best = History(
        joins=[random.random() for _ in range(random.choice((1, 1, 2, 2, 3, 4)))],
        until=14.0,
        gap=random.choice((0.15, 0.15, 0.3, 0.45, 0.05)),
        timeout=random.choice((0.2, 0.5, 1.0, 2.0)),
        seed=random.randrange(1000),
    )
    closest = math.inf
    for step in range(steps):
        history = _bred(random, best)
        apart = run(history).run().closest()
        if apart <= closest:
            best, closest = history, apart
        if closest < 0:
            return closest, best, step + 1
    return closest, best, steps

"""Random histories: a few calm intervals, then one or two bursts of trouble, then calm again."""

from __future__ import annotations

from random import Random

from simulation.membership_world import Event, History

# Kind, weight, and the sizes it comes in (intervals); what befalls replicas, then the server.
KINDS = (
    ("join", 5, None),
    ("leave", 2, None),
    ("crash", 4, None),
    ("freeze", 5, "long"),
    ("lost request", 2, None),
    ("lost answer", 3, None),
    ("slow request", 4, "long"),
    ("slow answer", 4, "long"),
    ("late send", 2, "long"),
    ("late read", 2, "long"),
    ("frozen answer", 2, "long"),
    ("step", 7, "step"),
    ("flush", 3, None),
    ("restart", 2, "short"),
    ("failover", 3, "short"),
)
_NAMES = [kind for kind, _, _ in KINDS]
_WEIGHTS = [weight for _, weight, _ in KINDS]
_SIZES = {kind: size for kind, _, size in KINDS}

EVEN = (0.25, 0.5, 0.75, 1.0, 1.0, 1.5, 2.0, 3.0, 5.0)


def _event(random: Random, at: float) -> list[Event]:
    kind = random.choices(_NAMES, _WEIGHTS)[0]
    who = random.randrange(1000)
    sizes = _SIZES[kind]
    if sizes == "long":
        return [Event(at, kind, who, random.random() ** 2 * 6)]
    if sizes == "short":
        return [Event(at, kind, who, random.random() ** 2)]
    if sizes == "step":
        size = random.choice(EVEN) if random.random() < 0.4 else random.random() ** 2 * 2.5
        size *= random.choice((-1, 1))
        found = [Event(at, kind, who, size)]
        if random.random() < 0.4:  # a slip that is put right again soon after
            found.append(Event(at + random.random() ** 2 * 1.5, kind, who, -size))
        return found
    return [Event(at, kind, who)]


def random_history(seed: int) -> History:
    """The history that belongs to *seed*."""
    random = Random(seed)
    dice = random.random()
    size = random.randint(1, 5) if dice < 0.88 else random.randint(6, 12)
    if dice > 0.985:
        size = random.randint(13, 50)
    spread = random.choice((0.0, 1.0, 1.0, 3.0))
    joins = [random.random() * spread for _ in range(size)]
    events: list[Event] = []
    at = 1 + random.random() * 5
    for _ in range(random.choice((1, 1, 2))):
        length = random.random() * 3
        for _ in range(random.randint(1, 7)):
            events += _event(random, at + random.random() * length)
        at += length + random.random() * 3
    events.sort()
    last = max(event.at for event in events)
    tail = 13.0 if random.random() < 0.15 else 7.0
    gap = random.choice((0.15, 0.15, 0.15, 0.05, 0.3))
    spacing = (1 - 2 * gap) / (size + 7)
    return History(
        joins=joins,
        events=events,
        until=last + tail,
        interval=random.choice((1.0, 1.0, 5.0, 0.5)),
        gap=gap,
        timeout=random.choice((0.2, 0.5, 1.0, 2.0)),
        there=random.choice((0.0, 0.2)) * spacing,
        back=random.choice((0.0, 0.01, 0.1, 0.6)) * gap,
        seed=seed,
    )

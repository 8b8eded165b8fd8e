"""Random histories of processes that share locks: some uses, and a few kinds of trouble."""

from __future__ import annotations

from random import Random

from simulation.lock_world import History, Use

TTL = 1.0


def random_history(seed, kinds=None, servers=None):
    """The history that belongs to *seed*; of these *kinds* of trouble and so many *servers*."""
    random = Random(seed)
    servers = servers or random.choice((1, 1, 3, 3, 3, 5))
    names = ("a", "b") if random.random() < 0.3 else ("a",)
    until = random.uniform(1.5, 3.5)
    uses = [_uses(random, names, until) for _ in range(random.choice((2, 2, 2, 3)))]
    history = History(
        servers,
        uses,
        latency=random.choice((0.0005, 0.005, 0.02, 0.06)),
        slow=random.choice((0.1, 0.6, 2.5)),
        skew=[random.uniform(-0.3, 0.3) for _ in range(servers)],
        drift=[random.uniform(-0.003, 0.003) * random.choice((0, 1)) for _ in uses],
        until=until + 1.0,
        seed=seed,
    )
    if kinds is None:
        kinds = random.sample(sorted(TROUBLES), random.choice((1, 1, 2, 2, 3)))
    if "clock back" in kinds:
        # Data lost while the clock falls behind what it was is out of reach with one server.
        kinds = [kind for kind in kinds if kind not in ("wipe", "failover")]
    for kind in kinds:
        TROUBLES[kind](random, history, until)
    history.events.sort()
    return history


def crowded(seed, kinds=None):
    """As *random_history*: one server, and one key that some always wait for."""
    history = random_history(seed, kinds, servers=1)
    random = Random(seed)
    history.uses = []
    for _ in range(random.randint(3, 5)):
        uses, at = [], random.random()
        for _ in range(4):
            hold = random.choice((0.01, 0.1, 0.5)) * random.random()
            ttl = random.choice((0.3, TTL, TTL, 5.0))
            uses.append(Use(at, ("a",), random.choice((None, None, 0.5)), hold, ttl))
            at += random.random() * 0.3
        history.uses.append(uses)
    return history


def _uses(random, names, until):
    uses, at = [], random.random() ** 2
    while at < until and len(uses) < 3:
        chosen = random.sample(names, random.randint(1, len(names)))
        hold = random.choice((0.01, 0.3, 1.0, 3.0)) * random.random()
        use = Use(at, tuple(chosen), random.choice((None, None, None, 0.0, 0.5)), hold, TTL)
        if random.random() < 0.1:
            use.min_hold = random.random()
        if random.random() < 0.1:
            use.max_hold = random.random() + 0.01
        uses.append(use)
        at += random.random() ** 2 * 2
    return uses


def _messages(random, history, until):
    rates = [random.choice((0.0, 0.03, 0.15)) for _ in range(4)]
    history.faults = tuple(rates)


def _frozen(random, history, until):
    for _ in range(random.randint(1, 3)):
        history.events.append(
            (random.random() * until, "freeze", random.randrange(9), random.random() * 2.5)
        )


def _stutter(random, history, until):
    history.stutter = (random.choice((0.01, 0.05)), random.choice((0.02, 0.4, 1.5)))


def _cut(random, history, until):
    for _ in range(random.randint(1, 2)):
        history.events.append(
            (random.random() * until, "cut", random.randrange(9), random.random() * 2.5)
        )


def _killed(random, history, until):
    history.events.append((random.random() * until, "die", random.randrange(9), 0.0))


def _blip(random, history, until):
    for _ in range(random.randint(1, 3)):
        history.events.append((random.random() * until, "blip", random.randrange(9), 0.5))


def _wipe(random, history, until):
    at, kind = random.random() * until, random.choice(("wipe", "wipe", "restart"))
    everybody = random.random() < 0.3
    for server in range(history.servers if everybody else 1):
        who = server if everybody else random.randrange(9)
        down = random.choice((0.0, 0.03, 0.5)) * random.random()
        history.events.append((at, kind, who, down))
        if random.random() < 0.4:  # and once more, soon after, or the next of them in turn
            history.events.append((at + random.random() * 1.5, "wipe", who, down))
        at += random.choice((0.0, 0.3, 1.2)) * random.random()


def _failover(random, history, until):
    who, at = random.randrange(9), random.random() * until
    history.events.append((at, "copy", who, 0.0))
    at += random.random() ** 2 * 1.5
    history.events.append((at, "failover", who, random.choice((0.0, 0.2)) * random.random()))
    if random.random() < 0.4:
        at += random.random()
        history.events.append((at, "failover", who, 0.01))


def _stall(random, history, until):
    for _ in range(random.randint(1, 2)):
        history.events.append(
            (random.random() * until, "stall", random.randrange(9), random.random() * 2)
        )


def _clock_back(random, history, until):
    who = random.randrange(9)
    for _ in range(random.randint(1, 2)):
        size = -random.choice((0.05, 1.0, 600.0)) * random.random()
        history.events.append((random.random() * until, "step", who, size))
    if random.random() < 0.5:
        # Forward only as far as the margin of a lease goes.
        history.events.append((random.random() * until, "step", who, 0.005 * TTL))


TROUBLES = {
    "messages": _messages,
    "frozen": _frozen,
    "stutter": _stutter,
    "killed": _killed,
    "cut": _cut,
    "blip": _blip,
    "wipe": _wipe,
    "failover": _failover,
    "stall": _stall,
    "clock back": _clock_back,
}

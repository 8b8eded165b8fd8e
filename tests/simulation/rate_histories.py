"""Random histories of fleets under limits: some tasks, and one to three kinds of trouble."""

from __future__ import annotations

from random import Random

from celery_atomicity.primitives.limit import Limit
from simulation.rate_world import History

TROUBLES = (
    "late",
    "frozen",
    "all frozen",
    "killed",
    "doubled",
    "lost",
    "away",
    "flushed",
    "changed",
    "held",
)


def random_history(seed: int) -> History:
    """The history that belongs to *seed*."""
    random = Random(seed)
    rate = 10 ** random.uniform(-1, 2.8)
    burst = random.choice((1.0, 1.0, 1.0, 2.0, 5.0, 20.0))
    cost = random.choice((1.0, 1.0, 1.0, 0.5, burst))
    limits = {"plain": [Limit("acme", rate, burst, cost)]}
    if random.random() < 0.3:
        tenant = Limit("tenant", rate * random.uniform(0.1, 1.5), random.choice((1.0, 3.0)))
        limits["both"] = [tenant, Limit("acme", rate, max(burst, 1.0), 1.0)]
    number = random.randint(8, 30)
    span = number / rate
    spread = random.choice((0.0, 0.0, 0.1, 0.5, 1.2)) * span
    tasks = [
        (
            random.random() ** 2 * spread,
            random.choice(list(limits)),
            random.choice((0.0, 0.01, 0.5)) * random.random(),
        )
        for _ in range(number)
    ]
    history = History(
        limits,
        tasks,
        workers=random.choice((1, 2, 3, 4, 8, 64)),
        slots=random.choice((1, 4, 8)),
        trip=random.choice((0.0005, 0.002, 0.02)),
        jitter=random.choice((0.0, 0.002, 0.04)),
        visibility=random.choice((1.0, 5.0)),
        longest=random.choice((900.0, 900.0, span / 3 + 1.0)),
        seed=seed,
    )
    for trouble in random.sample(TROUBLES, random.randint(1, 3)):
        _befall(history, trouble, span, random)
    return history


def _befall(history: History, trouble: str, span: float, random: Random) -> None:
    when = random.random() * span
    who = random.randrange(history.workers)
    if trouble == "late":
        history.back = random.choice((0.05, 0.2, 1.0))
    elif trouble == "frozen":
        history.frozen += [(when, random.choice((0.1, 0.6, 3.0)), who)]
    elif trouble == "all frozen":
        history.frozen += [(when, 3.0, None)]
    elif trouble == "killed":
        history.killed += [(when, who), (when + random.random() * span, who + 1)]
    elif trouble == "doubled":
        history.doubled = 0.2
    elif trouble == "lost":
        history.lost = 0.1
    elif trouble == "away":
        history.away += [(when, when + random.choice((0.2, 2.0)))]
    elif trouble == "flushed":
        history.flushed += [when]
    elif trouble == "changed":
        factor = random.choice((0.1, 0.5, 2.0, 10.0))
        history.changed += [(when, factor, random.choice((0.5, 1.0, 2.0)))]
        history.rollout = random.choice((0.0, span))
    else:
        history.held += [(when, random.choice(list(history.limits)), random.choice((0.3, 3.0)))]

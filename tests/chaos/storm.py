"""
When something is broken: which fault comes after which, and when it heals, as a seed has it.

One after the other is begun, whether or not those before have been healed. Every fault draws from
a sequence of its own, so that the seed decides, and not how long things take.
"""

import heapq
import itertools
import random
from threading import Event

from chaos.faults import KINDS, Faults
from chaos.journal import now

# Between two faults: mostly so short that they meet, at times long enough to settle in.
PAUSES = (*[lambda chance: chance.uniform(0.2, 1.6)] * 5, lambda chance: chance.uniform(3.0, 5.0))


class Storm:
    """
    Breaks things on *stage*.

    Args:
        rest: Called once in every moment in which there is nothing to do.
    """

    def __init__(self, stage, seed, rest=lambda: None):
        self.stage = stage
        self.seed = seed
        self.rest = rest
        self.count = 0
        self.chance = random.Random(f"{seed}")
        self._faults = Faults(stage, self._later)
        self._bag = []
        self._planned = []
        self._turn = itertools.count()
        self._pause = Event()

    def blow(self, seconds):
        """One fault after the other, for so long."""
        ends = now() + seconds
        next_at = now()
        while now() < ends:
            if now() >= next_at:
                next_at = now() + self.chance.choice(PAUSES)(self.chance)
                self._break_something()
            self.step()

    def step(self):
        """Do what has come due, and let a moment pass."""
        while self._planned and self._planned[0][0] <= now():
            heapq.heappop(self._planned)[2]()
        self.stage.tend()
        self.rest()
        self._pause.wait(0.02)

    def heal(self):
        """Undo everything, and do all that was planned, at once."""
        while self._planned:
            heapq.heappop(self._planned)[2]()

    def _later(self, seconds, action):
        heapq.heappush(self._planned, (now() + seconds, next(self._turn), action))

    def _break_something(self):
        if not self._bag:
            self._bag = list(KINDS)
            self.chance.shuffle(self._bag)
        self.count += 1
        chance = random.Random(f"{self.seed} {self.count}")
        self._faults.begin(self._bag.pop(), self.count, chance)

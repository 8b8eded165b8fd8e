"""What one beat has to look at, and when: the units it owns, with their last runs."""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from celery_atomicity.integration.beat.due import Unit

# The longest pause between two tries of a message that cannot be sent.
LONGEST_PAUSE = 60.0


class Group(NamedTuple):
    """Units of one entry with the same last run: what is due is one question for all of them."""

    entry: str
    last: int


class Agenda:
    """
    The owned units by when to look at them next; times in seconds on the caller's wall clock.

    A unit that was taken is not looked at again until it is put back. Not thread-safe.
    """

    def __init__(self) -> None:
        self.lasts: dict[Unit, int] = {}
        self._heap: list[tuple[float, int, Unit]] = []
        self._failures: dict[Unit, int] = defaultdict(int)
        self._count = 0

    def __len__(self) -> int:
        return len(self.lasts)

    def replace(self, lasts: Mapping[Unit, int]) -> None:
        """Begin anew with these units, to be looked at at once."""
        self.lasts = dict(lasts)
        self._heap = []
        self._failures.clear()
        for unit in self.lasts:
            self.put(unit, 0.0)

    def put(self, unit: Unit, at: float) -> None:
        """Look at *unit* again at *at*; nothing happens if it is no longer ours."""
        if unit in self.lasts:
            self._count += 1
            # Numbered, since units have no order and none shall overtake another of its time.
            heapq.heappush(self._heap, (at, self._count, unit))

    def ran(self, unit: Unit, last: int, at: float) -> None:
        """*unit* has a new last run, and is to be looked at again at *at*."""
        if unit in self.lasts:
            self.lasts[unit] = last
            self._failures.pop(unit, None)
            self.put(unit, at)

    def failed(self, unit: Unit, now: float) -> None:
        """*unit* could not be sent: look at it again after a growing pause."""
        count = self._failures[unit] = self._failures[unit] + 1
        self.put(unit, now + min(LONGEST_PAUSE, 2.0 ** min(count - 1, 16)))

    def drop(self, units: Iterable[Unit]) -> None:
        """Forget *units*, until they are loaded anew."""
        for unit in units:
            self.lasts.pop(unit, None)

    def next_at(self) -> float | None:
        """When to look next; None: there is nothing to look at."""
        return self._heap[0][0] if self._heap else None

    def take(self, now: float, most: int) -> dict[Group, list[Unit]]:
        """Take out at most *most* units whose time has come."""
        taken: dict[Group, list[Unit]] = defaultdict(list)
        while most and self._heap and self._heap[0][0] <= now:
            _, _, unit = heapq.heappop(self._heap)
            if unit in self.lasts:
                taken[Group(unit.entry, self.lasts[unit])].append(unit)
                most -= 1
        return taken

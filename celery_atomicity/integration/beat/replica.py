"""A beat as a replica among the beats of its group."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

from billiard import current_process

from celery_atomicity import clock

if TYPE_CHECKING:
    from celery_atomicity.atom import Atom
    from celery_atomicity.integration.beat.due import Unit

# A pause of the tick loop is no longer than this: what was assigned is taken up within a second.
LONGEST_NAP = 0.5  # seconds

# So many intervals without a pass of the tick loop, and it counts as stalled.
STALLED = 2

# What Celery calls the process of a beat that a worker started with ``-B``.
EMBEDDED = "Beat"


class Replica:
    """
    What this beat owns, for as long as its tick loop runs.

    `feed` is to be called by the tick loop. If it is not for longer than two intervals, the beat
    stops registering and stands down, so that others take over what it would not send.

    Args:
        atom: The group of the beats.
        interval: Its interval, in seconds.
    """

    def __init__(self, atom: Atom, interval: float) -> None:
        self.atom = atom
        self.interval = interval
        self.nap = min(LONGEST_NAP, interval / 2)
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._fed = clock.monotonic()
        self._changes = 0
        self._seen = -1
        self._down = False
        self._parent = os.getppid() if current_process().name == EMBEDDED else None

    def open(self) -> None:
        """Register from now on; does not block."""
        self.feed()
        self.atom.onassigned(self._assigned)
        self.atom.open(alive=self.alive)

    def close(self) -> None:
        """Stand down and stop registering."""
        self.atom.close()

    def heed(self, *, stand_down: bool) -> None:
        """Stand down, or no longer; what the worker was told that this beat is embedded in."""
        if stand_down is not self._down:
            self._down = stand_down
            if stand_down:
                self.atom.close()
            else:
                self.atom.open(alive=self.alive)

    def feed(self) -> None:
        """Say that the tick loop runs."""
        self._fed = clock.monotonic()

    def alive(self) -> bool:
        """Whether the tick loop has run lately; called by the loop that registers."""
        return clock.monotonic() - self._fed <= STALLED * self.interval

    @property
    def orphaned(self) -> bool:
        """Whether the worker that this beat is embedded in is gone."""
        return self._parent is not None and os.getppid() != self._parent

    def changed(self) -> bool:
        """Whether the assignment was another one, if only for a moment, since this last asked."""
        changes, self._seen = self._seen, self._changes
        return changes != self._seen

    @property
    def assigned(self) -> bool:
        """Whether anything can be owned at all now."""
        return self.atom.assignment is not None

    def owns(self, unit: Unit) -> bool:
        """Whether *unit* is ours at this moment."""
        return bool(self.atom.owns(*unit.place))

    def owned(self, total: int) -> list[int]:
        """The slots of ``0 .. total-1`` that are ours now."""
        return self.atom.slots(total) or []

    def _assigned(self, _assignment: Any) -> None:
        # Counted and not stored: what was lost and given back between two looks was somebody
        # else's in the meantime, and what is remembered of it is no longer true.
        self._changes += 1

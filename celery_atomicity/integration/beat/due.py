"""
Whether a tick is due and whose: the rules of beat, without clock, socket or Celery.

An entry has a *last run*, and what is due follows from it and from nothing else. It is the instant
that was due last, not the moment at which it was sent, so that an interval keeps its pace through
late sends, restarts and handovers. What came due meanwhile is one tick, as beat itself does it.

Instants are whole microseconds since the epoch: exact in a datetime, on the wire and as text.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Protocol

from celery_atomicity import keys

# How many slots the entries that are not partitioned are spread over.
ENTRY_SLOTS = 1024

SECOND = 1_000_000  # microseconds

_TICKS = uuid.UUID("7a0d2f0e-2b5c-5d0b-8a8e-3f3f4c1f6f10")


@dataclass(frozen=True, slots=True)
class Unit:
    """What has a last run of its own: an entry, or one slot of a partitioned entry."""

    entry: str
    slot: int | None = None
    slots: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """The slot by which it has an owner, and of how many."""
        if self.slot is None:
            return keys.slot_of(self.entry, ENTRY_SLOTS), ENTRY_SLOTS
        return self.slot, self.slots

    @property
    def field(self) -> str:
        """Its slot as text, empty where there is none."""
        return "" if self.slot is None else str(self.slot)


@dataclass(frozen=True, slots=True)
class Tick:
    """
    One due tick.

    Attributes:
        due: When it was due.
        becomes: The last run once it is sent.
        dropped: When the first of those was due that are given up as too old; None: none.
        sent: Whether it is to be sent; if not, all of it is given up.
    """

    due: int
    becomes: int
    dropped: int | None = None
    sent: bool = True


class Instants(Protocol):
    """When a schedule is due."""

    #: Microseconds between two instants where that is constant and counts from the last run.
    every: int | None

    def after(self, last: int) -> int:
        """The first instant after *last*."""


def judge(instants: Instants, last: int, now: int, grace: float | None = None) -> Tick | None:
    """
    Give the tick that is due at *now* after the last run at *last*; None if there is none.

    Args:
        instants: The schedule.
        last: The last run.
        now: The same clock's present.
        grace: Seconds after which an instant is too old to be made up for; None: never.
    """
    due = first = instants.after(last)
    if not last < due <= now:
        # A schedule that names its instant again, or would answer without end, has had it.
        return None
    becomes = max(_latest(instants, due, now), last + 1)
    if grace is None or now - due <= grace * SECOND:
        return Tick(due, becomes)
    due = _first_from(instants, due, now - round(grace * SECOND))
    return Tick(due, becomes, dropped=first, sent=due <= now)


def _latest(instants: Instants, due: int, now: int) -> int:
    """The newest instant up to *now*; where instants do not count from the last run, now does."""
    if not instants.every:
        return now
    return due + (now - due) // instants.every * instants.every


def _first_from(instants: Instants, due: int, horizon: int) -> int:
    if not instants.every:
        return instants.after(horizon - 1)
    return due + -(-(horizon - due) // instants.every) * instants.every


def tick_id(group: str, unit: Unit, last: int) -> str:
    """
    The task id of the tick that follows from the last run at *last*.

    The same in every beat, so that a tick that is sent again is known to be the same.
    """
    return str(uuid.uuid5(_TICKS, "\0".join((group, unit.entry, unit.field, str(last)))))

"""What is on record of the entries of the schedule, and what follows from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from celery.schedules import maybe_schedule

from celery_atomicity.integration.beat.due import SECOND
from celery_atomicity.integration.beat.instants import Schedule
from celery_atomicity.integration.beat.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from celery import Celery

    from celery_atomicity.connection import Clients
    from celery_atomicity.integration.beat.ledger import Record


@dataclass(frozen=True)
class Entry:
    """
    What beats have on record of an entry of the schedule; times in seconds since the epoch.

    Attributes:
        slots: Into how many it is parted; None: it is not.
        sent: When it, or a slot of it, was last sent; None: never.
        by: The beat that did.
        open: Ticks that were begun and are not recorded.
        owners: The beats that took it up last, and how many of its slots; one may have ended, if
            no other has taken up what it owned.
        last: When that was due which was last sent; None: never sent.
        coming: When it is due next; None: not known.
        dropped: When the first of those was due that were skipped, since they were later than
            ``atomicity_beat_grace`` or ``beat_cron_starting_deadline`` allows; None: none were.
        dropped_at: When they were skipped.
    """

    name: str
    slots: int | None
    sent: float | None
    by: str
    open: int
    owners: Mapping[str, int] = field(default_factory=dict)
    last: float | None = None
    coming: float | None = None
    dropped: float | None = None
    dropped_at: float | None = None


def entries_of(app: Celery, clients: Clients, group: str) -> tuple[Entry, ...]:
    """
    All entries that beats of *group* have asked for lately.

    Raises:
        Unavailable: The arbiter did not answer.
    """
    ledger = Ledger(clients, group)
    records = (ledger.record(entry) for entry in ledger.entries())
    return tuple(_entry(app, record) for record in records if record is not None)


def _entry(app: Celery, record: Record) -> Entry:
    slots = [slot for slot in record.last if slot is not None]
    sent = _seconds(record.at)
    return Entry(
        record.entry,
        slots=len(slots) or None,
        sent=sent,
        by=record.by,
        open=len(record.open),
        owners=dict(sorted(Counter(record.owners.values()).items())),
        last=None if sent is None else _seconds(max(record.last.values(), default=None)),
        coming=_seconds(record.coming or _first(app, record)),
        dropped=_seconds(record.dropped),
        dropped_at=_seconds(record.dropped_at),
    )


def _first(app: Celery, record: Record) -> int | None:
    """When an entry that was never sent is due, as far as the app's own schedule says."""
    said = (app.conf.beat_schedule or {}).get(record.entry)
    if not isinstance(said, dict) or not record.last:
        return None
    schedule = maybe_schedule(said["schedule"], said.get("relative", False), app=app)
    return Schedule(schedule).after(min(record.last.values()))


def _seconds(instant: int | None) -> float | None:
    return None if instant is None else instant / SECOND

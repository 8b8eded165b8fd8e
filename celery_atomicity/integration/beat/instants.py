"""When an entry of Celery's is due, as the rules of `due` want to know it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from celery.schedules import schedule as Interval  # noqa: N812 - it names a kind, not an instance

from celery_atomicity.integration.beat.due import SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def moment(when: datetime) -> int:
    """*when* in microseconds since the epoch; without a time zone it is UTC, as Celery has it."""
    aware = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // _MICROSECOND


def when(moment: int, like: datetime) -> datetime:
    """*moment* in the time zone of *like*; in UTC and naive if that has none."""
    utc = _EPOCH + timedelta(microseconds=moment)
    return utc.astimezone(like.tzinfo) if like.tzinfo else utc.replace(tzinfo=None)


class Schedule:
    """
    The instants of a schedule of any kind, judged at the one present that it is made in.

    Args:
        schedule: Celery's, or one that answers `remaining_estimate` as Celery's do.
    """

    def __init__(self, schedule: Any) -> None:
        self._now: datetime = schedule.now()
        self.now = moment(self._now)
        # A copy on which no time passes: every question is answered for the same present, to the
        # microsecond. Not by copy.copy, which takes a crontab apart and parses it again.
        self._pinned = object.__new__(type(schedule))
        self._pinned.__dict__.update(schedule.__dict__)
        self._pinned.nowfun = lambda: self._now
        self.every = _every(schedule)

    def after(self, last: int) -> int:
        """The first instant after *last*."""
        left: timedelta = self._pinned.remaining_estimate(when(last, self._now))
        return self.now + left // _MICROSECOND


def _every(schedule: Any) -> int | None:
    """Microseconds from one instant to the next, if they count from the last run."""
    if (
        isinstance(schedule, Interval)
        and type(schedule).remaining_estimate is Interval.remaining_estimate
        and not schedule.relative
    ):
        seconds: float = schedule.seconds
        return round(seconds * SECOND)
    return None


def start(entry: Any, now: int) -> int:
    """
    Where counting starts for *entry*, that has no last run yet: now, so that nothing is sent for
    the past.

    Except what is to be sent at an instant of its own, which it is in want of a record:
    django-celery-beat's clocked tasks, and the first run of its tasks with a start time.
    """
    clocked = getattr(entry.schedule, "clocked_time", None)
    if clocked is not None:
        return min(now, moment(clocked) - 1)
    begins = getattr(getattr(entry, "model", None), "start_time", None)
    every = _every(entry.schedule)
    if begins is not None and every and moment(begins) > now:
        return moment(begins) - every
    return now

"""
What one beat has to send, and when: the entries of its scheduler, as far as it owns them.

Here the entries that Celery keeps meet the last runs that the ledger keeps.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from celery.schedules import crontab

from celery_atomicity import events
from celery_atomicity.integration.beat.agenda import Agenda, Group
from celery_atomicity.integration.beat.due import SECOND, Tick, Unit, judge
from celery_atomicity.integration.beat.instants import Schedule, moment, start, when
from celery_atomicity.integration.beat.partitioned import Fan, fan_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from celery_atomicity.integration.beat.ledger import Ledger
    from celery_atomicity.integration.beat.replica import Replica

# How often the records of what is owned are read anew, which also keeps them from expiring.
REFRESH = 3600.0  # seconds

# Between two looks at an entry that is due by its own account and has no instant to show for it.
NO_INSTANT = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Due:
    """
    A tick to be sent.

    Attributes:
        unit: Of what.
        last: The last run that it follows from, as it is recorded.
        tick: The tick.
        at: When to look at the unit again, once this is sent; on the app's clock, in seconds.
    """

    unit: Unit
    last: int
    tick: Tick
    at: float

    def first_alone(self) -> Due:
        """
        This tick without those that came due after it, which are another one, at once.

        For a tick that somebody else began: the copy that runs may be that one's, which was sent
        before they were due, and makes up for none of them.
        """
        return replace(self, tick=replace(self.tick, becomes=self.tick.due), at=0.0)


class Plan:
    """
    The owned units of *scheduler*'s entries, by when to look at them. Not thread-safe.

    Args:
        scheduler: Celery's, or one that has its methods.
        ledger: Knows the last runs.
        grace: Seconds after which a missed tick is dropped; None: never.
    """

    def __init__(self, scheduler: Any, ledger: Ledger, grace: float | None) -> None:
        self.scheduler = scheduler
        self.ledger = ledger
        self.grace = grace
        self.entries: dict[str, Any] = {}
        self.agenda = Agenda()
        self.stale = True
        self._own: dict[str, tuple[Any, int]] = {}
        self._advanced: dict[str, int] = {}
        self._looked = self._loaded = 0.0

    def now(self) -> float:
        """The app's clock, in seconds since the epoch."""
        return moment(self.scheduler.app.now()) / SECOND

    def next_in(self) -> float | None:
        """Seconds until the next look; None: nothing is planned."""
        at = self.agenda.next_at()
        return None if at is None else at - self.now()

    def look(self, replica: Replica) -> None:
        """
        Take in changes of the schedule: as often as Celery does, which is when something is due.

        If the plan is *stale*, everything is owned, loaded and looked at anew.
        """
        now = self.now()
        if _past(self._loaded, REFRESH, now):
            self.stale = True
        at = self.agenda.next_at()
        due = at is not None and at <= now
        if not (self.stale or due or _past(self._looked, self.scheduler.max_interval, now)):
            return
        self._looked = now
        schedule = self.scheduler.schedule
        equal = self.scheduler.schedules_equal(self.scheduler.old_schedulers, schedule)
        if self.stale or not equal:
            self.scheduler.old_schedulers = copy.copy(schedule)
            self._make(replica, schedule)

    def _make(self, replica: Replica, schedule: Mapping[str, Any]) -> None:
        self.entries = dict(schedule)
        self._own = {
            name: (model, self._own_last(name, entry, model))
            for name, entry in self.entries.items()
            if (model := getattr(entry, "model", None)) is not None
        }
        units = [unit for name in self.entries for unit in self._units(replica, name)]
        known = {} if self.stale else self.agenda.lasts
        loaded = self._load(unit for unit in units if unit not in known)
        self.agenda.replace({u: known[u] if u in known else loaded[u] for u in units})
        if self.stale:
            self.stale = False
            self._loaded = self._looked

    def _own_last(self, name: str, entry: Any, model: Any) -> int:
        """
        The last run by the database's account.

        It counts where it is the later one: a task that was off is not due for that time. It does
        not for a clocked task, which is due at its instant, however long before it was made.
        """
        if hasattr(entry.schedule, "clocked_time"):
            return 0
        known, last = self._own.get(name, (None, 0))
        return last if known is model else moment(entry.last_run_at)

    def _units(self, replica: Replica, name: str) -> list[Unit]:
        fan = self.fan(name)
        if fan is not None:
            return [Unit(name, slot, fan.slots) for slot in replica.owned(fan.slots)]
        unit = Unit(name)
        return [unit] if replica.owns(unit) else []

    def fan(self, name: str) -> Fan | None:
        """How the entry of this name is fanned out; None: not."""
        entry = self.entries[name]
        try:
            return fan_of(self.scheduler.app.tasks.get(entry.task), entry.options)
        except ValueError as error:
            # The entry is wrong and not the code, so there is no traceback to show.
            events.entry_not_fanned.tell(entry=name, reason=str(error))
            return None

    def _load(self, units: Iterable[Unit]) -> dict[Unit, int]:
        now = round(self.now() * SECOND)
        return self.ledger.load({unit: start(self.entries[unit.entry], now) for unit in units})

    # -- what is due ----------------------------------------------------------------------------

    def take(self, most: int) -> list[Due]:
        """Take out what is due, *most* units of it at most."""
        found = []
        for group, units in self.agenda.take(self.now(), most).items():
            now = self.now()
            try:
                tick, again = self._judge(group)
            except Exception as error:  # noqa: BLE001 - whatever a schedule raises
                # One entry whose next run cannot be told must not stop all others.
                tick, again = None, self.scheduler.max_interval
                events.entry_unclear.tell(entry=group.entry, seconds=again, error=error)
            if tick is None:
                for unit in units:
                    self.agenda.put(unit, now + again)
            else:
                found += [Due(unit, group.last, tick, now + again) for unit in units]
        return found

    def _judge(self, group: Group) -> tuple[Tick | None, float]:
        """The tick that is due, if one is, and seconds until the next look."""
        entry = self.entries[group.entry]
        _, own = self._own.get(group.entry, (None, 0))
        last = max(group.last, own)
        entry.last_run_at = when(last, entry.default_now())
        # Asked before the schedule itself, since entries have rules of their own: to be switched
        # off, to begin or to expire.
        is_due, again = self.scheduler.is_due(entry)
        if not isinstance(again, int | float):
            again = self.scheduler.max_interval
        if not is_due:
            return None, again
        schedule = Schedule(entry.schedule)
        tick = judge(schedule, last, schedule.now, self._grace(entry))
        if tick is None:
            return None, max(again, NO_INSTANT)
        if _once(entry):
            return tick, 0.0  # it switches itself off when it is asked again
        return tick, (schedule.after(tick.becomes) - schedule.now) / SECOND

    def _grace(self, entry: Any) -> float | None:
        deadline = self.scheduler.app.conf.beat_cron_starting_deadline
        if deadline is None or not isinstance(entry.schedule, crontab):
            return self.grace
        return float(deadline) if self.grace is None else min(self.grace, float(deadline))

    # -- what became of it ----------------------------------------------------------------------

    def advance(self, due: Due) -> None:
        """Tell the scheduler that the entry was sent; once a tick, however many slots it has."""
        name = due.unit.entry
        if self._advanced.get(name) == due.tick.becomes:
            return
        self._advanced[name] = due.tick.becomes
        entry = self.scheduler.reserve(self.entries[name])
        self.entries[name] = entry
        entry.last_run_at = when(due.tick.becomes, entry.default_now())
        model = getattr(entry, "model", None)
        if model is not None:
            model.last_run_at = when(due.tick.becomes, model.last_run_at)
        if _once(entry):
            # Its database is what tells the other beats that it has run.
            self.scheduler.sync()

    def recorded(self, due: Due) -> None:
        """The ledger has the new last run."""
        self.agenda.ran(due.unit, due.tick.becomes, due.at)

    def reload(self, units: Iterable[Unit]) -> None:
        """Ask the ledger anew for *units* that were taken out."""
        mine = [unit for unit in units if unit in self.agenda.lasts]
        if mine:
            for unit, last in self._load(mine).items():
                self.agenda.ran(unit, last, 0.0)


def _past(since: float, seconds: float, now: float) -> bool:
    """Whether that many seconds have passed; also if the clock has run back."""
    return not since <= now < since + seconds


def _once(entry: Any) -> bool:
    return bool(getattr(getattr(entry, "model", None), "one_off", False))

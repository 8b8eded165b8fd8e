"""
Any number of beats: each sends what it owns, and what was sent is on record for all of them.

    celery -A proj beat -S atomicity
    celery -A proj worker -B -S atomicity
    celery -A proj beat -S celery_atomicity.integration.beat:DatabaseScheduler

The tick loop is Celery's own service. A tick of it is one pass over what is due: begun in one
round trip, published, and recorded in another.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from celery.beat import PersistentScheduler, Scheduler
from celery.exceptions import ImproperlyConfigured

from celery_atomicity import clock, events
from celery_atomicity.errors import Unavailable
from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.beat.copies import copy_of
from celery_atomicity.integration.beat.due import SECOND
from celery_atomicity.integration.beat.ledger import Claim, Ledger, Outcome
from celery_atomicity.integration.beat.plan import Due, Plan
from celery_atomicity.integration.beat.publisher import Published, Publisher, connect
from celery_atomicity.integration.beat.replica import Replica

if TYPE_CHECKING:
    from celery_atomicity.integration.beat.ledger import Begun

# Ticks that are begun and recorded together; in between, a crash leaves at most so many in doubt.
BATCH = 250


class _Partitioned:
    """
    Mixed in before one of Celery's schedulers, which keeps the entries and publishes.

    Nothing happens before the first tick: schedulers are also made to be looked at.
    """

    # Of the scheduler below.
    app: Any
    max_interval: float

    _replica: Replica | None = None
    _busy = False
    _away = False

    def tick(self, *_args: Any, **_options: Any) -> float:
        """Send what is due and owned; return how many seconds to sleep until the next look."""
        replica = self._replica or self._begin()
        replica.feed()
        if replica.orphaned:
            events.beat_orphaned.tell()
            raise SystemExit
        self._busy = True
        try:
            return self._pass(replica)
        except Unavailable as error:
            self._outage(error)
            return replica.nap
        finally:
            self._busy = False

    def close(self) -> None:
        """Stand down, record what was sent, and close what the scheduler below has open."""
        if self._busy:
            # From a signal's handler, in the middle of a pass whose locks it would wait for. The
            # service calls again as soon as the handler has ended that pass.
            return
        replica, self._replica = self._replica, None
        if replica is not None:
            try:
                self._settle()
            except Unavailable as error:
                events.beat_unrecorded.tell(reason=str(error))
            replica.close()
        super().close()  # type: ignore[misc]

    def _begin(self) -> Replica:
        atomicity = Atomicity.of(self.app)
        settings = atomicity.settings
        replica = Replica(atomicity.atom(f"{settings.group}.beat"), settings.interval)
        self._ledger = Ledger(atomicity.clients, settings.group, replica.name)
        self._plan = Plan(self, self._ledger, settings.beat_grace)
        self._unsettled: list[tuple[Outcome, Due]] = []
        self._dropped: list[Due] = []
        self._publisher = Publisher(self)
        atomicity.announce()
        replica.open()
        self._replica = replica
        return replica

    def _pass(self, replica: Replica) -> float:
        replica.heed(stand_down=Atomicity.of(self.app).standing.is_down)
        if replica.changed():
            self._plan.stale = True
        # First, and whatever is owned now: it says what has really been sent.
        self._settle()
        if not replica.assigned:
            return replica.nap
        self._plan.look(replica)
        if not self._publisher.pause:
            self._send(replica, self._plan.take(BATCH))
        if self._away:
            self._away = False
            events.beat_goes_on.tell()
        left = self._plan.next_in()
        if left is None:
            return replica.nap
        return min(max(left, self._publisher.pause, 0.0), replica.nap, self.max_interval)

    def _outage(self, error: Unavailable) -> None:
        # What was taken out and not sent is found again by looking at everything anew.
        self._plan.stale = True
        if not self._away:
            self._away = True
            events.beat_waits.tell(reason=str(error))

    # -- sending --------------------------------------------------------------------------------

    def _send(self, replica: Replica, dues: list[Due]) -> None:
        if not dues:
            return
        claims = [Claim(due.unit, due.last, uuid4().hex) for due in dues]
        moved = []
        for due, begun in zip(dues, self._ledger.claim(claims), strict=True):
            if begun is None:
                moved.append(due.unit)
            elif not due.tick.sent:
                self._settled(begun, due)
            elif self._publisher.pause or not replica.owns(due.unit):
                self._give_back(begun, due)
            else:
                replica.feed()
                self._publish(begun, due if begun.alone else due.first_alone())
        self._say_dropped()
        self._settle()
        self._plan.reload(moved)

    def _settled(self, begun: Begun, due: Due) -> None:
        coming = round(due.at * SECOND) or None
        outcome = Outcome(begun, due.tick.becomes, due.tick.dropped, coming)
        self._unsettled.append((outcome, due))
        if due.tick.dropped is not None:
            self._dropped.append(due)

    def _say_dropped(self) -> None:
        """One line an entry, however many slots it has."""
        dropped: dict[str, list[str]] = {}
        for due in self._dropped:
            entry, since = due.unit.entry, clock.utc((due.tick.dropped or 0) / SECOND)
            dropped.setdefault(entry, []).append(since)
            events.tick_skipped.tell(entry=entry, slot=due.unit.slot, due=since)
        self._dropped.clear()
        for entry, instants in dropped.items():
            events.ticks_skipped.tell(entry=entry, count=len(instants), due=min(instants))

    def _give_back(self, begun: Begun, due: Due) -> None:
        """Leave the tick to whoever owns it next, or to the next pass."""
        if begun.alone:
            self._unsettled.append((Outcome(begun, None), due))
        # Else it stays open: that another copy may exist is not to be forgotten.
        self._plan.agenda.put(due.unit, 0.0)

    def _settle(self) -> None:
        """Record what was sent; what cannot be recorded now is tried at the next pass."""
        now = round(self._plan.now() * SECOND)
        while self._unsettled:
            batch = self._unsettled[:BATCH]
            answers = self._ledger.settle([outcome for outcome, _ in batch], now)
            del self._unsettled[: len(batch)]
            moved = []
            for (outcome, due), done in zip(batch, answers, strict=True):
                if outcome.becomes is None:
                    continue
                if done:
                    self._plan.recorded(due)
                else:
                    moved.append(due.unit)
            self._plan.reload(moved)

    def _publish(self, begun: Begun, due: Due) -> None:
        """Publish one message; if that raises, the tick stays open, or is given back."""
        name = due.unit.entry
        entry, fan = self._plan.entries[name], self._plan.fan(name)
        message = copy_of(entry, due, fan, self._ledger.group, begun.claim.copy)
        published = self._publisher.publish(message)
        if published is Published.YES:
            late = self._plan.now() - due.tick.due / SECOND
            events.tick_sent.tell(entry=name, slot=due.unit.slot, late=max(0.0, late))
            self._settled(begun, due)
            self._plan.advance(due)
            return
        events.tick_failed.tell(entry=name, slot=due.unit.slot)
        if published is Published.AWAY:
            self._give_back(begun, due)
        elif published is Published.DOUBTFUL:
            self._plan.agenda.put(due.unit, 0.0)
        else:
            self._plan.agenda.failed(due.unit, self._plan.now())

    def apply_async(self, entry: Any, *args: Any, **options: Any) -> Any:
        """Publish an entry's message, and remember it if that raises."""
        try:
            return super().apply_async(entry, *args, **options)  # type: ignore[misc]
        except Exception as error:
            if self._replica is not None:
                self._publisher.refused(error)
            raise

    def _ensure_connected(self) -> Any:
        return connect(self.connection)  # type: ignore[attr-defined]


class _Memory(dict[str, Any]):
    """Stands for the file of the schedule: beats that share a directory would fight for it."""

    def sync(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """Nothing is open."""


class _Persistence:
    @staticmethod
    def open(*_args: Any, **_options: Any) -> _Memory:
        return _Memory()


class PartitionedScheduler(_Partitioned, PersistentScheduler):
    """
    Celery's scheduler of ``beat_schedule``, for any number of beats.

    What persists is the ledger, so that there is no file: ``--schedule`` is without effect.
    """

    persistence = _Persistence

    @property
    def info(self) -> str:
        """What the banner of ``celery beat`` says of it."""
        return "    . ledger -> shared, on the arbiter of celery-atomicity"


@cache
def partitioned_scheduler(base: type[Scheduler]) -> type[Scheduler]:
    """
    A scheduler as *base*, for any number of beats.

    Raises:
        ImproperlyConfigured: *base* has a tick of its own, and so decides by itself what is due.
    """
    if base.tick is not Scheduler.tick:
        raise ImproperlyConfigured(
            f"{base.__module__}.{base.__qualname__} has its own way to tick (as RedBeat has, which "
            "brings its own lock), so its ticks cannot be shared out; use a scheduler that leaves "
            "tick() to Celery, such as the default one or django-celery-beat's."
        )
    return type(f"Partitioned{base.__name__}", (_Partitioned, base), {"__module__": __name__})

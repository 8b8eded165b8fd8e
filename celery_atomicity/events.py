"""
What happens that somebody may want to know: one event for each kind of fact, told where it happens.

Log lines, metrics and Celery's signals are all made of these, so that they say the same. Who tells
an event knows nothing of those who hear it; on a hot path it is told only if there is somebody:

    if events.lock_acquired.listeners:
        events.lock_acquired.tell(group=..., waited=...)

An event with a level is also a line in the log: a constant message, with the facts as attributes of
the record, and the event's name as its attribute ``event``. Seconds are seconds everywhere.
"""

from __future__ import annotations

import logging
from logging import CRITICAL, DEBUG, ERROR, INFO, WARNING
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = "celery_atomicity"


class Event:
    """
    One kind of fact.

    Telling it never raises, and waits for nobody but the listeners. These are called in the thread
    to which it happens, perhaps under a lock, and so have to be quick. One that raises is logged,
    and the others are called all the same.

    Args:
        area: The last part of the name of its line's logger.
        facts: The names of what is told.
        level: Of its line in the log; None: it has none.
        text: The line.
    """

    __slots__ = ("_logger", "area", "facts", "level", "listeners", "name", "text")

    def __init__(self, area: str, facts: str, level: int | None = None, text: str = "") -> None:
        self.name = ""
        self.area = area
        self.facts = tuple(facts.split())
        self.level = level
        self.text = text
        self.listeners: tuple[Callable[..., object], ...] = ()
        # Looked up here, once: that takes a lock of the whole process, which a time limit that
        # strikes just then leaves locked for good.
        self._logger = logging.getLogger(f"{ROOT}.{area}")

    def hear(self, listener: Callable[..., object]) -> Callable[[], None]:
        """Call *listener* with the facts, by name, from now on; what is returned ends that."""
        # Replaced and never changed, since others may be going through it.
        self.listeners = (*self.listeners, listener)

        def off() -> None:
            self.listeners = tuple(one for one in self.listeners if one is not listener)

        return off

    def tell(self, **facts: Any) -> None:
        """Write the line, if there is one, and call the listeners."""
        if self.level is not None:
            self._log(self.level, dict(facts))
        for listener in self.listeners:
            try:
                listener(**facts)
            except Exception as error:  # noqa: BLE001 - it is somebody else's, and must do no harm
                listener_raised.tell(what=self.name, error=error)

    def _log(self, level: int, facts: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            error = facts.pop("error", None)
            shown = {name: _shown(value) for name, value in facts.items()}
            self._logger.log(
                level,
                self.text,
                *([shown] if shown else ()),
                exc_info=error,
                extra={"event": self.name, **facts},
                stacklevel=3,  # where it is told
            )

    def __repr__(self) -> str:
        return f"<Event {self.name}>"


def _shown(value: object) -> object:
    """A fact for a person to read."""
    return ", ".join(map(repr, value)) if isinstance(value, tuple | list) else value


# -- the app ---------------------------------------------------------------------------------------

#: A worker or a beat begins.
started = Event(
    "app",
    "group addresses source",
    INFO,
    "Atomicity: group %(group)s, arbiter %(addresses)s (from %(source)s)",
)
started_off = Event(
    "app",
    "",
    WARNING,
    "Atomicity is off: no arbiter is configured, so no slot is owned and locks and limits raise "
    "NotConfigured; set atomicity_redis or ATOMICITY_REDIS",
)
setting_is_odd = Event("app", "advice", WARNING, "Atomicity: %(advice)s")
stood_down = Event(
    "app",
    "groups",
    INFO,
    "This worker stands down on request, in %(groups)s: it owns no slots until `celery control "
    "atomicity_resume`, or a restart",
)
resumed = Event("app", "groups", INFO, "This worker takes part again on request, in %(groups)s")
listener_raised = Event("app", "what error", ERROR, "What listens to %(what)s raised")

# -- the arbiter -----------------------------------------------------------------------------------

#: Once an outage and address, by the first of a worker's processes that meets it.
arbiter_away = Event(
    "arbiter", "address reason", WARNING, "The arbiter at %(address)s does not answer: %(reason)s"
)
arbiter_back = Event(
    "arbiter",
    "address seconds",
    WARNING,
    "The arbiter at %(address)s answers again, after %(seconds).1f s",
)
arbiter_sits_out = Event(
    "arbiter",
    "address seconds",
    WARNING,
    "The arbiter at %(address)s has just started or failed over and may have lost leases; for "
    "%(seconds).1f s more it only renews those that are held",
)

#: Once for each error that it answers a script with.
arbiter_refuses = Event(
    "arbiter",
    "address reason",
    WARNING,
    "The arbiter at %(address)s refuses what it is asked: %(reason)s",
)
#: Our user may not ask it INFO.
arbiter_is_unknown = Event(
    "arbiter",
    "address",
    WARNING,
    "The user at %(address)s may not run INFO: that this server restarted and lost leases goes "
    "unnoticed, so that a key may then be granted while somebody holds it, and each new connection "
    "counts as a restart for slots; docs/security.md says what its user needs",
)
mailbox_gone = Event(
    "arbiter",
    "reason",
    DEBUG,
    "The connection by which waiters are rung is gone, and made anew: %(reason)s",
)

# -- slots -----------------------------------------------------------------------------------------

#: A registration was answered, *seconds* after it was sent.
registered = Event("slots", "group seconds")
#: It was not, in so many seconds.
registration_failed = Event("slots", "group seconds reason")
registration_unclear = Event(
    "slots", "group reason", WARNING, "Group %(group)s: this replica owns nothing: %(reason)s"
)
registration_broke = Event(
    "slots", "group error", ERROR, "Group %(group)s: registering failed; it is tried again"
)
assigned = Event(
    "slots", "group i n", INFO, "Group %(group)s: this replica is number %(i)d of %(n)d"
)
unassigned = Event("slots", "group", INFO, "Group %(group)s: this replica owns nothing now")
replica_fell = Event(
    "slots",
    "group error",
    CRITICAL,
    "Group %(group)s: this replica has stopped registering and owns nothing, because a listener or "
    "its own loop raised; it takes part again after a restart",
)

# -- locks -----------------------------------------------------------------------------------------

#: A lease was granted; *contended*: not at the first attempt.
lock_acquired = Event("locks", "group waited contended")
#: It was not, for as long as was waited; *unreachable*: since too few addresses answered.
lock_timed_out = Event("locks", "group waited unreachable")
#: So many leases were renewed in one round trip, or one of them was not.
lease_renewed = Event("locks", "group")
#: *refused*: its key is gone, so that it is lost; else too few answered and it is tried again.
renewal_failed = Event("locks", "group refused")
lease_lost = Event(
    "locks",
    "group keys fence holder reason",
    WARNING,
    "Group %(group)s: the lease of %(keys)s was lost by %(holder)s: %(reason)s",
)
on_lost_raised = Event(
    "locks", "keys error", ERROR, "An on_lost callback raised, for the lease of %(keys)s"
)
renewing_broke = Event("locks", "error", ERROR, "Renewing leases failed; it is tried again")
release_failed = Event(
    "locks",
    "group keys seconds",
    WARNING,
    "Group %(group)s: %(keys)s could not be released on a majority of addresses; it runs out "
    "within %(seconds).1f s",
)
left_by_dead = Event(
    "locks", "pid keys", INFO, "Process %(pid)d is gone; what it held is free: %(keys)s"
)
stuck_by_dead = Event(
    "locks",
    "pid keys",
    WARNING,
    "Process %(pid)d is gone, and what it held could not be released; it runs out: %(keys)s",
)
watching_broke = Event(
    "locks",
    "error",
    ERROR,
    "Looking for what killed processes held failed; it is repeated",
)
#: A task's key was not to be had; *policy* is what becomes of it: retry, skip or raise.
conflict = Event("locks", "group task policy")
asks_again = Event(
    "locks",
    "task task_id keys holder seconds",
    DEBUG,
    "%(task)s[%(task_id)s] asks again in %(seconds).1f s: %(keys)s is held by %(holder)s",
)
task_holds = Event("locks", "task keys fence", DEBUG, "%(task)s holds %(keys)s, fence %(fence)d")
outlived_lease = Event(
    "locks",
    "task keys reason",
    WARNING,
    "%(task)s went on to its end without its lease of %(keys)s: %(reason)s",
)

# -- rates -----------------------------------------------------------------------------------------

#: One question, and what it came to: start, promise (a place in time), again (with the place that
#: it has), refusal (no place near enough) or unanswered.
rate_decided = Event("rates", "group task scope decision")
#: A task does not start before so many seconds.
rate_delayed = Event(
    "rates",
    "group task task_id scope keys seconds",
    DEBUG,
    "%(task)s[%(task_id)s] starts in %(seconds).3f s at the earliest, over its limit of %(keys)s",
)
limits_not_kept = Event(
    "rates",
    "reason",
    WARNING,
    "Tasks with when_unavailable='run' run without their limits until the arbiter answers: "
    "%(reason)s",
)

# -- tasks -----------------------------------------------------------------------------------------

task_skipped = Event("tasks", "task task_id why", INFO, "Skipped %(task)s[%(task_id)s]: %(why)s")
queue_away = Event(
    "tasks",
    "task task_id reason",
    WARNING,
    "%(task)s[%(task_id)s] holds its place in the pool until its queue can be reached: %(reason)s",
)
copy_skipped = Event(
    "tasks",
    "task task_id",
    INFO,
    "Task %(task)s[%(task_id)s] is not run: another copy of it is.",
)
copies_unchecked = Event(
    "tasks",
    "task task_id reason",
    WARNING,
    "Task %(task)s[%(task_id)s] runs unchecked, as do others until the arbiter answers: %(reason)s",
)

# -- beat ------------------------------------------------------------------------------------------

#: A tick was published, so many seconds after it was due.
tick_sent = Event("beat", "entry slot late")
#: Publishing one failed; Celery's beat logs why.
tick_failed = Event("beat", "entry slot")
#: Those that were due from *due* on, an ISO 8601 instant, are given up as too old; of an entry that
#: is fanned out, for one slot.
tick_skipped = Event("beat", "entry slot due")
#: The same of all the slots of an entry at once.
ticks_skipped = Event(
    "beat",
    "entry count due",
    WARNING,
    "beat: %(entry)s: dropped what was due from %(due)s on: later than atomicity_beat_grace or "
    "beat_cron_starting_deadline allows",
)
#: The warning is that of the address.
beat_waits = Event(
    "beat",
    "reason",
    INFO,
    "beat: nothing is sent while the arbiter does not answer: %(reason)s",
)
scheduler_taken = Event(
    "beat", "scheduler", INFO, "-S %(scheduler)s is beat's scheduler here, as in `celery beat`."
)
broker_away = Event("beat", "error", ERROR, "beat: Connection error")
beat_goes_on = Event("beat", "", INFO, "beat: the arbiter answers again.")
beat_unrecorded = Event(
    "beat", "reason", WARNING, "beat: what was sent last is not recorded: %(reason)s"
)
beat_orphaned = Event(
    "beat", "", WARNING, "beat: the worker that it is embedded in has ended, and so does it."
)
entry_not_fanned = Event(
    "beat", "entry reason", ERROR, "beat: %(entry)s is sent as one message: %(reason)s"
)
entry_unclear = Event(
    "beat",
    "entry seconds error",
    ERROR,
    "beat: cannot tell the next run of %(entry)r; again in %(seconds)g s.",
)

EVENTS: dict[str, Event] = {
    name: event for name, event in globals().items() if isinstance(event, Event)
}
for _name, _event in EVENTS.items():
    _event.name = _name

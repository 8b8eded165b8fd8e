"""
What happens, as metrics of OpenTelemetry: by its API alone, so that the provider is the user's.

Without ``opentelemetry-api`` (the extra ``otel``) nothing listens to any event. With it and without
a provider, its instruments do nothing. Names, units and attributes are listed in docs/metrics.md.
No attribute is made of a key or of the arguments of a task: their number knows no bounds.
"""

from __future__ import annotations

from collections import Counter
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

from celery_atomicity import events
from celery_atomicity.atom import arbiters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from opentelemetry.metrics import MeterProvider, Observation

    from celery_atomicity.events import Event

#: The meter's name.
SCOPE = "celery_atomicity"

#: A tick that is sent later than so many seconds after it was due counts as late.
LATE = 1.0

GROUP = "atomicity.group"
OUTCOME = "atomicity.outcome"
POLICY = "atomicity.policy"
DECISION = "atomicity.decision"
RATE_SCOPE = "atomicity.scope"
ADDRESS = "atomicity.address"
TASK = "celery.task_name"
ERROR = "error.type"  # OpenTelemetry's own: of what failed, and absent of what did not


class Metric(NamedTuple):
    """
    One metric.

    Attributes:
        kind: Which ``create_...`` of a meter makes its instrument.
        attributes: What its measurements may have.
        bounds: Of a histogram's buckets; OpenTelemetry's own are meant for milliseconds.
    """

    name: str
    kind: str
    unit: str
    description: str
    attributes: tuple[str, ...]
    bounds: tuple[float, ...] = ()


_MOMENTS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_WAITS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)

LOCK_WAIT = Metric(
    "atomicity.lock.wait_time",
    "histogram",
    "s",
    "From asking for a lock to holding it, or to giving up",
    (GROUP, OUTCOME),
    _WAITS,
)
LOCK_CONFLICTS = Metric(
    "atomicity.lock.conflicts",
    "counter",
    "{conflict}",
    "Keys that were taken when they were asked for",
    (GROUP, POLICY, TASK),
)
LEASES = Metric(
    "atomicity.lease.count",
    "observable_up_down_counter",
    "{lease}",
    "Leases that this process holds",
    (GROUP,),
)
LEASE_LOSSES = Metric(
    "atomicity.lease.losses",
    "counter",
    "{lease}",
    "Leases that ended while their holder still ran",
    (GROUP,),
)
LEASE_RENEWALS = Metric(
    "atomicity.lease.renewals",
    "counter",
    "{renewal}",
    "Renewals of leases",
    (GROUP, ERROR),
)
RATE_DECISIONS = Metric(
    "atomicity.rate.decisions",
    "counter",
    "{decision}",
    "What became of those who asked to start under a limit",
    (GROUP, RATE_SCOPE, DECISION),
)
RATE_DELAY = Metric(
    "atomicity.rate.delay",
    "histogram",
    "s",
    "For how long a task over its limit was sent away at once",
    (GROUP, RATE_SCOPE),
    _WAITS,
)
SLOT_SHARE = Metric(
    "atomicity.slot.share",
    "observable_gauge",
    "1",
    "The part of all slots that this replica owns",
    (GROUP,),
)
REPLICAS = Metric(
    "atomicity.replica.count",
    "observable_gauge",
    "{replica}",
    "How many replicas the group has by this one's account",
    (GROUP,),
)
REGISTRATION = Metric(
    "atomicity.registration.duration",
    "histogram",
    "s",
    "Round trips of the registrations of a replica",
    (GROUP, ERROR),
    _MOMENTS,
)
TICKS = Metric(
    "atomicity.beat.ticks",
    "counter",
    "{tick}",
    "Ticks that this beat was to send",
    (OUTCOME,),
)
TICK_LATENESS = Metric(
    "atomicity.beat.lateness",
    "histogram",
    "s",
    "From when a tick was due to when it was published",
    (),
    _WAITS,
)
OUTAGES = Metric(
    "atomicity.arbiter.outages",
    "counter",
    "{outage}",
    "Times that an address ceased to answer",
    (ADDRESS,),
)

METRICS: dict[str, Metric] = {
    one.name: one for one in list(globals().values()) if isinstance(one, Metric)
}


class _Measures:
    """The instruments of one meter, and what feeds them until *end*."""

    def __init__(self, meter: Any, observation: type[Observation]) -> None:
        self._observation = observation
        self._feeding = True
        made = {metric: self._make(meter, metric) for metric in METRICS.values()}
        self._wait, self._conflicts = made[LOCK_WAIT], made[LOCK_CONFLICTS]
        self._losses, self._renewals = made[LEASE_LOSSES], made[LEASE_RENEWALS]
        self._decisions, self._delay = made[RATE_DECISIONS], made[RATE_DELAY]
        self._registration, self._outages = made[REGISTRATION], made[OUTAGES]
        self._ticks, self._lateness = made[TICKS], made[TICK_LATENESS]
        heard: dict[Event, Callable[..., None]] = {
            events.lock_acquired: self._lock_acquired,
            events.lock_timed_out: self._lock_timed_out,
            events.conflict: self._conflict,
            events.lease_lost: self._lease_lost,
            events.lease_renewed: self._lease_renewed,
            events.renewal_failed: self._renewal_failed,
            events.rate_decided: self._rate_decided,
            events.rate_delayed: self._rate_delayed,
            events.registered: self._registered,
            events.registration_failed: self._registration_failed,
            events.tick_sent: self._tick_sent,
            events.tick_failed: self._tick_failed,
            events.tick_skipped: self._tick_skipped,
            events.arbiter_away: self._arbiter_away,
        }
        self._offs = [event.hear(listener) for event, listener in heard.items()]

    def end(self) -> None:
        """Feed them no more."""
        self._feeding = False
        for off in self._offs:
            off()

    def _make(self, meter: Any, metric: Metric) -> Any:
        options: dict[str, Any] = {"unit": metric.unit, "description": metric.description}
        if metric.bounds:
            options["explicit_bucket_boundaries_advisory"] = metric.bounds
        read = {LEASES: self._leases, SLOT_SHARE: self._share, REPLICAS: self._replicas}
        if metric in read:
            options["callbacks"] = [read[metric]]
        create = getattr(meter, f"create_{metric.kind}")
        try:
            return create(metric.name, **options)
        except TypeError:
            # An API before 1.30, which takes no bounds; nobody asked for it on our account.
            options.pop("explicit_bucket_boundaries_advisory")
            return create(metric.name, **options)

    # -- what is read when somebody looks -------------------------------------------------------

    def _leases(self, _options: object) -> Iterable[Observation]:
        if self._feeding:
            # All groups that there are: what is let go has to be seen to be nought.
            held = Counter({group: 0 for each in arbiters() for group in list(each.atoms)})
            for arbiter in arbiters():
                held.update(lease.group for lease in arbiter.keeper.leases)
            for group, count in held.items():
                yield self._observation(count, {GROUP: group})

    def _share(self, _options: object) -> Iterable[Observation]:
        for group, n in self._open_replicas():
            yield self._observation(1 / n if n else 0.0, {GROUP: group})

    def _replicas(self, _options: object) -> Iterable[Observation]:
        for group, n in self._open_replicas():
            yield self._observation(n, {GROUP: group})

    def _open_replicas(self) -> Iterator[tuple[str, int]]:
        """The groups in which this very process registers, with how many they are; 0: unknown."""
        if self._feeding:
            for arbiter in arbiters():
                for atom in list(arbiter.atoms.values()):
                    state = atom.state()
                    if state.open:
                        yield atom.group, state.assignment.n if state.assignment else 0

    # -- what is told ---------------------------------------------------------------------------

    def _lock_acquired(self, *, group: str, waited: float, contended: bool) -> None:
        self._wait.record(waited, {GROUP: group, OUTCOME: "granted"})
        if contended:
            self._conflicts.add(1, {GROUP: group, POLICY: "wait"})

    def _lock_timed_out(self, *, group: str, waited: float, unreachable: bool) -> None:
        outcome = "unreachable" if unreachable else "taken"
        self._wait.record(waited, {GROUP: group, OUTCOME: outcome})

    def _conflict(self, *, group: str, task: str, policy: str) -> None:
        self._conflicts.add(1, {GROUP: group, TASK: task, POLICY: policy})

    def _lease_lost(self, *, group: str, **_: object) -> None:
        self._losses.add(1, {GROUP: group})

    def _lease_renewed(self, *, group: str) -> None:
        self._renewals.add(1, {GROUP: group})

    def _renewal_failed(self, *, group: str, refused: bool) -> None:
        self._renewals.add(1, {GROUP: group, ERROR: "gone" if refused else "unanswered"})

    def _rate_decided(self, *, group: str, task: str, scope: str, decision: str) -> None:  # noqa: ARG002
        self._decisions.add(1, {GROUP: group, RATE_SCOPE: scope, DECISION: decision})

    def _rate_delayed(self, *, group: str, scope: str, seconds: float, **_: object) -> None:
        self._delay.record(seconds, {GROUP: group, RATE_SCOPE: scope})

    def _registered(self, *, group: str, seconds: float) -> None:
        self._registration.record(seconds, {GROUP: group})

    def _registration_failed(self, *, group: str, seconds: float, **_: object) -> None:
        self._registration.record(seconds, {GROUP: group, ERROR: "unavailable"})

    def _tick_sent(self, *, late: float, **_: object) -> None:
        self._ticks.add(1, {OUTCOME: "late" if late > LATE else "sent"})
        self._lateness.record(late)

    def _tick_failed(self, **_: object) -> None:
        self._ticks.add(1, {OUTCOME: "failed"})

    def _tick_skipped(self, **_: object) -> None:
        self._ticks.add(1, {OUTCOME: "skipped"})

    def _arbiter_away(self, *, address: str, **_: object) -> None:
        self._outages.add(1, {ADDRESS: address})


_measures: _Measures | None = None


def measure(meter_provider: MeterProvider | None = None) -> bool:
    """
    Measure into *meter_provider* from now on, and no longer into the one of before.

    ``Atomicity(app)`` does so with the global provider, also one that is set later. To be called
    where that will not do: in a process without Celery, or, with a provider of its own, in each
    child of a pool, since a global provider can be set once only and children inherit it.

    Args:
        meter_provider: None: the global one.

    Returns:
        False where ``opentelemetry-api`` is not installed, and so nothing is measured.
    """
    global _measures  # noqa: PLW0603 - of the process, as the events are
    try:
        from opentelemetry import metrics  # noqa: PLC0415 - it may not be installed
    except ImportError:
        return False
    meter = metrics.get_meter(SCOPE, metadata.version("celery-atomicity"), meter_provider)
    if _measures is not None:
        _measures.end()
    _measures = _Measures(meter, metrics.Observation)
    return True


def measure_by_default() -> None:
    """Measure into the global provider, unless something is measured already."""
    if _measures is None:
        measure()

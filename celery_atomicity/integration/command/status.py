"""How a fleet stands: what its workers say of themselves, and what stands on the arbiter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kombu.exceptions import OperationalError

from celery_atomicity import overview
from celery_atomicity.errors import Unavailable
from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.command.entries import Entry, entries_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from celery import Celery

    from celery_atomicity.overview import Overview


@dataclass(frozen=True)
class Replica:
    """
    A worker in one of its groups, in its own words.

    Attributes:
        index: Its place among *total*; None: it owns nothing at this moment.
        until: Seconds for which that holds unless it registers again.
        registered: Seconds since it last registered; None: never.
        error: Why it could not; empty: it could.
    """

    worker: str
    index: int | None = None
    total: int | None = None
    until: float = 0.0
    registered: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Group:
    """
    One group; *arbiter* is what stands there, None if it did not answer.

    Attributes:
        beats: How many beats registered in the last whole interval; None: not known, or a group
            that has none of its own.
        entries: What they have on record.
    """

    name: str
    replicas: tuple[Replica, ...]
    arbiter: Overview | None = None
    beats: int | None = None
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Status:
    """
    How the fleet of an app stands.

    Attributes:
        addresses: The arbiter's, without passwords. What it holds was read at the first.
        source: Which setting names them.
        arbiter_error: Why the arbiter told nothing; empty: it did.
        workers_error: Why no worker could be asked; empty: they could.
    """

    addresses: tuple[str, ...]
    source: str
    groups: tuple[Group, ...]
    arbiter_error: str = ""
    workers_error: str = ""


@dataclass
class Answers:
    """What workers answered, by group; *error* says why they could not be asked."""

    replicas: dict[str, list[Replica]] = field(default_factory=dict)
    error: str = ""


def status_of(app: Celery, timeout: float = 1.0) -> Status:
    """
    Ask the workers of *app*, for *timeout* seconds, and its arbiter.

    That either does not answer is in the answer.

    Raises:
        NotConfigured: Atomicity is not installed on the app, or it has no arbiter.
        ImproperlyConfigured: One of its settings cannot work.
    """
    atomicity = Atomicity.of(app)
    settings = atomicity.settings
    error = _silence(atomicity)
    asked = ask_workers(app, timeout)
    groups = []
    for name in dict.fromkeys((settings.group, *atomicity.groups, *sorted(asked.replicas))):
        group = Group(name, tuple(sorted(asked.replicas.get(name, ()), key=_order)))
        if not error:
            try:
                group = _looked_up(app, atomicity, group, with_beats=name == settings.group)
            except Unavailable as unavailable:
                error = str(unavailable)
        groups.append(group)
    return Status(
        tuple(map(str, settings.addresses)), settings.source, tuple(groups), error, asked.error
    )


def _silence(atomicity: Atomicity) -> str:
    """Why the arbiter does not answer; empty: it does."""
    try:
        atomicity.clients.command("PING")
    except Unavailable as unavailable:
        return str(unavailable)
    return ""


def _looked_up(app: Celery, atomicity: Atomicity, group: Group, *, with_beats: bool) -> Group:
    clients = atomicity.clients
    arbiter = overview.look(clients, group.name)
    if not with_beats:
        return Group(group.name, group.replicas, arbiter)
    return Group(
        group.name,
        group.replicas,
        arbiter,
        beats=overview.registered(clients, f"{group.name}.beat"),
        entries=entries_of(app, clients, group.name),
    )


def ask_workers(app: Celery, timeout: float) -> Answers:
    """What the workers of *app* say of themselves within *timeout* seconds."""
    answers = Answers()
    try:
        with app.connection_or_acquire() as connection:
            # Celery's own would try for six seconds, while somebody waits for an answer.
            connection.ensure_connection(
                max_retries=max(1, len(connection.alt)), interval_start=0, interval_step=0
            )
            replies = app.control.broadcast(
                "atomicity", reply=True, timeout=timeout, connection=connection
            )
    except (OperationalError, OSError) as error:
        answers.error = str(error) or type(error).__name__
        return answers
    for worker, states in _each(replies or ()):
        # A worker whose command failed answers {"error": ...}.
        for state in states if isinstance(states, list) else ():
            answers.replicas.setdefault(state["group"], []).append(_replica(worker, state))
    return answers


def _each(replies: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, Any]]:
    for reply in replies:
        yield from reply.items()


def _replica(worker: str, state: Mapping[str, Any]) -> Replica:
    assignment = state.get("assignment") or {}
    return Replica(
        worker,
        index=assignment.get("i"),
        total=assignment.get("n"),
        until=state.get("until") or 0.0,
        registered=state.get("registered"),
        error=state.get("error") or "",
    )


def _order(replica: Replica) -> tuple[bool, int, str]:
    return replica.index is None, replica.index or 0, replica.worker

"""``singleton_by``: one run at a time of all that share a key, over the whole fleet."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from celery_atomicity import events
from celery_atomicity.errors import NotConfigured
from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.arguments.template import compile_key
from celery_atomicity.integration.singleton.alone import run_alone
from celery_atomicity.integration.singleton.asking import ask_again
from celery_atomicity.integration.singleton.hold import (
    Hold,
    Taken,
    can_come_again,
    is_held_by_another_copy,
)
from celery_atomicity.integration.tasks.bypass import is_bypassed
from celery_atomicity.integration.tasks.decoration import decorate
from celery_atomicity.integration.tasks.options import choice, seconds, text
from celery_atomicity.integration.tasks.skipped import skip
from celery_atomicity.primitives.lock import LONGEST_TTL, SHORTEST_TTL

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_atomicity.atom import Atom
    from celery_atomicity.errors import LockTimeout
    from celery_atomicity.integration.arguments.template import Key, KeySpec
    from celery_atomicity.integration.tasks.execution import Execution
    from celery_atomicity.integration.tasks.options import Seconds

T = TypeVar("T")

OnConflict = Literal["wait", "retry", "skip", "raise"]
OnLost = Literal["fail", "interrupt", "log"]


def singleton_by(
    key: KeySpec,
    *,
    scope: str | None = None,
    on_conflict: OnConflict = "wait",
    wait: Seconds | None = None,
    ttl: Seconds | None = None,
    min_hold: Seconds | None = None,
    max_hold: Seconds | None = None,
    on_lost: OnLost = "fail",
) -> Callable[[T], T]:
    """
    Let one execution at a time run of all that share a key, over all workers.

        @app.task
        @singleton_by("{account_id}")
        def sync(account_id): ...

    The key is held from before the first line of the task to after its last, and let go on return,
    exception, retry, time limit and revoke. A retry (``self.retry``, ``autoretry_for``) lets go
    first and stands in line again when it comes back; so does what ``task.replace`` puts in its
    place. Called directly or eagerly, the task does the same in the calling process; with no
    arbiter configured it then just runs, so that unit tests need none.

    Args:
        key: What tells apart the runs that may go side by side: a format string over the task's
            arguments (``"{account_id}"``, ``"{order.id}"``), a constant, a callable given the
            arguments, or a list of these for several keys, which are taken all or none.
        scope: The namespace of the key; the task's name by default. Tasks of one scope exclude
            each other.
        on_conflict: ``"wait"`` holds the pool slot until the key is free, ``"retry"`` gives the
            slot back and asks again later, ``"skip"`` ends the task as SKIPPED, ``"raise"`` fails
            it with LockTimeout. A copy of the holder's own message, delivered again while it runs,
            asks again later in any case, and so does who waits in a worker that is told to stop.
        wait: Seconds to wait for the key at most. None is without end for ``"wait"``, and not at
            all for the others. What has no queue to come back from (a call, an eager one, a
            broadcast) waits as long for ``"retry"``, without end for None, and then fails with
            LockTimeout.
        ttl: Seconds until the key is free if this worker dies; renewed while the task runs.
            ``atomicity_lock_ttl`` by default.
        min_hold: Seconds for which the key stays taken from the start, even if the task ends
            sooner: a cool-down.
        max_hold: Seconds after which the lease counts as lost, however the task fares.
        on_lost: What becomes of a task whose lease was lost while it ran: ``"fail"`` fails it with
            LeaseLost when it ends, ``"interrupt"`` raises LeaseLost inside of it as soon as the
            interpreter allows (see the module *interrupt* for what that is in each pool), and
            ``"log"`` keeps its result.

    Raises:
        TypeError: An argument is not of a kind that can work.
        ValueError: It cannot work, or the key names what is not a parameter of the task.
    """
    rules = Rules(
        key=key,
        scope=text("scope", scope),
        on_conflict=choice("on_conflict", on_conflict, get_args(OnConflict)),
        wait=seconds("wait", wait),
        ttl=seconds("ttl", ttl, SHORTEST_TTL, LONGEST_TTL),
        min_hold=seconds("min_hold", min_hold),
        max_hold=seconds("max_hold", max_hold, 0.001),
        on_lost=choice("on_lost", on_lost, get_args(OnLost)),
    )
    return decorate(rules.compile, rules)


@dataclass(frozen=True)
class Rules:
    """What one ``singleton_by`` says; the attributes are its arguments."""

    key: KeySpec
    scope: str | None
    on_conflict: str
    wait: float | None
    ttl: float | None
    min_hold: float | None
    max_hold: float | None
    on_lost: str

    def __post_init__(self) -> None:
        if None not in (self.min_hold, self.max_hold) and self.min_hold > self.max_hold:  # type: ignore[operator]
            raise ValueError(
                f"min_hold={self.min_hold:g} is longer than max_hold={self.max_hold:g}, at which "
                "the lease is lost"
            )

    def compile(self, function: Callable[..., Any]) -> Callable[[Execution], Any]:
        """What runs each execution of *function*."""
        return functools.partial(self._run, compute=compile_key(self.key, function))

    def _run(self, execution: Execution, compute: Callable[[Any, Any], Key]) -> Any:
        # First of all: a call that does not fit the signature fails and takes nothing.
        key = compute(execution.bound_args, execution.kwargs)
        prefix = (self.scope or execution.name) + ":"
        keys = [prefix + key] if isinstance(key, str) else [prefix + each for each in key]
        if is_bypassed():
            return run_alone(execution, keys)
        atom = _atom(execution)
        if atom is None:
            return execution.call()
        try:
            return Hold(self, execution, atom, keys).run()
        except Taken as taken:
            if taken.called_off:
                return ask_again(execution, keys, taken.error)
            return self._conflict(execution, atom, keys, taken.error)

    def _conflict(
        self, execution: Execution, atom: Atom, keys: list[str], error: LockTimeout
    ) -> Any:
        if is_held_by_another_copy(execution, error) or (
            self.on_conflict == "retry" and can_come_again(execution)
        ):
            events.conflict.tell(group=atom.group, task=execution.name, policy="retry")
            return ask_again(execution, keys, error)
        # That nobody is known to hold it, since nobody could be asked, is no reason to drop work.
        if self.on_conflict != "skip" or error.unreachable:
            events.conflict.tell(group=atom.group, task=execution.name, policy="raise")
            raise error
        events.conflict.tell(group=atom.group, task=execution.name, policy="skip")
        holder = error.holder or "others that are in line for it"
        return skip(
            execution,
            f"{', '.join(keys)} is held by {holder}",
            key=keys[0],
            keys=keys,
            group=atom.group,
            holder=error.holder,
            remaining=error.remaining,
        )

    def patience(self, execution: Execution) -> float | None:
        """Seconds to wait for the key before it counts as a conflict; None without end."""
        if self.wait is not None or self.on_conflict == "wait":
            return self.wait
        if self.on_conflict == "retry" and not can_come_again(execution):
            return None  # it waits here instead
        return 0.0


def _atom(execution: Execution) -> Atom | None:
    """The atom to ask; None where the task just runs, since nothing is configured for a test."""
    try:
        atomicity = Atomicity.of(execution.app)
        if atomicity.settings.configured:
            return atomicity.atom()
    except NotConfigured:
        if execution.in_worker:
            raise
        return None
    return atomicity.atom() if execution.in_worker else None

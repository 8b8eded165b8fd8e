"""``singleton_by``: one run at a time of all that share a key, over the whole fleet."""

from __future__ import annotations

import functools
import logging
import os
import platform
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from celery.exceptions import TaskPredicate
from celery.signals import before_task_publish

from celery_atomicity.errors import LeaseLost, LockTimeout, NotConfigured
from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.execution import give_way
from celery_atomicity.integration.interrupt import Interruptible
from celery_atomicity.integration.key_template import compile_key
from celery_atomicity.integration.options import choice, seconds, text
from celery_atomicity.integration.requeue import give_back, may_be_given_back
from celery_atomicity.integration.skipped import skip
from celery_atomicity.integration.task import decorate
from celery_atomicity.primitives.lease import held
from celery_atomicity.primitives.lock import LONGEST_TTL, SHORTEST_TTL

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_atomicity.atom import Atom
    from celery_atomicity.integration.execution import Execution
    from celery_atomicity.integration.key_template import Key, KeySpec
    from celery_atomicity.integration.options import Seconds
    from celery_atomicity.primitives.lease import Lease

logger = logging.getLogger(__name__)

T = TypeVar("T")

OnConflict = Literal["wait", "retry", "skip", "raise"]
OnLost = Literal["fail", "interrupt", "log"]

#: The pause before a task that found its key taken asks again: the first at most, the longest, and
#: by how much each differs at random; seconds and a fraction.
FIRST_PAUSE, LONGEST_PAUSE, JITTER = 1.0, 30.0, 0.25

#: The header that counts how often a task was given back because its key was taken.
ASKED = "atomicity_asked"


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
            it with LockTimeout.
        wait: Seconds to wait for the key at most. None is without end for ``"wait"``, and not at
            all for the others.
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
        atom = _atom(execution)
        if atom is None:
            return execution.call()
        prefix = (self.scope or execution.name) + ":"
        keys = [prefix + key] if isinstance(key, str) else [prefix + each for each in key]
        try:
            return Hold(self, execution, atom, keys).run()
        except _Taken as taken:
            return self._conflict(execution, atom, keys, taken.error)

    def _conflict(
        self, execution: Execution, atom: Atom, keys: list[str], error: LockTimeout
    ) -> Any:
        if self.on_conflict == "retry":
            return _ask_again(execution, keys, error)
        # That nobody is known to hold it, since nobody could be asked, is no reason to drop work.
        if self.on_conflict != "skip" or error.unreachable:
            raise error
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
        if self.on_conflict == "retry" and not (
            execution.where == "worker" and may_be_given_back(execution.task)
        ):
            return None  # there is no queue to come back from: wait here instead
        return self.wait if self.wait is not None or self.on_conflict == "wait" else 0.0


class _Taken(Exception):
    """The key could not be had; not LockTimeout itself, which the task may raise for another."""

    def __init__(self, error: LockTimeout) -> None:
        super().__init__(error)
        self.error = error


class Hold:
    """One execution under its lease."""

    def __init__(self, rules: Rules, execution: Execution, atom: Atom, keys: list[str]) -> None:
        self._execution = execution
        self._rules = rules
        self._block = Interruptible() if rules.on_lost == "interrupt" else None
        self._lease: Lease | None = None
        self._yielded = False
        self._lock = atom.lock(
            keys,
            wait=rules.patience(execution),
            ttl=rules.ttl,
            min_hold=rules.min_hold,
            max_hold=rules.max_hold,
            on_lost=self._interrupt if self._block is not None else None,
            holder=_holder(execution),
        )

    def run(self) -> Any:
        """Answer the execution's result, with the key held while it runs."""
        before = held.get()
        try:
            try:
                self._lease = lease = self._lock.acquire()
            except LockTimeout as error:
                raise _Taken(error) from error.__cause__
            held.set((*before, lease))
            self._execution.yields.append(self._give_way)
            _forget_asked(self._execution)
            if logger.isEnabledFor(logging.DEBUG):
                logger.debug(
                    "%s holds %s, fence %d",
                    self._execution.name,
                    ", ".join(lease.keys),
                    lease.fence,
                    extra={"keys": lease.keys, "fence": lease.fence},
                )
            result = self._call()
        except BaseException as error:
            self._end(error)
            raise
        else:
            self._end(None)
        finally:
            held.set(before)
            # An exception from outside (a time limit) may have struck between the grant and our
            # knowing of it, or while it was let go.
            self._lock.abandon()
        return result

    def _call(self) -> Any:
        if self._block is None:
            return self._execution.call()
        try:
            with self._block:
                return self._execution.call()
        except _Interruption as error:
            raise self._error() from error

    def _end(self, error: BaseException | None) -> None:
        """Let go, and say so if it was lost by then."""
        lease = self._lease
        if lease is None or self._yielded:
            return
        lost = lease.error() if lease.lost else None
        self._let_go()
        if lost is None:
            return
        if self._rules.on_lost == "log":
            logger.warning(
                "%s went on to its end without its lease: %s", self._execution.name, lost.reason
            )
        # A retry, a reject or an end from outside goes its way: it is no result that could mislead.
        elif error is None or (
            isinstance(error, Exception) and not isinstance(error, (LeaseLost, TaskPredicate))
        ):
            raise lost from error

    def _let_go(self) -> None:
        if self._give_way in self._execution.yields:
            self._execution.yields.remove(self._give_way)
        assert self._lease is not None
        self._lease.release()

    def _give_way(self) -> None:
        """The task is about to be published again and will stand in line then."""
        if self._lease is not None:
            self._yielded = True
            held.set(tuple(one for one in held.get() if one is not self._lease))
            self._lease.release()

    def _interrupt(self, _lease: Lease) -> None:
        if self._block is not None:
            self._block.interrupt(_interruption(self._error))

    def _error(self) -> LeaseLost:
        assert self._lease is not None
        return self._lease.error()


class _Interruption(LeaseLost):
    """LeaseLost as it is raised inside a running function: a class that needs no arguments."""


def _interruption(error: Callable[[], LeaseLost]) -> type[_Interruption]:
    def __init__(self: _Interruption) -> None:  # noqa: N807
        lost = error()
        Exception.__init__(self, *lost.args)
        self.__dict__.update(lost.__dict__)

    def __reduce__(_self: _Interruption) -> Any:  # noqa: N807
        return error().__reduce__()

    return type("LeaseLost", (_Interruption,), {"__init__": __init__, "__reduce__": __reduce__})


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


def _holder(execution: Execution) -> str:
    """Who holds, for a person who asks why a key is taken."""
    request = execution.request
    if request is None:
        return f"{execution.name}, called in process {os.getpid()} on {platform.node()}"
    return f"task {execution.name}[{request.id}] on {request.hostname or platform.node()}"


def _ask_again(execution: Execution, keys: list[str], error: LockTimeout) -> Any:
    """Give the task back to its queue, to ask again when the key may be free."""
    asked = int((execution.request.headers or {}).get(ASKED, 0))
    pause = min(FIRST_PAUSE, error.remaining or FIRST_PAUSE) * 2 ** min(asked, 10)
    pause = min(LONGEST_PAUSE, pause) * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
    logger.info(
        "%s[%s] asks again in %.1f s: %s is held by %s",
        execution.name,
        execution.request.id,
        pause,
        ", ".join(keys),
        error.holder,
        extra={"keys": keys, "pause": pause},
    )
    return give_back(execution.task, pause, headers={ASKED: asked + 1})


def _forget_asked(execution: Execution) -> None:
    """A retry of this task begins to ask anew."""
    request = execution.request
    if request is not None and request.headers:
        request.headers.pop(ASKED, None)


@before_task_publish.connect(weak=False)
def _before_publish(headers: Any = None, body: Any = None, **_: Any) -> None:
    """A task that publishes itself again lets go first, or it would find itself in its way."""
    task_id = (headers or {}).get("id") or (body.get("id") if isinstance(body, dict) else None)
    if task_id is not None:
        give_way(task_id)

"""One execution under its lease: taken in front of it, given way, lost, and let go after it."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

from celery.exceptions import TaskPredicate
from celery.signals import before_task_publish

from celery_atomicity import events
from celery_atomicity.errors import LeaseLost, LockTimeout
from celery_atomicity.integration.singleton.asking import forget_asked
from celery_atomicity.integration.singleton.interrupt import Interruptible
from celery_atomicity.integration.tasks.execution import give_way
from celery_atomicity.integration.tasks.requeue import may_be_given_back
from celery_atomicity.integration.tasks.stopping import is_stopping
from celery_atomicity.keys import printable
from celery_atomicity.primitives.lease import held

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_atomicity.atom import Atom
    from celery_atomicity.integration.singleton.decorator import Rules
    from celery_atomicity.integration.tasks.execution import Execution
    from celery_atomicity.primitives.lease import Lease


class Taken(Exception):
    """
    The key could not be had; not LockTimeout itself, which the task may raise for another.

    Attributes:
        error: Why not.
        called_off: Whether it was waited for no longer because the worker stops.
    """

    def __init__(self, error: LockTimeout, *, called_off: bool) -> None:
        super().__init__(error)
        self.error = error
        self.called_off = called_off


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
        self._called_off = False
        if can_come_again(execution):
            self._lock.called_off = self._is_called_off

    def run(self) -> Any:
        """Answer the execution's result, with the key held while it runs."""
        before = held.get()
        try:
            try:
                self._lease = lease = self._lock.acquire()
                lease.guard(self)
            except LockTimeout as error:
                raise Taken(error, called_off=self._called_off) from error.__cause__
            held.set((*before, lease))
            self._execution.yields.append(self._give_way)
            forget_asked(self._execution)
            events.task_holds.tell(task=self._execution.name, keys=lease.keys, fence=lease.fence)
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
                # Whoever would interrupt it may have come before there was anything to interrupt.
                if self._lease is not None:
                    self._lease.check()
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
            events.outlived_lease.tell(
                task=self._execution.name, keys=lost.keys, reason=lost.reason
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

    def _is_called_off(self) -> bool:
        """A worker that stops does not wait for tasks that only wait."""
        self._called_off = is_stopping()
        return self._called_off

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


def _holder(execution: Execution) -> str:
    """Who holds, for a person who asks why a key is taken."""
    request = execution.request
    if request is None:
        return f"{execution.name}, called in process {os.getpid()} on {platform.node()}"
    return f"{_copies(execution)}{request.hostname or platform.node()}"


def _copies(execution: Execution) -> str:
    """How all executions of the same message begin to say who holds."""
    return f"task {execution.name}[{execution.request.id}] on "


def can_come_again(execution: Execution) -> bool:
    """Whether there is a queue to give the task back to."""
    return execution.where == "worker" and may_be_given_back(execution.task)


def is_held_by_another_copy(execution: Execution, error: LockTimeout) -> bool:
    """
    Whether the holder is an execution of the same message, which was delivered again meanwhile.

    It is alive, or its worker was killed and its lease runs out. In the first case this copy must
    not write a result in the other's place, or be counted by its chord; in the second the task
    must run. So this copy can neither be skipped nor fail: it has to come again.
    """
    if not can_come_again(execution):
        return False
    return (error.holder or "").startswith(printable(_copies(execution)))


@before_task_publish.connect(weak=False)
def _before_publish(headers: Any = None, body: Any = None, **_: Any) -> None:
    """A task that publishes itself again lets go first, or it would find itself in its way."""
    task_id = (headers or {}).get("id") or (body.get("id") if isinstance(body, dict) else None)
    if task_id is not None:
        give_way(task_id)

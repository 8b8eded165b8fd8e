"""
The state SKIPPED, for a task that ended without having run, and what Celery has to know of it.

A state that Celery does not know counts as unfinished: ``AsyncResult.get()`` would wait for ever.
So it is added to the finished states, in every process that imports this; for the others there is
``atomicity_skipped_state``. A skipped task is
acknowledged, its callbacks are not called, the rest of its chain is skipped with it, and each chord
that counts on any of these is told, so that it completes with the result of the skip in the place
of the one that there is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import celery.app.task
from celery import states
from celery.app.task import Context
from celery.backends.base import Backend, KeyValueStoreBackend
from celery.exceptions import Ignore
from celery.result import EagerResult

from celery_atomicity import events
from celery_atomicity.integration.app import Atomicity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from celery_atomicity.integration.tasks.execution import Execution

#: The state of a task that was not run because of another one.
SKIPPED = "SKIPPED"


class Skip(Ignore):
    """
    Ends a task as skipped; Celery acknowledges it and does nothing else.

    Attributes:
        result: What stands as the task's result.
        state: What stands as its state.
    """

    def __init__(self, result: dict[str, Any], state: str) -> None:
        super().__init__(result, state)  # what it is made of again in the worker's main process
        self.result = result
        self.state = state


def skip(execution: Execution, why: str, **facts: Any) -> dict[str, Any]:
    """
    End *execution* as skipped.

    Args:
        execution: The task's execution, of which nothing has run.
        why: For a person to read.
        facts: What else the result shall say; JSON can say all of it.

    Returns:
        The result, to a direct call, which has no task to end. Else nothing: it raises.
    """
    result = {"skipped": True, "task": execution.name, "why": why, **facts}
    request = execution.request
    events.task_skipped.tell(task=execution.name, task_id=execution.task_id, why=why)
    if request is None:
        return result
    task = execution.task
    state = Atomicity.of(execution.app).settings.skipped_state
    if execution.where == "worker" or task.store_eager_result:
        ignored = vars(request).get("ignore_result")
        stored = not (task.ignore_result if ignored is None else ignored)
        _finish(task.backend, request, result, state, stored=stored)
    raise Skip(result, state)


def _finish(
    backend: Any, request: Any, result: dict[str, Any], state: str, *, stored: bool
) -> None:
    """Store the state, here and along the chain, and tell the chords."""
    if stored:
        backend.store_result(request.id, result, state, request=request)
    if request.chord:
        backend.on_chord_part_return(request, state, result)
    for element in _all_of(request.chain or ()):
        options = element.get("options") or {}
        context = Context(dict(element))
        context.update(options, id=options.get("task_id"), group=options.get("group_id"))
        if stored and context.id is not None:
            backend.store_result(context.id, result, state, request=context)
        if options.get("chord"):
            backend.on_chord_part_return(context, state, result)


def _all_of(chain: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The signatures of *chain* whose results somebody may wait for."""
    for element in chain:
        yield element
        inner = element.get("kwargs") or {}
        kind = element.get("subtask_type")
        if kind == "chord" and inner.get("body"):  # its result is its body's
            yield from _all_of([inner["body"]])
        elif kind in ("group", "chain"):
            yield from _all_of(inner.get("tasks") or ())


class _EagerResult(EagerResult):
    """Of an eager call, which may have ended as skipped."""

    def __init__(
        self,
        id: str,  # noqa: A002 - Celery's name
        ret_value: Any,
        state: str,
        traceback: str | None = None,
        name: str | None = None,
    ) -> None:
        if isinstance(ret_value, Skip):
            ret_value, state, traceback = ret_value.result, ret_value.state, None
        super().__init__(id, ret_value, state, traceback=traceback, name=name)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Answer the result; that of a skip as a worker's would be."""
        return self.result if self.state == SKIPPED else super().get(*args, **kwargs)


def teach() -> None:
    """Have Celery count SKIPPED as finished. Once per process; later calls do nothing."""
    known = states.READY_STATES
    if SKIPPED in known:
        return
    states.READY_STATES = known | {SKIPPED}
    states.ALL_STATES = states.ALL_STATES | {SKIPPED}
    Backend.READY_STATES = states.READY_STATES
    # These have taken the set of before as a default argument.
    for function in (
        KeyValueStoreBackend._filter_ready,  # noqa: SLF001
        KeyValueStoreBackend._mget_to_results,  # noqa: SLF001
        KeyValueStoreBackend.get_many,
    ):
        function.__defaults__ = tuple(
            states.READY_STATES if default is known else default
            for default in function.__defaults__ or ()
        )
    celery.app.task.EagerResult = _EagerResult


teach()

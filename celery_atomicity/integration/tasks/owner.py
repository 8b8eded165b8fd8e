"""
Which task a decorated function belongs to.

Not simply ``current_task``: a task may call the function of another one, and a helper that is no
task's may be decorated as well. A task owns what its ``run`` leads to.
"""

from __future__ import annotations

from functools import partial
from inspect import CO_VARARGS, CO_VARKEYWORDS
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from celery import current_app
from celery._state import _task_stack
from celery.app.task import Task
from celery.local import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable

#: How many wrappers deep a task's own function is looked for.
_DEEPEST = 16

_OPAQUE = CO_VARARGS | CO_VARKEYWORDS


class Owner:
    """
    Finds the task of one decorated function; what it found once it remembers. Thread-safe.

    Args:
        wrapper: The decorated function, as the task has it.
        name: What to call it while it is no task's.
        task: The task, where it is known from the start.
    """

    def __init__(self, wrapper: Callable[..., Any], name: str, task: Any = None) -> None:
        self.name = name
        self._wrapper = wrapper
        self._task = task
        self._own: WeakSet[Any] = WeakSet()
        self._foreign: WeakSet[Any] = WeakSet()
        self._searched = 0

    def find(self, bound_args: tuple[Any, ...]) -> Any:
        """The task that this call belongs to, or None if the function is no task's."""
        if self._task is not None:
            return self._task
        top = _task_stack.top
        if top is not None and self._owned_by(top):
            return top
        if bound_args and isinstance(bound_args[0], Task) and self._owned_by(bound_args[0]):
            return bound_args[0]
        return self._search()  # called past the task, by the function's own name

    def _search(self) -> Any:
        app = current_app._get_current_object()  # noqa: SLF001
        tasks = list(app._tasks.values())  # noqa: SLF001 - .tasks would finish the app
        if len(tasks) != self._searched:
            self._searched = len(tasks)
            for task in tasks:
                self._owned_by(task)
        own = list(self._own)
        return next((task for task in own if task.app is app), own[0] if own else None)

    def _owned_by(self, task: Any) -> bool:
        if task in self._own:
            return True
        if task in self._foreign:
            return False
        starts = [task.run, *(vars(kind).get("run") for kind in type(task).__mro__)]
        owned = any(leads_to(start, self._wrapper) for start in starts)
        (self._own if owned else self._foreign).add(task)
        return owned


def leads_to(start: Any, target: Any) -> bool:
    """Whether the callable *start* wraps *target*, however deep and in whatever manner."""
    front = [start]
    seen: set[int] = set()
    for _ in range(_DEEPEST):
        if any(item is target for item in front):
            return True
        seen.update(map(id, front))
        front = [inner for item in front for inner in _inside(item) if id(inner) not in seen]
    return False


def _inside(item: Any) -> list[Any]:
    """What the callable *item* is made to call."""
    if isinstance(item, partial):
        return [item.func]
    for attribute in ("__func__", "__wrapped__"):
        inner = getattr(item, attribute, None)
        if inner is not None:
            return [inner]
    code = getattr(item, "__code__", None)
    if code is None:  # an object that is called: what it was given to call is one of its own
        return [each for each in getattr(item, "__dict__", {}).values() if _is_function(each)]
    if code.co_flags & _OPAQUE != _OPAQUE:
        return []  # a function of its own, whose closure is its own affair
    return [each for each in _contents(item.__closure__ or ()) if _is_function(each)]


def _contents(cells: tuple[Any, ...]) -> list[Any]:
    contents = []
    for cell in cells:
        try:
            contents.append(cell.cell_contents)
        except ValueError:  # not filled
            continue
    return contents


def _is_function(item: Any) -> bool:
    """Whether a decorator may have wrapped *item*; never wakes a proxy."""
    return not issubclass(type(item), (Proxy, Task, type)) and callable(item)

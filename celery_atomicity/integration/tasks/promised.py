"""
Tasks that do not exist yet: what ``@app.task`` and ``@shared_task`` hand out while modules load.

A task comes to be when its app is finished, and a shared one in every app. Waking the proxy would
read the configuration before it is complete, so that what is to be done with the tasks waits.

Nothing of it outlives what it is about: what is known of a proxy, of a task and of a function is
kept on these themselves.
"""

from __future__ import annotations

import inspect
import weakref
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from celery._state import _get_active_apps, connect_on_app_finalize
from celery.local import PromiseProxy

from celery_atomicity.integration.tasks.owner import leads_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

#: On a proxy: what is promised of it. On a task: whose it is, since the same function may have been
#: decorated once for each of several apps.
_PROMISED = "_atomicity_promised"

#: On a function: all that is promised of it. Celery keeps that of a shared task for good, to make
#: the task in apps to come; so it lives as long as there may be such apps.
_PROMISES = "_atomicity_promises"


class Promised:
    """
    The tasks that will be made of one function, one in each app.

    Args:
        function: What they are made of, with ``self`` among its parameters if they are bound.
        name: Theirs, if one was given; else it follows from the function and the app.
    """

    def __init__(self, function: Callable[..., Any], name: str | None) -> None:
        self.function = function
        self.name = name
        self._steps: list[Callable[[Any], None]] = []
        self._done: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._connect()

    def then(self, step: Callable[[Any], None]) -> None:
        """Call *step* with each of the tasks, once, after the steps that were added before."""
        self._steps.append(step)
        for app in list(_get_active_apps()):
            self.settle(app)

    def settle(self, app: Celery) -> None:
        """Do now what is due for the task of *app*, if it exists."""
        name = self.name or app.gen_task_name(self.function.__name__, self.function.__module__)
        task = app._tasks.get(name)  # noqa: SLF001 - .tasks would finish the app
        if task is None or not self._made(task):
            return
        if vars(task).setdefault(_PROMISED, self) is not self:
            return
        for step in self._steps[self._done.get(task, 0) :]:
            self._done[task] = self._done.get(task, 0) + 1
            step(task)

    def _connect(self) -> None:
        """Be told of every app that is finished, for as long as the function is there."""
        itself: Callable[[], Promised | None] = weakref.ref(self)
        try:
            vars(self.function).setdefault(_PROMISES, []).append(self)
        except (AttributeError, TypeError):  # it has no attributes of its own
            itself = lambda: self  # noqa: E731

        def when_announced(app: Celery) -> None:
            promised = itself()
            if promised is not None:
                # The app calls these in no order, so that the task may not be there yet; at the
                # end it is.
                app.on_after_finalize.connect(lambda **_: promised.settle(app), weak=False)

        connect_on_app_finalize(when_announced)

    def _made(self, task: Any) -> bool:
        """Whether *task* was made of this function, and is not another one of its name."""
        run = inspect.getattr_static(type(task), "run")
        return leads_to(getattr(run, "__func__", run), self.function)


def promised_by(proxy: Any) -> Promised:
    """
    What *proxy* stands for; the proxy is not woken.

    Raises:
        TypeError: It is neither ``@app.task``'s nor ``@shared_task``'s.
    """
    try:
        promised: Promised = object.__getattribute__(proxy, _PROMISED)
    except AttributeError:
        promised = Promised(*_origin(proxy))
        object.__setattr__(proxy, _PROMISED, promised)
    if type(proxy) is PromiseProxy:
        # Somebody may use the task before its app is finished.
        proxy.__then__(lambda: promised.settle(proxy._get_current_object().app))  # noqa: SLF001
    return promised


def _origin(proxy: Any) -> tuple[Callable[..., Any], str | None]:
    if type(proxy) is PromiseProxy:
        if proxy.__evaluated__():
            task = proxy._get_current_object()  # noqa: SLF001
            return type(task).run, task.name
        (function,) = object.__getattribute__(proxy, "_Proxy__args")
        return function, object.__getattribute__(proxy, "_Proxy__kwargs").get("name")
    local = object.__getattribute__(proxy, "_Proxy__local")
    inside = inspect.getclosurevars(local).nonlocals if inspect.isfunction(local) else {}
    if "fun" not in inside:
        raise TypeError("this proxy cannot be decorated; put the decorator under @shared_task")
    return inside["fun"], inside.get("name")

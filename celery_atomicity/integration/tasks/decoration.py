"""
What every decorator of this package has in common: how it gets around a task's function.

It may stand under ``@app.task`` or ``@shared_task`` (it gets the plain function), over them (it
gets the task, or a proxy that becomes one when the app is finished; there may be one in each app),
on the ``run`` of a class-based task, or on such a class. In each case the task keeps its name, its
signature, its docstring and the check of arguments that ``.delay()`` makes, and our code runs
wherever the task's function is run, whatever sent the message.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from celery.app.task import Task
from celery.local import Proxy

from celery_atomicity.integration.tasks.execution import Execution
from celery_atomicity.integration.tasks.owner import Owner
from celery_atomicity.integration.tasks.promised import promised_by

if TYPE_CHECKING:
    from collections.abc import Callable

    #: Does what the decorator is for with one execution, and answers its result.
    Body = Callable[[Execution], Any]
    #: Given the function whose arguments count, answers the body; refuses what cannot work.
    Compile = Callable[[Callable[..., Any]], Body]

T = TypeVar("T")

#: Where a wrapper carries the mark of the decorator that made it.
_MARK = "__atomicity__"


def decorate(compile_body: Compile, mark: object = None) -> Callable[[T], T]:
    """
    A decorator that runs each execution of a task's function through a body.

    Args:
        compile_body: Called once with the task's function, where the decorator is applied; what it
            raises is raised there. The body it answers decides whether and when
            ``execution.call()`` happens.
        mark: Found by :func:`marks`, for decorators that have to know of each other.

    Raises:
        TypeError: What is decorated cannot be run as one call that ends when it returns.
    """

    def apply(target: Any) -> Any:
        kind = type(target)
        if issubclass(kind, Proxy):
            promised = promised_by(target)
            body = compile_body(promised.function)
            promised.then(functools.partial(_guard, body=body, mark=mark))
            return target
        if isinstance(target, Task):
            _guard(target, compile_body(_function_of(type(target))), mark)
            return target
        if isinstance(target, type) and issubclass(target, Task):
            run = _function_of(target)
            setattr(target, "run", _wrap(run, compile_body(run), mark))  # noqa: B010
            return target
        if isinstance(target, (staticmethod, classmethod)):
            return kind(apply(target.__func__))
        _refuse_unfit(target)
        return _wrap(target, compile_body(target), mark)

    return apply


def marks(function: Any) -> list[object]:
    """The marks of our decorators around *function*, outermost first."""
    found = []
    while function is not None:
        own = getattr(function, "__dict__", {})
        mark, wrapper = own.get(_MARK, (None, None))
        if wrapper is function:  # else functools.wraps() has copied it to somebody else's
            found.append(mark)
        function = getattr(function, "__func__", None) or own.get("__wrapped__")
    return found


def _refuse_unfit(target: Any) -> None:
    if not callable(target):
        raise TypeError(f"this decorates a task or its function, not {target!r}")
    unfit = {
        "a coroutine": inspect.iscoroutinefunction(target),
        "a generator": inspect.isgeneratorfunction(target),
        "an asynchronous generator": inspect.isasyncgenfunction(target),
    }
    for kind, is_it in unfit.items():
        if is_it:
            raise TypeError(
                f"{target.__qualname__} returns {kind} before any of it has run, and what this "
                "decorator guards would be over by then; decorate a function that runs it"
            )


def _wrap(function: Callable[..., Any], body: Body, mark: object) -> Callable[..., Any]:
    """*function* run through *body*; looks like *function* to Celery and to everyone else."""

    @_like(function, mark)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return Execution(owner, function, args, kwargs, args).run(body)

    owner = Owner(wrapper, _full_name(function))
    return wrapper


def _guard(task: Any, body: Body, mark: object) -> None:
    """Put *body* around what a task that exists already runs."""
    function = task.run
    bound = not isinstance(inspect.getattr_static(type(task), "run"), staticmethod)

    @_like(function, mark)
    def run(*args: Any, **kwargs: Any) -> Any:
        bound_args = (task, *args) if bound else args
        return Execution(owner, function, args, kwargs, bound_args).run(body)

    owner = Owner(run, task.name, task)
    task.run = run


def _like(function: Any, mark: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def dress(wrapper: Any) -> Callable[..., Any]:
        dressed: Any = functools.wraps(function)(wrapper)
        try:
            # Celery's check of arguments does not look through __wrapped__, but at this.
            dressed.__signature__ = inspect.signature(function)
        except (TypeError, ValueError):
            dressed.__dict__.pop("__signature__", None)
        # In place of the inner decorator's, which wraps() has copied.
        setattr(dressed, _MARK, (mark, dressed))
        answer: Callable[..., Any] = dressed
        return answer

    return dress


def _full_name(function: Any) -> str:
    module = getattr(function, "__module__", None) or "?"
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _function_of(kind: Any) -> Callable[..., Any]:
    """The function of the task class *kind*, with ``self`` among its parameters if it is bound."""
    run: Callable[..., Any] = kind.run
    return run

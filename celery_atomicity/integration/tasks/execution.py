"""
One execution of a decorated function: of which task it is, and who runs it.

The running executions of a thread (or greenlet) form a chain, innermost first, so that whatever
publishes a task again can find what that very task holds.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

from celery import current_app
from celery._state import _task_stack
from celery.exceptions import Ignore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from celery import Celery

    from celery_atomicity.integration.tasks.owner import Owner

    #: A worker runs it | ``apply()`` or task_always_eager | someone called the function.
    Where = Literal["worker", "eager", "direct"]

_running: ContextVar[Execution | None] = ContextVar("celery_atomicity_running", default=None)


class Execution:
    """
    One execution of a function that carries one of our decorators.

    Attributes:
        owner: Knows the task of the decorated function.
        function: What is to be called with *args* and *kwargs*, if it is called.
        args: The positional arguments of *function*.
        kwargs: The keyword arguments.
        bound_args: The positional arguments as the function's signature counts them: the task
            first where it is bound. What a key is made of, together with *kwargs*.
        task: The task whose function it is; None for a function that is no task's.
        request: The task's request; None in a direct call.
        where: Who runs it.
        outer: The execution that this one runs inside of, if any.
        innermost: How many of our decorators are inside of this one's, and what is called before
            they let the function run, if anything.
        yields: Called, last first, before this very task is published again: by ``self.retry``,
            autoretry, ``task.replace``, or being given back to its queue.
    """

    __slots__ = (
        "args",
        "bound_args",
        "function",
        "innermost",
        "kwargs",
        "outer",
        "owner",
        "request",
        "task",
        "where",
        "yields",
    )

    def __init__(
        self,
        owner: Owner,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        bound_args: tuple[Any, ...],
    ) -> None:
        self.owner = owner
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.bound_args = bound_args
        self.outer = _running.get()
        self.yields: list[Callable[[], None]] = []
        self.innermost: tuple[int, Callable[[], None]] | None = None
        self.task: Any = owner.find(bound_args)
        self.request: Any = None
        self.where: Where = "direct"
        if self.task is not None:
            self._place(self.task.request)

    def run(self, body: Callable[[Execution], Any]) -> Any:
        """Answer what *body* makes of this execution, with it as the innermost one."""
        token = _running.set(self)
        try:
            return body(self)
        except Ignore as end:
            # Celery formats all frames that it has passed, twice, and shows them to nobody: that
            # would take longer than everything else that giving a task back takes.
            raise end.with_traceback(None) from None
        finally:
            _running.reset(token)

    def before_function(self, inside: int, action: Callable[[], None]) -> None:
        """Have *action* called when the last of the *inside* decorators in ours calls on."""
        self.innermost = (inside, action)

    def call(self) -> Any:
        """Call the decorated function itself."""
        for distance, execution in enumerate(self.outwards()):
            if execution.innermost is not None and execution.innermost[0] == distance:
                execution.innermost[1]()
        return self.function(*self.args, **self.kwargs)

    @property
    def app(self) -> Celery:
        """The task's app, else the current one."""
        app: Celery = current_app._get_current_object() if self.task is None else self.task.app  # noqa: SLF001
        return app

    @property
    def name(self) -> str:
        """The task's name, else the function's full name."""
        return self.owner.name if self.task is None else str(self.task.name)

    @property
    def task_id(self) -> str:
        """The id of the task, for a person to read where it has none."""
        return "called directly" if self.request is None else str(self.request.id)

    @property
    def in_worker(self) -> bool:
        """Whether this is part, however indirectly, of a task that a worker runs."""
        if self.where == "worker":
            return True
        requests = [task.request for task in _task_stack.stack or ()]
        return any(not request.called_directly and not request.is_eager for request in requests)

    def outwards(self) -> Iterator[Execution]:
        """This execution and those that it runs inside of."""
        execution: Execution | None = self
        while execution is not None:
            yield execution
            execution = execution.outer

    def _place(self, request: Any) -> None:
        if request.called_directly:
            return
        # A task that calls its own function again is still in the same request; only the first
        # call is the worker's.
        outer = self.outer
        while outer is not None:
            if outer.request is request and outer.owner is self.owner:
                return
            outer = outer.outer
        self.request = request
        self.where = "eager" if request.is_eager else "worker"


def running() -> Execution | None:
    """The innermost execution of this thread."""
    return _running.get()


def give_way(task_id: str) -> None:
    """Let go what the running execution of the task *task_id* holds, if it runs in this thread."""
    innermost = _running.get()
    if innermost is None:
        return
    for execution in innermost.outwards():
        request = execution.request
        if request is not None and request.id == task_id and execution.where == "worker":
            while execution.yields:
                execution.yields.pop()()

"""Workers run one of the copies of a tick's message."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from celery.exceptions import Ignore

from celery_atomicity import clock, events
from celery_atomicity.errors import Unavailable
from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.beat.copies import HEADER, admits
from celery_atomicity.integration.tasks.requeue import send_on

if TYPE_CHECKING:
    from celery import Celery, Task

_GUARDED = "_atomicity_guarded"

# How long a silent arbiter is waited for, from its first silence on, and between two questions.
PATIENCE, PAUSE = 3.0, 0.2  # seconds


def guard(app: Celery) -> None:
    """Let the tasks of *app* run one copy of each tick only; to be called in its workers."""
    for task in app.tasks.values():
        cls = type(task)
        if _GUARDED not in cls.__dict__:
            _guard(cls)


def _guard(cls: type[Task]) -> None:
    before = cls.before_start

    def before_start(self: Any, task_id: str, args: Any, kwargs: Any) -> Any:
        tick = getattr(self.request, HEADER, None)
        if isinstance(tick, dict) and not self.request.is_eager:
            _check(self, task_id, tick)
        if not self.request.is_eager:
            send_on(self)
        return before(self, task_id, args, kwargs)

    # On the class: it is where Celery looks for it. A base class that has one of its own, guarded
    # or not, is called by the one found here.
    cls.before_start = before_start
    setattr(cls, _GUARDED, True)


class _Outage:
    """
    Since when this process gets no answer from the arbiter.

    A restart of it is waited for. What takes longer is not, by any task that comes: those that
    were in the queue would hold up all others one after the other.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._said = False
        self._never = threading.Event()

    def ended(self) -> None:
        """The arbiter answers."""
        self._since = None
        self._said = False

    def first(self) -> bool:
        """Whether nobody has been told of it yet."""
        said, self._said = self._said, True
        return not said

    def wait(self) -> bool:
        """Sleep a little; False if it has lasted too long for that."""
        now = clock.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since > PATIENCE:
            return False
        clock.wait(self._never, PAUSE)
        return True


_outage = _Outage()


def _check(task: Any, task_id: str, tick: dict[str, Any]) -> None:
    while True:
        try:
            admitted = admits(Atomicity.of(task.app).clients, tick)
        except Unavailable as error:
            if _outage.wait():
                continue
            # Rather twice in the rare case that there are two, than not at all in the usual one.
            if _outage.first():
                events.copies_unchecked.tell(task=task.name, task_id=task_id, reason=str(error))
            return
        _outage.ended()
        break
    if not admitted:
        events.copy_skipped.tell(task=task.name, task_id=task_id)
        raise Ignore

"""What happens, as signals of Celery's."""

from __future__ import annotations

import os
import queue
import threading
from typing import TYPE_CHECKING, Any

from celery.utils.dispatch import Signal

from celery_atomicity import events
from celery_atomicity.primitives.membership import Assignment

if TYPE_CHECKING:
    from collections.abc import Callable

lease_lost = Signal(
    name="lease_lost", providing_args={"group", "keys", "fence", "holder", "reason"}
)
"""
A lease of this process was lost. The sender is the group's name.

Sent where the lease was held: in the pool child. *keys* is a tuple of texts, *fence* the lease's
number, *holder* and *reason* are for a person to read.
"""

assigned = Signal(name="assigned", providing_args={"group", "assignment"})
"""
What this replica owns has changed. The sender is the group's name.

Sent where the replica registers: in the worker's main process, or beat's. *assignment* is an
Assignment, or None: it owns nothing now. Unlike a listener of ``onassigned``, a receiver is told
later, and keeps nothing from happening.
"""

rate_delayed = Signal(
    name="rate_delayed", providing_args={"group", "task_id", "scope", "keys", "seconds"}
)
"""
A task does not start before *seconds*, since it is over a limit. The sender is the task's name.

Sent where it would have run, by the thread that would have run it. *scope* is the limit's, *keys*
is a tuple of what is limited.
"""

tick_skipped = Signal(name="tick_skipped", providing_args={"slot", "due"})
"""
Beat has given up what came due at *due*, as too old. The sender is the entry's name.

Sent in beat, by its loop; of an entry that is fanned out, for each *slot* (else None). *due* is the
first instant of what is given up, in ISO 8601, UTC.
"""


class _Aside:
    """
    Sends signals in a thread of its own, in order.

    What happens to leases and slots happens in threads that renew and register: no receiver may
    keep these. The thread starts with the first signal; a child starts with none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def send(self, signal: Any, sender: str, **facts: Any) -> None:
        """Send *signal*, if anybody receives it."""
        if not signal.receivers:
            return
        self._waiting.put(lambda: signal.send(sender, **facts))
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="atomicity-signals", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            # What a receiver raises, Celery logs.
            self._waiting.get()()


_aside = _Aside()


def _lease_lost(*, group: str, **facts: Any) -> None:
    _aside.send(lease_lost, group, group=group, **facts)


def _assigned(*, group: str, i: int, n: int) -> None:
    _aside.send(assigned, group, group=group, assignment=Assignment(i, n))


def _unassigned(*, group: str) -> None:
    _aside.send(assigned, group, group=group, assignment=None)


def _rate_delayed(*, task: str, **facts: Any) -> None:
    rate_delayed.send(task, **facts)


def _tick_skipped(*, entry: str, **facts: Any) -> None:
    tick_skipped.send(entry, **facts)


events.lease_lost.hear(_lease_lost)
events.assigned.hear(_assigned)
events.unassigned.hear(_unassigned)
events.rate_delayed.hear(_rate_delayed)
events.tick_skipped.hear(_tick_skipped)


def _after_fork() -> None:
    global _aside  # noqa: PLW0603 - of the process
    _aside = _Aside()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""Whose turn it is to read: one waiting thread reads for all, the others wait to be woken."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from celery_atomicity import clock

if TYPE_CHECKING:
    from celery_atomicity.threads import Waiting

# How much later than its deadline a reader counts as torn away, in seconds: most are only late.
TORN = 0.5


class Turns:
    """
    Thread-safe, and without a thread of its own.

    Attributes:
        reader: Whose thread reads at present, if any. One that was torn away counts no more once
            it is well overdue.
    """

    def __init__(self) -> None:
        self.reader: Waiting | None = None
        self._queue: deque[Waiting] = deque()
        self._lock = threading.Lock()

    def is_mine(self, one: Waiting) -> bool:
        """Whether *one*'s thread is to read; if not, it stands in the queue to be woken."""
        if self.reader is None:
            # Two that do this at once both read, which is allowed for, if wasteful.
            self.reader = one
        if self.reader is one:
            return True
        with self._lock:
            if self._is_free():
                self.reader = one
                return True
            if one not in self._queue:
                self._queue.append(one)
            # Who stops reading looks at the queue after that: one of us two sees the other.
            if self.reader is None:
                self.reader = one
            return self.reader is one

    def _is_free(self) -> bool:
        reader = self.reader
        return reader is None or reader.done or clock.monotonic() > reader.deadline + TORN

    def leave(self, one: Waiting) -> None:
        """*one* waits no more: wake one who does, so that somebody reads while anybody waits."""
        if self.reader is one:
            self.reader = None
        if self._queue and self.reader is None:
            self._wake_next()

    def _wake_next(self) -> None:
        with self._lock:
            now = clock.monotonic()
            while self._queue:
                follower = self._queue.popleft()
                if not follower.done and now < follower.deadline:
                    follower.wake()
                    return

"""Whose turn it is to read: one waiting thread reads for all, the others wait to be woken."""

from __future__ import annotations

import math
import threading
from collections import deque

from celery_atomicity import clock


class Waiting:
    """
    What one thread waits for, and whoever reads finds.

    Attributes:
        done: It was found.
        deadline: When it is not waited for any more, on our clock.
    """

    __slots__ = ("_event", "_woken", "deadline", "done")

    def __init__(self) -> None:
        self.done = False
        self.deadline = math.inf
        self._woken = False
        # Made by the first wait: whoever reads for himself needs none.
        self._event: threading.Event | None = None

    def wait(self, seconds: float) -> None:
        """Wait until it is found, or for *wake*."""
        event = self._event
        if event is None:
            event = self._event = threading.Event()
        # Looked at only once there is something to be woken by.
        if not self.done and not self._woken:
            clock.wait(event, seconds)
        self._woken = False
        event.clear()

    def wake(self) -> None:
        """Make the thread that waits look again, or that is about to wait."""
        self._woken = True
        if self._event is not None:
            self._event.set()


class Turns:
    """
    Thread-safe, and without a thread of its own.

    Attributes:
        reader: Whose thread reads at present, if any. One that was torn away counts no more once
            it is overdue.
    """

    def __init__(self) -> None:
        self.reader: Waiting | None = None
        self._queue: deque[Waiting] = deque()
        self._lock = threading.Lock()

    def claim(self, one: Waiting) -> None:
        """Become the reader if nobody is; costs nothing."""
        # Two that do this at once both read, which is allowed for, if wasteful.
        if self.reader is None:
            self.reader = one

    def is_mine(self, one: Waiting) -> bool:
        """Whether *one*'s thread is to read; if not, it stands in the queue to be woken."""
        if self.reader is one:
            return True
        with self._lock:
            reader = self.reader
            free = reader is None or reader.done or clock.monotonic() > reader.deadline
            if free:
                self.reader = one
            elif one not in self._queue:
                self._queue.append(one)
            return free

    def pass_on(self, one: Waiting) -> None:
        """Stop reading, and wake one who waits, so that somebody reads while anybody waits."""
        with self._lock:
            if self.reader is one:
                self.reader = None
            now = clock.monotonic() if self._queue else 0.0
            while self._queue:
                follower = self._queue.popleft()
                if not follower.done and now < follower.deadline:
                    follower.wake()
                    return

    def leave(self, one: Waiting) -> None:
        """*one* waits no more: see that somebody reads for those who still do."""
        if self.reader is one or (self._queue and self.reader is None):
            self.pass_on(one)

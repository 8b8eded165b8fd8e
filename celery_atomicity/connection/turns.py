"""Whose turn it is to read: one question's thread reads for all, the others wait to be woken."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from celery_atomicity import clock

if TYPE_CHECKING:
    from celery_atomicity.connection.question import Question


class Turns:
    """
    Thread-safe, and without a thread of its own.

    Attributes:
        reader: Whose thread reads at present, if any. One that was torn away counts no more once
            its question is overdue.
    """

    def __init__(self) -> None:
        self.reader: Question | None = None
        self._waiting: deque[Question] = deque()
        self._lock = threading.Lock()

    def claim(self, question: Question) -> None:
        """Become the reader if nobody is; costs nothing."""
        # Two that do this at once both read, which is allowed for, if wasteful.
        if self.reader is None:
            self.reader = question

    def is_mine(self, question: Question) -> bool:
        """Whether *question*'s thread is to read; if not, it stands in the queue to be woken."""
        if self.reader is question:
            return True
        with self._lock:
            reader = self.reader
            free = reader is None or reader.done or clock.monotonic() > reader.deadline
            if free:
                self.reader = question
            elif question not in self._waiting:
                self._waiting.append(question)
            return free

    def pass_on(self, question: Question) -> None:
        """Stop reading, and wake one who waits, so that somebody reads while anybody waits."""
        with self._lock:
            if self.reader is question:
                self.reader = None
            while self._waiting:
                follower = self._waiting.popleft()
                if not follower.done:
                    follower.wake()
                    return

    def leave(self, question: Question) -> None:
        """*question* is decided: see that somebody reads for those who still wait."""
        if self.reader is question or (self._waiting and self.reader is None):
            self.pass_on(question)

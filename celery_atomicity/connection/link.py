"""A connected socket to one address, and who waits for an answer on it."""

from __future__ import annotations

import math
import os
import ssl
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from celery_atomicity import clock
from celery_atomicity.connection.readiness import writable
from celery_atomicity.connection.resp import Intake
from celery_atomicity.connection.tls import Guarded

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Iterator

    from celery_atomicity.connection.question import Question
    from celery_atomicity.connection.script import Command

# A link that was quiet for longer is looked at before it is used: the server may have closed it.
QUIET = 0.02

CHUNK = 65536

# What a socket that does not wait says when it would have to.
BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

# Who takes an answer: the question, which of its answers it is, and what was sent for it.
Receiver = tuple["Question", int, "Command"]


class Link:
    """
    A connected socket. Answers come in the order of the commands, so their receivers queue.

    Attributes:
        run: What distinguishes this run of the server from any other.
        sits_out: Seconds, from when it was connected, for which the server grants no lease.
    """

    def __init__(self, connection: Any, run: str, *, tls: bool, sits_out: float) -> None:
        # redis-py's object is kept because it owns the socket: when it goes, the socket closes.
        self._connection = connection
        sock = connection._sock  # noqa: SLF001 - there is no public way to it
        self.socket: socket.socket | Guarded = Guarded(sock) if tls else sock
        self.run = run
        self.sits_out = sits_out
        self._pending: deque[Receiver] = deque()
        self._intake = Intake()
        # Two readers at once happen only when one was taken for lost; see the exchange.
        self._reading = threading.Lock()
        self._quiet_since = math.inf
        self.socket.setblocking(False)

    @property
    def oldest(self) -> Question | None:
        """The question that has waited longest on this link."""
        try:
            return self._pending[0][0]
        except IndexError:
            return None

    def send(self, data: bytes, receivers: Iterable[Receiver], seconds: float) -> None:
        """
        Write commands, whose answers go to *receivers*, within *seconds*.

        Raises:
            OSError: The connection broke, or the server takes nothing any more (TimeoutError).
        """
        self._pending.extend(receivers)
        while True:
            try:
                sent = self.socket.send(data)
            except BLOCKED:
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
            if not writable(self.socket.fileno(), seconds):
                raise TimeoutError(f"it took no data for {seconds:g} s")

    def read(self) -> list[tuple[Receiver, object]]:
        """
        The answers that what has come completes; does not wait.

        Raises:
            OSError: The connection broke.
            ValueError: What came is not an answer.
            IndexError: It is an answer to nothing.
        """
        with self._reading:
            answers = [(self._pending.popleft(), value) for value in self._values()]
            self._quiet_since = clock.monotonic()
        return answers

    def heard(self) -> list[object]:
        """
        What has come on a link on which nothing is asked; does not wait.

        Raises:
            OSError: The connection broke.
            ValueError: What came is not an answer.
        """
        with self._reading:
            return self._values()

    def _values(self) -> list[object]:
        try:
            data = self.socket.recv(CHUNK)
        except BLOCKED:
            return []
        if not data:
            raise ConnectionResetError("the server closed the connection")
        return self._intake.take(data)

    def is_fresh(self, now: float) -> bool:
        """Whether an answer was read just now and none is missing, so that it may be relied on."""
        return not self._pending and now - self._quiet_since < QUIET

    def unanswered(self) -> Iterator[Receiver]:
        """Take out those who still wait."""
        with suppress(IndexError):
            while True:
                yield self._pending.popleft()

    def close(self, *, inherited: bool = False) -> None:
        """Let go of the socket; an *inherited* one is shared, so without a word to the server."""
        with suppress(Exception):
            if inherited:
                os.close(self.socket.detach())
            else:
                self._connection.disconnect()

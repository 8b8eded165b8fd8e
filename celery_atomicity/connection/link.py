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
from celery_atomicity.connection.readiness import readable, writable
from celery_atomicity.connection.resp import Intake
from celery_atomicity.connection.tls import Guarded

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from celery_atomicity.connection.question import Question
    from celery_atomicity.connection.script import Command

# A link that was quiet for longer is looked at before it is used: the server may have closed it.
QUIET = 0.02

CHUNK = 65536

# What a socket that does not wait says when it would have to.
BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Broken(ConnectionError):
    """
    The connection is of no more use; why, in words.

    Our own, so that what somebody raises into running code, such as the TimeoutError of an alarm,
    is not taken for an outage: it has to reach whoever it was meant for.
    """


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
        self._given_up = False
        self._known: set[str] = set()
        self._quiet_since = math.inf
        self.socket.setblocking(False)

    @property
    def oldest(self) -> Question | None:
        """The question that has waited longest on this link."""
        try:
            return self._pending[0][0]
        except IndexError:
            return None

    def is_overdue(self, now: float) -> bool:
        """Whether an answer should have come by now."""
        oldest = self.oldest
        return oldest is not None and now >= oldest.deadline

    def is_fresh(self, now: float) -> bool:
        """Whether an answer was read just now and none is missing, so that it may be relied on."""
        return not self._pending and now - self._quiet_since < QUIET

    def is_dead(self) -> bool:
        """Whether something came though nothing is asked: the end, usually."""
        descriptor = self.socket.fileno()
        return descriptor < 0 or readable(descriptor, 0)

    def worded(self, command: Command) -> bytes:
        """
        What is sent for *command*: what is owed in full the first time.

        A server that does not know its script would do nothing, and be sent it once somebody reads
        that: later than what is asked meanwhile, or never if the reader is torn away.
        """
        if not command.is_owed or command.script in self._known or command.in_full is None:
            return command.data
        self._known.add(command.script)
        return command.in_full(False)

    def send(self, data: bytes, receivers: Iterable[Receiver], seconds: float) -> None:
        """
        Write commands, whose answers go to *receivers*, within *seconds*.

        Raises:
            Broken: The connection broke, or the server takes nothing any more.
        """
        self._pending.extend(receivers)
        while True:
            try:
                sent = self.socket.send(data)
            except BLOCKED:
                sent = 0
            except OSError as error:
                if _is_of_somebody(error):
                    raise
                raise Broken(str(error)) from error
            if sent == len(data):
                return
            data = data[sent:]
            descriptor = self.socket.fileno()
            if descriptor < 0 or not writable(descriptor, seconds):
                raise Broken(f"it took no data for {seconds:g} s")

    def read(self) -> list[tuple[Receiver, object]]:
        """
        The answers that what has come completes; does not wait.

        Raises:
            Broken: The connection broke, or what came is not an answer, or one to nothing.
        """
        with self._reading:
            if self._given_up:
                return []
            values = self._values()
            if len(values) > len(self._pending):
                raise Broken("it answered what it was not asked")
            answers = [(self._pending.popleft(), value) for value in values]
            self._quiet_since = clock.monotonic()
        return answers

    def heard(self) -> list[object]:
        """
        What has come on a link on which nothing is asked; does not wait.

        Raises:
            Broken: The connection broke, or what came is not an answer.
        """
        with self._reading:
            return [] if self._given_up else self._values()

    def _values(self) -> list[object]:
        try:
            data = self.socket.recv(CHUNK)
        except BLOCKED:
            return []
        except OSError as error:
            if _is_of_somebody(error):
                raise
            raise Broken(str(error)) from error
        if not data:
            raise Broken("the server closed the connection")
        try:
            return self._intake.take(data)
        except ValueError as error:
            raise Broken(str(error)) from error

    def give_up(self) -> list[Receiver]:
        """
        Close it, and take out those who still wait.

        No answer is handed out any more: whoever reads at this moment has taken out whom they are
        for, or finds nothing. Were it to take answers while others take out who waits, each answer
        would go to the question of another.
        """
        with self._reading:
            self._given_up = True
            self.close()
            waiting = list(self._pending)
            self._pending.clear()
        return waiting

    def close(self, *, inherited: bool = False) -> None:
        """Let go of the socket; an *inherited* one is shared, so without a word to the server."""
        with suppress(Exception):
            if inherited:
                os.close(self.socket.detach())
            else:
                self._connection.disconnect()


def _is_of_somebody(error: OSError) -> bool:
    """Whether it was raised into running code: the system's errors have a number."""
    return error.errno is None

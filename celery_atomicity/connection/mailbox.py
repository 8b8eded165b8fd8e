"""Being rung: one subscription per process, on a connection of its own to the first address."""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from typing import TYPE_CHECKING

from celery_atomicity import clock, events
from celery_atomicity.connection.link import CHUNK
from celery_atomicity.connection.resp import Intake, pack
from celery_atomicity.connection.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_atomicity.connection.link import Link
    from celery_atomicity.settings import Settings

# How long a mailbox listens on when nobody waits any more, and how long it rests when its server
# does not answer, in seconds. Whoever waits asks by itself from time to time, so neither is urgent.
IDLE = 10.0
REST = 0.5

# How often a listening thread looks whether it is still wanted, in seconds.
LOOK = 1.0


class Bell(threading.Event):
    """
    Set whenever its waiter is rung.

    Attributes:
        said: What was told with the last ring, empty if nothing.
        run: The run of the server that rang it.
    """

    said = run = ""


class Mailbox:
    """
    Rings those threads of this process that wait for their turn.

    Thread-safe. Its thread lives while somebody waits, and ten seconds longer.

    Args:
        settings: The first of its addresses is listened to.
        channel_of: Names the channel of a process from a random text.
    """

    def __init__(self, settings: Settings, channel_of: Callable[[str], str]) -> None:
        self._settings = settings
        self._channel_of = channel_of
        self._link: Link | None = None
        self.start_anew()
        _every.add(self)

    def start_anew(self) -> None:
        """Begin with a channel that nobody rings yet: at first, and after a fork."""
        if self._link is not None:
            self._link.close(inherited=True)
        self._link = None
        self.channel = self._channel_of(secrets.token_hex(8))
        self._waiting: dict[str, Bell] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._subscribed = False

    @property
    def listens(self) -> bool:
        """Whether *expect* would answer at once."""
        return self._subscribed

    def expect(self, ticket: str) -> Bell | None:
        """
        What rings whenever *ticket* is rung; None if nobody can be rung at present.

        Blocks until the subscription stands, at most for the timeout.
        """
        bell = Bell()
        with self._lock:
            self._waiting[ticket] = bell
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="atomicity-mailbox", daemon=True
                )
                self._thread.start()
            self._changed.wait_for(lambda: self._subscribed, self._settings.timeout)
            if self._subscribed:
                return bell
            del self._waiting[ticket]
            return None

    def forget(self, ticket: str) -> None:
        """*ticket* does not wait any more."""
        with self._lock:
            self._waiting.pop(ticket, None)

    def _run(self) -> None:
        server = Server(self._settings.addresses[0], self._settings)
        rest = threading.Event()
        while self._wanted():
            try:
                self._link = link = server.connect()
                link.socket.settimeout(self._settings.timeout)
                link.socket.sendall(pack(["SUBSCRIBE", self.channel]))
                self._listen(link)
                self._unsubscribed()
            except (OSError, ValueError) as error:
                events.mailbox_gone.tell(reason=str(error))
                self._unsubscribed()
                clock.wait(rest, REST)

    def _wanted(self) -> bool:
        with self._lock:
            if self._waiting:
                return True
            self._thread = None
            return False

    def _listen(self, link: Link) -> None:
        intake = Intake()
        idle = 0.0
        link.socket.settimeout(LOOK)
        while idle < IDLE:
            try:
                data = link.socket.recv(CHUNK)
            except TimeoutError:
                idle = 0.0 if self._waiting else idle + LOOK
                continue
            if not data:
                raise ConnectionResetError("the server closed the connection")
            for message in intake.take(data):
                self._take(message, link.run)

    def _take(self, message: object, run: str) -> None:
        if isinstance(message, Exception):
            raise ConnectionRefusedError(str(message))
        if not isinstance(message, list) or len(message) != 3:  # noqa: PLR2004 - a push has three
            raise ValueError(f"not a push: {message!r}")
        kind, _, payload = message
        with self._lock:
            if kind == b"subscribe":
                self._subscribed = True
                # Whoever waited over an outage may have been rung meanwhile.
                for event in self._waiting.values():
                    event.set()
                self._changed.notify_all()
            elif kind == b"message":
                ticket, _, said = payload.decode("utf-8", "replace").partition(" ")
                bell = self._waiting.get(ticket)
                if bell is not None:
                    bell.run, bell.said = run, said
                    bell.set()

    def _unsubscribed(self) -> None:
        with self._lock:
            self._subscribed = False
            link, self._link = self._link, None
        if link is not None:
            link.close()


_every: weakref.WeakSet[Mailbox] = weakref.WeakSet()


def _after_fork() -> None:
    for mailbox in list(_every):
        mailbox.start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""
Being rung: one subscription per process, on a connection of its own to the first address.

Of those that wait one reads for all. So whoever is alone with its wait is woken by the ring itself,
and not by another thread that was. What is missed where an exception from outside tears the reader
away costs time only, since whoever waits asks by itself now and then. An attendant, a thread of our
own into which nobody raises, connects while somebody waits, and closes the connection later.
"""

from __future__ import annotations

import math
import os
import secrets
import threading
import weakref
from typing import TYPE_CHECKING

from celery_atomicity import clock, events, threads
from celery_atomicity.connection.link import Broken
from celery_atomicity.connection.readiness import readable
from celery_atomicity.connection.resp import pack
from celery_atomicity.connection.server import Server
from celery_atomicity.connection.turns import Turns
from celery_atomicity.threads import Changes, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_atomicity.connection.link import Link
    from celery_atomicity.settings import Settings

# How long a mailbox listens on when nobody waits any more, and how long it rests when its server
# does not answer, in seconds. Whoever waits asks by itself from time to time, so neither is urgent.
IDLE = 10.0
REST = 0.5

# Timeouts for which connecting is waited for, at the most.
PATIENCE = 3


class Bell(Waiting):
    """
    What one waiter is rung by.

    Attributes:
        done: It was rung, and has not been muffled since.
        said: What was told with the last ring, empty if nothing.
        run: The run of the server that rang it.
    """

    deadline = -math.inf
    said = run = ""

    def ring(self, said: str = "", run: str = "") -> None:
        """Tell whoever waits for it that it is time to look, and *said*."""
        self.run, self.said = run, said
        self.done = True
        self.wake()

    def muffle(self) -> None:
        """Forget what it was rung for."""
        self.said = ""
        self.done = False


class Mailbox:
    """
    Rings those threads of this process that wait for their turn.

    Thread-safe. It listens while somebody waits, and about ten seconds longer.

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
        self._changed = Changes()
        self._turns = Turns()
        self._attendant: object = None
        self._alarm = Waiting()
        self._rests_until = -math.inf
        self._used_at = -math.inf

    @property
    def listens(self) -> bool:
        """Whether *expect* would answer at once."""
        return self._link is not None

    def expect(self, ticket: str, seconds: float = math.inf) -> Bell | None:
        """
        What rings whenever *ticket* is rung; None if nobody can be rung at present.

        Blocks until the subscription stands, for *seconds* and about three timeouts at the most.
        """
        bell = self._waiting[ticket] = Bell()
        if self._link is None and not self._await_link(seconds):
            self.forget(ticket)
            return None
        return bell

    def wait(self, bell: Bell, seconds: float) -> None:
        """
        Wait until *bell* is rung, for *seconds* at the most.

        Where the connection breaks meanwhile, and can be made anew, everybody is rung: whoever
        waited over an outage may have been rung in vain.
        """
        bell.deadline = clock.monotonic() + seconds
        try:
            while not bell.done and (left := bell.deadline - clock.monotonic()) > 0:
                if self._link is None:
                    self._call_attendant()
                    bell.wait(min(left, REST))
                elif self._turns.is_mine(bell):
                    self._read(bell)
                else:
                    bell.wait(left)
        finally:
            bell.deadline = -math.inf
            self._turns.leave(bell)

    def forget(self, ticket: str) -> None:
        """*ticket* does not wait any more."""
        if self._waiting.pop(ticket, None) is not None:
            self._used_at = clock.monotonic()

    # -- listening ------------------------------------------------------------------------------

    def _read(self, bell: Bell) -> None:
        """Ring whoever is rung until *bell* is, it is overdue, or the connection is gone."""
        while not bell.done and (link := self._link) is not None:
            left = bell.deadline - clock.monotonic()
            descriptor = link.socket.fileno()
            if left <= 0 or descriptor < 0:
                return
            # Whoever is torn away from this has read nothing, and nothing is lost.
            if not readable(descriptor, left):
                continue
            try:
                for message in link.heard():
                    self._take(message, link.run)
            except (Broken, Nonsense) as error:
                self._drop(link, str(error))
            except BaseException:
                # What was read may not have been heard, or only half of it.
                self._drop(link, "interrupted while listening")
                raise

    def _take(self, message: object, run: str) -> None:
        kind, payload = _push(message)
        if kind == b"message":
            ticket, _, said = payload.decode("utf-8", "replace").partition(" ")
            bell = self._waiting.get(ticket)
            if bell is not None:
                bell.ring(said, run)

    def _drop(self, link: Link, reason: str) -> None:
        with self._lock:
            if self._link is not link:
                return
            self._link = None
        # While nobody reads from it: its descriptor may be another's as soon as it is closed.
        link.give_up()
        self._alarm.wake()
        events.mailbox_gone.tell(reason=reason)

    # -- the attendant --------------------------------------------------------------------------

    def _await_link(self, seconds: float) -> bool:
        """Wait until the connection stands, or has failed; whether it stands."""
        rests = self._rests_until
        if clock.monotonic() >= rests and self._call_attendant():
            self._changed.wait_for(
                lambda: self._link is not None or self._rests_until != rests,
                min(seconds, PATIENCE * self._settings.timeout),
            )
        return self._link is not None

    def _call_attendant(self) -> bool:
        """See that there is one, and looks; False where no thread can be started."""
        with self._lock:
            if self._attendant is None:
                self._attendant = token = object()
                try:
                    threads.start("atomicity-mailbox", self._attend, token)
                except RuntimeError:
                    self._attendant = None
                    return False
                except BaseException:
                    # Torn away, perhaps from one that runs: it is not the one, sees that, and ends.
                    self._attendant = None
                    raise
        self._alarm.wake()
        return True

    def _attend(self, token: object) -> None:
        try:
            while (pause := self._look_after(token)) is not None:
                self._alarm.wait(pause)
        finally:
            with self._lock:
                if self._attendant is token:
                    self._attendant = None

    def _look_after(self, token: object) -> float | None:
        """Connect, or close the connection, if it is time; seconds until the next look, if any."""
        with self._lock:
            now = clock.monotonic()
            if self._attendant is not token:
                return None
            idle = 0.0 if self._waiting else now - self._used_at
            ends = idle >= IDLE
            if ends:
                # Whoever comes from now on calls another.
                self._attendant = None
                unused, self._link = self._link, None
            elif self._link is not None or not self._waiting:
                return IDLE - idle
            elif now < self._rests_until:
                return self._rests_until - now
        if ends:
            if unused is not None:
                unused.give_up()
            return None
        self._subscribe(token)
        return 0.0

    def _subscribe(self, token: object) -> None:
        """Listen, if that can be."""
        link = None
        try:
            link = self._connect()
        except (OSError, Nonsense) as error:
            events.mailbox_gone.tell(reason=str(error))
        with self._lock:
            if self._attendant is token and link is not None:
                # They may have been rung in vain; nobody reads yet, who must not be disturbed.
                for bell in list(self._waiting.values()):
                    bell.ring()
                self._link, link = link, None
            self._rests_until = clock.monotonic() + REST
        if link is not None:
            link.close()
        self._changed.tell()

    def _connect(self) -> Link:
        link = Server(self._settings.addresses[0], self._settings).connect()
        try:
            link.send(pack(["SUBSCRIBE", self.channel]), (), self._settings.timeout)
            self._await_subscription(link)
        except BaseException:
            link.close()
            raise
        return link

    def _await_subscription(self, link: Link) -> None:
        until = clock.monotonic() + self._settings.timeout
        while (left := until - clock.monotonic()) > 0:
            readable(link.socket.fileno(), left)
            if any(_push(message)[0] == b"subscribe" for message in link.heard()):
                return
        raise TimeoutError(f"no answer within {self._settings.timeout:g} s")


class Nonsense(ValueError):
    """What came is nothing that comes over a subscription."""


def _push(message: object) -> tuple[object, bytes]:
    """
    The kind and the payload of what came over a subscription.

    Raises:
        Broken: The server refuses the subscription.
        Nonsense: It is nothing that comes over one.
    """
    if isinstance(message, Exception):
        raise Broken(str(message))
    if not isinstance(message, list) or len(message) != 3:  # noqa: PLR2004 - a push has three
        raise Nonsense(f"not a push: {message!r}")
    kind, _, payload = message
    return kind, payload if isinstance(payload, bytes) else b""


_every: weakref.WeakSet[Mailbox] = weakref.WeakSet()


def _after_fork() -> None:
    for mailbox in list(_every):
        mailbox.start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

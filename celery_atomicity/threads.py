"""
Threads, and waiting for one another, in a program that raises into running code.

Celery's soft time limits raise in the main thread, between any two instructions. Conditions and
events of the standard library are Python: torn away between two of their lines they stay locked,
and whoever comes next waits for ever. A plain lock in a ``with`` statement does not, since the
interpreter looks for such exceptions neither between taking it and entering the block nor between
leaving the block and letting it go. So everything here is made of plain locks that nobody keeps,
and of lists that are changed in one step.
"""

from __future__ import annotations

import _thread
import math
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from celery_atomicity import clock

if TYPE_CHECKING:
    from collections.abc import Callable

# Waits end after so many seconds, for no reason: eventlet counts milliseconds in 31 bits.
LONGEST = 86400.0


def start(name: str, function: Callable[..., object], *arguments: object) -> None:
    """
    Run *function* in a thread, which never keeps the process from ending.

    It runs or it does not: a thread of *threading* first waits to hear from its starter, which an
    exception from outside may have torn away. So another thread starts it, which nobody knows of.

    Raises:
        RuntimeError: No thread can be started: there are too many, or the process ends.
    """

    def run() -> None:
        try:
            threading.Thread(target=function, args=arguments, name=name, daemon=True).start()
        except RuntimeError:
            function(*arguments)  # this one will do

    # Looked up now: gevent and eventlet put greenlets in its place.
    _thread.start_new_thread(run, ())


class Waiting:
    """
    What one thread waits for, and another finds.

    Attributes:
        done: It was found.
        deadline: When it is not waited for any more, on our clock.
    """

    done = False
    deadline = math.inf
    _woken = False
    # Made by the first wait: whoever finds it for himself needs none. Locked unless it was woken.
    _gate: threading.Lock | None = None

    def wait(self, seconds: float) -> None:
        """Wait until it is found, or for *wake*, or *seconds*; may end sooner for no reason."""
        gate = self._gate
        if gate is None:
            gate = threading.Lock()
            gate.acquire()
            self._gate = gate
        # Looked at only once there is something to be woken by.
        if not self.done and not self._woken:
            gate.acquire(timeout=min(max(0.0, seconds), LONGEST))
        self._woken = False

    def wake(self) -> None:
        """Make the thread that waits look again, or that is about to wait."""
        self._woken = True
        gate = self._gate
        if gate is not None and gate.locked():
            with suppress(RuntimeError):  # somebody else did
                gate.release()


class Changes:
    """
    Tells those who wait for something to be true that it may have become so.

    Thread-safe. Whoever makes it true does so first, and *tell*s then.
    """

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []

    def tell(self) -> None:
        """Make all who wait look again."""
        # Who comes after this looks for itself, since it was true before.
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.wake()

    def wait_for(self, is_true: Callable[[], bool], seconds: float) -> bool:
        """Wait until *is_true*, *seconds* at the most; whether it is."""
        until = clock.monotonic() + seconds
        one = Waiting()
        while not (true := is_true()) and (left := until - clock.monotonic()) > 0:
            self._waiting.append(one)
            if is_true():
                return True
            one.wait(left)
        return true

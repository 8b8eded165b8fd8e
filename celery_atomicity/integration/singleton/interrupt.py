"""
Raising an exception in a block that another thread runs, and never after the block has ended.

What can be reached, by pool:

- prefork and solo, in the main thread: Python code at its next instruction; a sleep, a socket or
  any other call that gives way to signals at once, since the thread is sent a signal too.
- threads, and other threads of a task: Python code at its next instruction. A call into C (a sleep,
  a query, a long computation of a library) ends first.
- gevent and eventlet: the greenlet at the point where it waits. One that does not wait cannot be
  reached, since nothing else runs meanwhile, the keeper of leases included.

Code that catches every exception, or holds one back in a ``finally`` that never ends, is not
stopped by anything.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

#: Wakes the main thread from a system call. Ignored by default, and by Python and Celery unused.
_WAKER = getattr(signal, "SIGURG", None)

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in_thread.argtypes = (ctypes.c_ulong, ctypes.py_object)

# Takes back what was sent. Made beforehand: making it is a call, at which that might arrive.
_NONE = ctypes.py_object()

# After so many calls at the latest an exception has arrived that a thread sends to itself; usually
# with the first.
SOON = 1000


class _Recalled(BaseException):
    """What comes in place of an exception that is taken back."""


class Interruptible:
    """
    A ``with`` block into which another thread may raise once.

    *interrupt* is safe to call at any time, from any thread; it does nothing before the block has
    begun, after it has ended, and the second time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self._sent = False
        self._send: Callable[[type[BaseException]], None] = _nobody
        self._recall: Callable[[], None] = _nothing

    def interrupt(self, kind: type[BaseException]) -> None:
        """Have *kind*, called without arguments, raised inside the block."""
        with self._lock:
            if self._open and not self._sent:
                self._sent = True
                self._send(kind)

    def __enter__(self) -> None:
        self._send, self._recall = _ways_into_this_thread(lambda: self._open)
        self._open = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # If what was sent arrives here, it is on its way out of the block all the same, and there
        # is not a second one.
        try:
            with self._lock:
                self._open = False
        finally:
            self._open = False
            if self._sent:
                self._recall()


def _ways_into_this_thread(
    still_wanted: Callable[[], bool],
) -> tuple[Callable[[type[BaseException]], None], Callable[[], None]]:
    """How to raise in what runs now, and how to take it back if it has not arrived."""
    throw = _greenlet_thrower()
    if throw is not None:

        def send_to_greenlet(kind: type[BaseException]) -> None:
            throw(still_wanted, kind)

        return send_to_greenlet, _nothing
    thread = threading.get_ident()
    wake = _waker(thread)

    def send(kind: type[BaseException]) -> None:
        _raise_in_thread(thread, kind)
        wake()

    def recall() -> None:
        # One of our own takes the place of what was sent, and arrives here. Were there none in its
        # place, Python would look for one at each call, for good (before 3.13): it gets slow, and
        # with a profiler it hangs.
        try:
            _raise_in_thread(thread, _Recalled)
            for _ in range(SOON):
                _nothing()
        except _Recalled:
            pass
        except BaseException:
            # A signal's came first, and ours must not arrive anywhere else.
            _raise_in_thread(thread, _NONE)
            raise

    return send, recall


def _waker(thread: int) -> Callable[[], None]:
    """What gets the thread that calls this out of a system call; nothing, where that cannot be."""
    if _WAKER is None or threading.current_thread() is not threading.main_thread():
        return _nothing
    known = signal.getsignal(_WAKER)
    if known not in (signal.SIG_DFL, _woken):  # somebody else has a use for it
        return _nothing
    signal.signal(_WAKER, _woken)
    return lambda: signal.pthread_kill(thread, _WAKER)


def _woken(_signal: int, _frame: object) -> None:
    """Do nothing: that Python code runs at all is what lets the exception arrive."""


def _greenlet_thrower() -> Callable[[Callable[[], bool], type[BaseException]], None] | None:
    """What throws into the greenlet that calls this; None in a plain thread."""
    greenlet = sys.modules.get("greenlet")
    current = greenlet.getcurrent() if greenlet is not None else None
    if current is None or current.parent is None:
        return None
    schedule = _scheduler(current)
    if schedule is None:
        return None

    def throw(still_wanted: Callable[[], bool], kind: type[BaseException]) -> None:
        def now() -> None:
            if still_wanted() and not current.dead:
                current.throw(kind)

        schedule(now)

    return throw


def _scheduler(current: Any) -> Callable[[Callable[[], None]], object] | None:
    """What runs a function in the hub that switches *current*."""
    gevent = sys.modules.get("gevent")
    if gevent is not None and isinstance(current.parent, gevent.hub.Hub):
        loop = current.parent.loop
        return getattr(loop, "run_callback_threadsafe", loop.run_callback)  # type: ignore[no-any-return]
    hubs = sys.modules.get("eventlet.hubs")
    if hubs is not None and current.parent is hubs.get_hub().greenlet:
        hub = hubs.get_hub()
        return lambda function: hub.schedule_call_global(0, function)
    return None


def _nothing() -> None:
    """There is nothing to do."""


def _nobody(_kind: type[BaseException]) -> None:
    """There is nobody to raise it in."""

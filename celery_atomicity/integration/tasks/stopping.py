"""
Whether this worker has been told to stop.

Of use to tasks that hold a place in the pool and only wait: a warm shutdown waits for them, and
what they wait for may last. Pool children are told nothing of a shutdown, so it is written into
memory that they share with the main process, made as this is imported and so before their fork.
"""

from __future__ import annotations

import mmap
import threading

from celery.signals import worker_init, worker_shutting_down

from celery_atomicity import clock

#: Seconds between two looks of who sleeps.
_LOOK = 0.5

_page = mmap.mmap(-1, 1)


def is_stopping() -> bool:
    """Whether it has."""
    return _page[0] == 1


def sleep_unless_stopping(seconds: float) -> float:
    """Sleep for *seconds*, or until the worker stops; how many are left then."""
    until = clock.monotonic() + seconds
    never = threading.Event()
    while (left := until - clock.monotonic()) > 0 and not is_stopping():
        clock.wait(never, min(_LOOK, left))
    return max(0.0, left)


def stop() -> None:
    """Say that the worker stops."""
    _page[0] = 1


@worker_shutting_down.connect(weak=False)
def _told(**_: object) -> None:
    stop()


@worker_init.connect(weak=False)
def _begin(**_: object) -> None:
    # Of use to tests, whose process may run one worker after the other.
    _page[0] = 0

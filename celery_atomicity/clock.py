"""
The only module that reads a clock.

Deadlines are judged on *monotonic*, which goes on counting while the machine is suspended: a
laptop lid, a paused VM or a restored snapshot must not lengthen what somebody believes to hold.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime, timezone
from functools import lru_cache, partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable


def _clock_id() -> int | None:
    """The clock that counts suspension: BOOTTIME on Linux, MONOTONIC on macOS (and only there)."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.CLOCK_BOOTTIME
    if sys.platform == "darwin":
        return time.CLOCK_MONOTONIC
    return None


_ID = _clock_id()

#: Seconds on a clock that never steps, is common to all processes and counts suspension.
monotonic: Callable[[], float] = time.monotonic if _ID is None else partial(time.clock_gettime, _ID)

#: The same in whole nanoseconds.
monotonic_ns: Callable[[], int] = (
    time.monotonic_ns if _ID is None else partial(time.clock_gettime_ns, _ID)
)


def wall() -> float:
    """Seconds since the epoch; for showing to a person and for records, never for a deadline."""
    return time.time()


def utc(seconds: float) -> str:
    """*seconds* since the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def utc_now() -> str:
    """The wall clock's present second as ISO 8601 in UTC."""
    return _utc_second(int(time.time()))


@lru_cache(1)
def _utc_second(seconds: int) -> str:
    return utc(seconds)


def wait(event: threading.Event, seconds: float | None) -> bool:
    """Wait for *event*, at most *seconds* (``None``: without end); whether it was set."""
    return event.wait(None if seconds is None else max(0.0, seconds))


def sleep(seconds: float) -> None:
    """Wait *seconds*, where nothing can end the wait but an exception."""
    time.sleep(max(0.0, seconds))

"""Waiting for sockets, under any pool."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

# Looked up when it is used: gevent puts another function in its place, and eventlet takes it away,
# since it cannot make it yield.


def readable(descriptors: Collection[int], seconds: float) -> Collection[int]:
    """Those of *descriptors* that have something to read, waiting at most *seconds* for one."""
    return _ready(descriptors, seconds, for_reading=True)


def writable(descriptor: int, seconds: float) -> bool:
    """Whether *descriptor* takes more to send, waiting at most *seconds* for it."""
    return bool(_ready([descriptor], seconds, for_reading=False))


def _ready(descriptors: Collection[int], seconds: float, *, for_reading: bool) -> Collection[int]:
    if hasattr(select, "poll"):
        poll = select.poll()
        events = select.POLLIN if for_reading else select.POLLOUT
        for descriptor in descriptors:
            poll.register(descriptor, events)
        return [descriptor for descriptor, _ in poll.poll(seconds * 1000 if seconds > 0 else 0)]
    wanted = [*descriptors]
    ready = select.select(
        wanted if for_reading else [], [] if for_reading else wanted, [], max(0.0, seconds)
    )
    return ready[0] if for_reading else ready[1]

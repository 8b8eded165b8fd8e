"""Waiting for sockets, under any pool."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from celery_atomicity import clock

if TYPE_CHECKING:
    from collections.abc import Collection

# Looked up when it is used: gevent puts another function in its place, and eventlet takes it away,
# since it cannot make it yield.

# Where somebody else waits for a descriptor, and may not be disturbed, it is looked at so often, in
# seconds.
GLANCE = 0.01


def readable(descriptor: int, seconds: float) -> bool:
    """Whether *descriptor* may have something to read, waiting at most *seconds* for it."""
    try:
        poll = select.poll()
    except AttributeError:
        return bool(_selected([descriptor], [], seconds))
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000 if seconds > 0 else 0))


def readable_of(descriptors: Collection[int], seconds: float) -> Collection[int]:
    """Those of *descriptors* that may have something to read, waiting at most *seconds* for one."""
    try:
        poll = select.poll()
    except AttributeError:
        return _selected(descriptors, [], seconds)
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(seconds * 1000 if seconds > 0 else 0)]


def writable(descriptor: int, seconds: float) -> bool:
    """Whether *descriptor* may take more to send, waiting at most *seconds* for it."""
    try:
        poll = select.poll()
    except AttributeError:
        return bool(_selected([], [descriptor], seconds))
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(seconds * 1000 if seconds > 0 else 0))


def _selected(reads: Collection[int], writes: Collection[int], seconds: float) -> Collection[int]:
    try:
        found = select.select([*reads], [*writes], [], max(0.0, seconds))
    except RuntimeError:
        # eventlet lets one greenlet wait for a descriptor. Whoever does is late or was torn away.
        clock.sleep(min(seconds, GLANCE))
        return [*reads, *writes]
    return [*found[0], *found[1]]

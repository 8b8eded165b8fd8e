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
# seconds; and so are those of several that are not waited for.
GLANCE = 0.01
GLANCES = 0.002


def readable(descriptor: int, seconds: float) -> bool:
    """Whether *descriptor* may have something to read, waiting at most *seconds* for it."""
    try:
        poll = select.poll()
    except AttributeError:
        return _selected(descriptor, seconds)
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000 if seconds > 0 else 0))


def readable_of(descriptors: Collection[int], seconds: float) -> Collection[int]:
    """Those of *descriptors* that may have something to read, waiting at most *seconds* for one."""
    try:
        poll = select.poll()
    except AttributeError:
        return _selected_of(descriptors, seconds)
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(seconds * 1000 if seconds > 0 else 0)]


def writable(descriptor: int, seconds: float) -> bool:
    """Whether *descriptor* may take more to send, waiting at most *seconds* for it."""
    try:
        poll = select.poll()
    except AttributeError:
        return _selected(descriptor, seconds, to_write=True)
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(seconds * 1000 if seconds > 0 else 0))


def _selected(descriptor: int, seconds: float, *, to_write: bool = False) -> bool:
    one = [descriptor]
    try:
        found = select.select([] if to_write else one, one if to_write else [], [], max(0, seconds))
    except RuntimeError:
        # eventlet lets one greenlet wait for a descriptor. Whoever does is late or was torn away;
        # or it is only looked at, and he sees what there is.
        clock.sleep(min(seconds, GLANCE))
        return seconds > 0
    except OSError as error:
        if error.errno is None:  # somebody's, and not the system's
            raise
        return True  # it was closed meanwhile, as whoever reads will see
    return any(found)


def _selected_of(descriptors: Collection[int], seconds: float) -> Collection[int]:
    """
    Waits for one at a time and glances at the others.

    Where eventlet refuses one of several, it goes on listening to those before it, for good.
    """
    until = clock.monotonic() + seconds
    ready: list[int] = []
    while not ready:
        for descriptor in descriptors:
            left = until - clock.monotonic()
            # All of them are looked at, or the first would keep us from the others.
            if _selected(descriptor, 0.0 if ready else min(left, GLANCES)):
                ready.append(descriptor)
        if left <= 0:
            break
    return ready

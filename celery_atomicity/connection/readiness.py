"""Waiting for sockets, under any pool."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

# Looked up when it is used: gevent puts another function in its place, and eventlet takes it away,
# since it cannot make it yield.


def readable(descriptor: int, seconds: float) -> bool:
    """Whether *descriptor* has something to read, waiting at most *seconds* for it."""
    try:
        poll = select.poll()
    except AttributeError:
        return bool(select.select([descriptor], [], [], max(0.0, seconds))[0])
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000 if seconds > 0 else 0))


def readable_of(descriptors: Collection[int], seconds: float) -> Collection[int]:
    """Those of *descriptors* that have something to read, waiting at most *seconds* for one."""
    try:
        poll = select.poll()
    except AttributeError:
        return select.select([*descriptors], [], [], max(0.0, seconds))[0]
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(seconds * 1000 if seconds > 0 else 0)]


def writable(descriptor: int, seconds: float) -> bool:
    """Whether *descriptor* takes more to send, waiting at most *seconds* for it."""
    try:
        poll = select.poll()
    except AttributeError:
        return bool(select.select([], [descriptor], [], max(0.0, seconds))[1])
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(seconds * 1000 if seconds > 0 else 0))

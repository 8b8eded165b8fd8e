"""
What the dead leave behind: memory in which a child writes what it holds, for its parent to read.

A child that is killed (out of memory, a hard time limit, terminate) cannot let go its leases, and
an id that only it knew would die with it. So it notes each id before it asks for the lease, in
memory that its parent made before the fork, and strikes it out once it holds nothing under it.
The parent reads what stands there of processes that are no more, and lets it go in their name.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_atomicity import clock
from celery_atomicity.primitives.holding import LIVE_MS, RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from celery_atomicity.connection import Call

#: How many children have a page, and how large it is. What has never been written costs nothing.
PAGES = 1024
PAGE = 8192

# A page begins with which of its two halves counts; a half with its length and checksum.
_HEAD = 8
_HALF = (PAGE - _HEAD) // 2
_TEXT = 8
_ROOM = _HALF - _TEXT

#: Seconds for which a child keeps what its predecessor on the page left, for the parent to read.
_PIETY = 5.0


@dataclass(frozen=True)
class Legacy:
    """
    What one process may hold under one lease id.

    Attributes:
        pid: The process.
        id: The lease's id.
        places: What stands for its keys on the server; see *keys.lock_places*.
        until: When ``min_hold`` ends, in seconds on our clock, which all processes share.
    """

    pid: int
    id: str
    places: tuple[str, ...]
    until: float = 0.0

    def release(self) -> Call:
        """What lets it go, as its holder would have."""
        keep = max(0.0, self.until - clock.monotonic())
        return RELEASE, self.places, [self.id, round(keep * 1000), LIVE_MS]


class Estate:
    """
    Pages in shared memory, one a child, made by the parent before any of them is forked.

    Args:
        index: The page of the process that asks; None if it has none, which then notes nothing.
            Asked again after each fork.
    """

    def __init__(self, index: Callable[[], int | None]) -> None:
        self._memory = mmap.mmap(-1, PAGES * (PAGE + 1))
        self._index = index
        self._pid = 0
        self._begin()

    def note(self, lease_id: str, places: tuple[str, ...], min_hold: float | None) -> None:
        """Write that this process may come to hold *places* under *lease_id*."""
        if self._pid != os.getpid():
            self._begin()
        if self._page is None:
            return
        until = clock.monotonic() + min_hold if min_hold else 0.0
        with self._lock:
            self._own[lease_id] = json.dumps([self._pid, lease_id, places, until]).encode()
            self._write()

    def strike(self, lease_id: str) -> None:
        """Write that this process holds nothing under *lease_id*."""
        if self._page is None or self._pid != os.getpid():
            return
        with self._lock:
            if self._own.pop(lease_id, None) is not None:
                self._write()

    def read(self) -> list[Legacy]:
        """What stands there of all processes, alive or not."""
        # Only pages in use are looked at: looking at the others would make them cost memory.
        used = self._memory[PAGES * PAGE :]
        lines = [line for page in range(PAGES) if used[page] for line in self._lines(page)]
        left = []
        for line in lines:
            pid, lease_id, places, until = json.loads(line)
            left.append(Legacy(pid, lease_id, tuple(places), until))
        return left

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._own: dict[str, bytes] = {}
        index = self._index()
        self._page = index if index is not None and 0 <= index < PAGES else None
        self._inherited: list[bytes] = []
        self._pious_until = clock.monotonic() + _PIETY
        if self._page is not None:
            self._inherited = self._lines(self._page)

    def _write(self) -> None:
        assert self._page is not None
        if self._inherited and clock.monotonic() > self._pious_until:
            self._inherited = []
        text = b"\n".join(self._kept()) if self._own or self._inherited else b""
        start = self._page * PAGE
        half = 1 - self._memory[start]
        _put(self._memory, start + _HEAD + half * _HALF, text)
        self._memory[start] = half  # from here on the new half counts, and it is complete
        self._memory[PAGES * PAGE + self._page] = 1 if text else 0

    def _kept(self) -> Iterator[bytes]:
        """As many as there is room for, the latest first; the others run out by themselves."""
        room = _ROOM
        for line in [*reversed(self._own.values()), *self._inherited]:
            room -= len(line) + 1
            if room < 0:
                return
            yield line

    def _lines(self, page: int) -> list[bytes]:
        start = page * PAGE
        return _get(self._memory, start + _HEAD + self._memory[start] * _HALF).splitlines()


def _put(memory: mmap.mmap, base: int, text: bytes) -> None:
    memory[base + _TEXT : base + _TEXT + len(text)] = text
    memory[base : base + 4] = len(text).to_bytes(4, "little")
    memory[base + 4 : base + 8] = zlib.crc32(text).to_bytes(4, "little")


def _get(memory: mmap.mmap, base: int) -> bytes:
    """The text of a half, or nothing if it was just being written over."""
    head = memory[base : base + _TEXT]
    length = int.from_bytes(head[:4], "little")
    text = memory[base + _TEXT : base + _TEXT + min(length, _ROOM)]
    return text if zlib.crc32(text) == int.from_bytes(head[4:], "little") else b""


_current: Estate | None = None


def found(index: Callable[[], int | None]) -> Estate:
    """The estate of this process and all that it forks from now on; made once."""
    global _current  # noqa: PLW0603 - what a fork shares belongs to the process, not to an object
    if _current is None:
        _current = Estate(index)
    return _current


def note(lease_id: str, places: tuple[str, ...], min_hold: float | None) -> None:
    """Write down what this process may come to hold, if there is somebody to read it."""
    if _current is not None:
        _current.note(lease_id, places, min_hold)


def strike(lease_id: str) -> None:
    """Strike out what this process does not hold any more."""
    if _current is not None:
        _current.strike(lease_id)

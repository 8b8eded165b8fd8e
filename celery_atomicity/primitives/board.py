"""What one process knows and its children read: an assignment and its deadline in shared memory."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from celery_atomicity import clock

if TYPE_CHECKING:
    from celery_atomicity.primitives.membership import Assignment

# Words of the memory: a sequence number that is odd while the others change, and a checksum over
# all, since a processor other than x86 may show writes in another order than they were made in.
_SEQUENCE, _I, _N, _DEADLINE, _CHECK, _OPENER = range(6)

# A reader that meets a change in progress looks again this often. A change takes a microsecond; a
# writer killed in the middle of one never finishes it, and then nothing is owned.
ATTEMPTS = 1000


class Board:
    """
    One writer in the process that registers; readers there and in every child forked later.

    Reading does no I/O and no system call but the clock's. A child that was not forked but spawned
    has a board of its own, on which nothing is ever written: it owns nothing.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._words = memoryview(self._memory).cast("q")

    def write(self, assignment: Assignment | None, deadline: float) -> None:
        """Show *assignment* until *deadline*, in seconds on our clock."""
        words = self._words
        until = int(deadline * 1e9) if assignment else 0
        i, n = (assignment.i, assignment.n) if assignment else (0, 0)
        sequence = (words[_SEQUENCE] | 1) + 2
        words[_SEQUENCE] = sequence
        words[_I], words[_N], words[_DEADLINE] = i, n, until
        words[_CHECK] = (sequence + 1) ^ i ^ n ^ until
        words[_SEQUENCE] = sequence + 1

    def read(self) -> tuple[int, int] | None:
        """``(i, n)``, or None where nothing is owned at this moment."""
        words = self._words
        for _ in range(ATTEMPTS):
            sequence = words[_SEQUENCE]
            i, n, until, check = words[_I], words[_N], words[_DEADLINE], words[_CHECK]
            if check == sequence ^ i ^ n ^ until and words[_SEQUENCE] == sequence:
                return (i, n) if clock.monotonic_ns() < until else None
        return None

    @property
    def opener(self) -> int:
        """The process that registers and writes here; 0 while none does."""
        return self._words[_OPENER]

    @opener.setter
    def opener(self, process: int) -> None:
        self._words[_OPENER] = process

    @property
    def until(self) -> float:
        """The deadline of what is shown, in seconds on our clock; 0.0 for nothing."""
        return self._words[_DEADLINE] / 1e9

"""Decorated tasks that just run, for tests of what a task does."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_lock = threading.Lock()
_open = 0


@contextmanager
def bypass() -> Iterator[None]:
    """
    Let decorated tasks just run for the body of a ``with``, in all threads of this process.

    Whatever is configured, nothing is asked of an arbiter: no key is taken and nothing is charged,
    so that none is ever waited for, skipped or given back. A call that would fail for its arguments
    or its key still does. In a task under ``singleton_by``, ``current_lease`` is a lease that is
    never lost, of a fence that grows from run to run. What a task asks of ``current_atom`` itself
    is asked. Nests, and works as a decorator of a test, too.
    """
    global _open  # noqa: PLW0603 - of the process, as a worker in a thread has to see it
    with _lock:
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1


def is_bypassed() -> bool:
    """Whether such a body runs now."""
    return _open > 0

"""A task that just runs, under a lease that nobody was asked for."""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING, Any

from celery_atomicity import clock
from celery_atomicity.primitives.holding import Holding, Terms
from celery_atomicity.primitives.lease import Lease, held

if TYPE_CHECKING:
    from celery_atomicity.integration.tasks.execution import Execution

# Seconds; no test runs for as long.
_FOR_EVER = 1e9

_fences = itertools.count(1)


class _Unasked(Lease):
    """A lease that no server knows of."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def release(self) -> None:
        """Nobody waits for it."""
        self._holding.released = True


def run_alone(execution: Execution, keys: list[str]) -> Any:
    """Answer the execution's result, with *keys* held as far as the task can see."""
    terms = Terms("bypass", tuple(keys), places=(), holder="bypass", ttl=_FOR_EVER, grace=0.0)
    lease = _Unasked(
        Holding(
            terms,
            secrets.token_hex(16),
            "",
            fence=next(_fences),
            sent=clock.monotonic(),
            runs=(),
        )
    )
    before = held.get()
    held.set((*before, lease))
    try:
        return execution.call()
    finally:
        held.set(before)
        lease.release()

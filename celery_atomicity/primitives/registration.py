"""Asking the arbiter to count this replica in the interval that runs, and for the count before."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, cast

from celery_atomicity import keys
from celery_atomicity.connection import Script
from celery_atomicity.errors import Unavailable
from celery_atomicity.primitives.membership import Registration

if TYPE_CHECKING:
    from celery_atomicity.connection import Clients

REGISTER = Script("register")

# An interval's counter outlives the two intervals in which it is read.
COUNTER_LIFE = 3


def register(clients: Clients, group: str, interval: float) -> Registration:
    """
    Register once in *group*, whose intervals last *interval* seconds; blocks for a round trip.

    Raises:
        NotConfigured: There is no arbiter.
        Unavailable: It did not answer, or with nonsense, which has no cause.
    """
    base, interval_ms = keys.slots_base(group), round(interval * 1000)
    reply = clients.ask(REGISTER, [base], [interval_ms, interval_ms * COUNTER_LIFE])
    try:
        number, place, previous, now = map(int, cast("list[int]", reply.value))
        if place < 1 or previous < -1:
            raise ValueError  # noqa: TRY301 - as what follows
        return Registration(
            interval=number,
            index=place - 1,
            previous=previous,
            now=now / 1000,
            sent=reply.sent,
            received=reply.received,
            run=reply.run,
        )
    except (TypeError, ValueError, OverflowError):
        raise Unavailable(
            f"The arbiter answered a registration in {group!r} with {reprlib.repr(reply.value)}; "
            f"is it a Redis or Valkey server, and does nothing else write the key {base}?"
        ) from None

"""
What a group has spent: debts that every process adds to and that drain by themselves.

A debt is milliseconds, and one drains every millisecond. The clock is the server's, and what comes
back is a duration, so neither the processes that report nor their clocks need agree on anything.
"""

from __future__ import annotations

import math
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, cast

from celery_atomicity.connection import Script
from celery_atomicity.keys import meter_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery_atomicity.connection import Clients

# What no debt is above, so that nothing is left of one that is paid back by that much.
_MOST = 2**53

# Keys in one run of the script: the server serves nobody else meanwhile, for about 6 ms.
CHUNK = 2_000


class Meter:
    """
    The debts of one group.

    Thread-safe. A call blocks for one round trip for every 2,000 keys.
    """

    def __init__(self, clients: Clients, group: str) -> None:
        self._clients = clients
        self._group = group
        self._script = Script("meter")

    def __call__(self, keys: Sequence[str], deltas: Sequence[float]) -> list[float]:
        """
        Add each of *deltas* to the debt of its key and return what the group has reached.

        Nothing that anybody adds is lost, and nothing lingers: a key is gone ten seconds after its
        debt is. All keys of a chunk of 2,000 are charged, or none.

        Args:
            keys: Names within the group; one that is named twice counts twice, in this order.
            deltas: Milliseconds, of which fractions count. A negative one pays back, though a debt
                never falls below zero; zero only reads.

        Returns:
            The debts in milliseconds, in the order of *keys*.

        Raises:
            TypeError: A key is no text or a delta no number; nothing was sent.
            ValueError: Lengths differ, a key is empty, or a delta is not finite; nothing was sent.
            NotConfigured: There is no arbiter.
            Unavailable: It did not answer. Whether the chunk that was being asked is charged is
                then unknown; earlier ones are, later ones are not.
        """
        names = [meter_key(self._group, _name(key)) for key in _sequence(keys, "keys")]
        amounts = [_amount(delta) for delta in _sequence(deltas, "deltas")]
        if len(names) != len(amounts):
            raise ValueError(f"{len(names)} keys, but {len(amounts)} deltas: one each is needed")
        debts: list[float] = []
        for start in range(0, len(names), CHUNK):
            chunk = slice(start, start + CHUNK)
            reply = self._clients.ask(self._script, names[chunk], amounts[chunk])
            try:
                reached = [float(debt) for debt in cast("list[int | bytes]", reply.value)]
            except (TypeError, ValueError):
                reached = []
            if len(reached) != len(names[chunk]):
                raise self._clients.unexpected(reply.value)
            debts += reached
        return debts

    def reset(self, stored: str, debt: float) -> None:
        """
        Let a key owe just *debt* milliseconds, whatever it owed; *stored*: as *keys.safe* makes it.

        Raises:
            NotConfigured: There is no arbiter.
            Unavailable: It did not answer.
        """
        name = meter_key(self._group, stored, is_safe=True)
        # What is named twice counts twice, in one step.
        self._clients.ask(self._script, [name] * 2, [_amount(-_MOST), _amount(debt)])


def _sequence(values: Sequence[object], what: str) -> Sequence[object]:
    # A text is a sequence of texts: meter("sam", ...) would meter "s", "a" and "m".
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{what} must be a list, not {values!r}: put it into brackets")
    return values


def _name(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key must be a text, not {key!r}")
    if not key:
        raise ValueError("a key must not be empty")
    return key


def _amount(delta: object) -> str:
    """*delta* as the script reads it: without a point where it is whole, and with all its bits."""
    # Asking an abstract class takes as long as all the rest.
    if type(delta) not in (int, float) and (
        isinstance(delta, bool) or not isinstance(delta, (Real, Decimal))
    ):
        raise TypeError(f"a delta must be a number of milliseconds, not {delta!r}")
    try:
        number = float(cast("float", delta))
    except OverflowError:  # an integer beyond what any clock counts
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"a delta must be a finite number of milliseconds, not {delta!r}")
    return f"{number:.17g}"

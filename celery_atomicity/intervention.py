"""What an operator changes by hand: taking a key from its holder, setting what a name owes."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_atomicity import custody, keys
from celery_atomicity.primitives import quorum
from celery_atomicity.primitives.holding import LIVE_MS, RELEASE
from celery_atomicity.primitives.meter import Meter
from celery_atomicity.primitives.rates import Rates

if TYPE_CHECKING:
    from celery_atomicity.connection import Call, Clients
    from celery_atomicity.custody import Custody
    from celery_atomicity.overview import Account

# A renewal that is under way may put a key back on an address while it is freed on the others.
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Freed:
    """
    What became of a key that was taken from its holder.

    Attributes:
        custody: What stands under it by now: nothing, or who was let in.
        left: At how many addresses the holder still has it, as far as they answer.
        silent: How many addresses did not answer; there it runs out by itself.
        of: How many there are.
    """

    custody: Custody
    left: int
    silent: int
    of: int

    @property
    def done(self) -> bool:
        """Whether a majority of all addresses has nothing of that holder any more."""
        return self.of - self.left - self.silent >= quorum.majority(self.of)


def free(clients: Clients, held: Custody) -> Freed:
    """
    Take the key of *held* from whoever held it when that was looked up, and from nobody else.

    The next in line is let in at once. A holder of ours learns at its next renewal that it lost.
    Blocks for some round trips.

    Raises:
        NotConfigured: There is no arbiter.
        Unavailable: No address answered.
    """
    # Where there is nothing to free, an address is told of a lease that there never was.
    nobody = secrets.token_hex(16)
    leases = [nobody if value is None else custody.lease_of(value) for value in held.values]
    names = custody.names_of(held.group, held.key)
    places = (keys.MARKER, keys.fence_key(held.group), *names)
    for _ in range(ROUNDS):
        calls: list[Call] = [(RELEASE, places, [lease, 0, LIVE_MS, "", ""]) for lease in leases]
        clients.ask_each([[call] for call in calls], decided=lambda _: False)
        now = custody.look_up(clients, held.group, held.key)
        left = sum(value is not None and custody.lease_of(value) in leases for value in now.values)
        if not left:
            break
    return Freed(now, left, len(now.silent), clients.count)


def set_debts(clients: Clients, account: Account, seconds: float) -> None:
    """
    Have everything that stands under *account* owe just so many *seconds*; 0 forgives it.

    That is the meter's debt, and of every limit the two debts of what has started and what is
    promised. Where nothing stands at all it is the meter's.

    Raises:
        ValueError: *seconds* is negative or not finite.
        NotConfigured: There is no arbiter.
        Unavailable: It did not answer; some of them may be set already.
    """
    if not 0 <= seconds < math.inf:
        raise ValueError(f"nothing can owe {seconds!r} s; give a number that is not negative")
    if account.debt > 0 or not account.limits:
        Meter(clients, account.group).reset(keys.meant(account.key), seconds * 1000.0)
    rates = Rates(clients, account.group)
    for limited in account.limits:
        rates.reset(limited.key, seconds)

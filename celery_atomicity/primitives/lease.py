"""A hold of one or more keys, as its holder sees it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from celery_atomicity import clock
from celery_atomicity.errors import LeaseLost
from celery_atomicity.keys import LONGEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery_atomicity.primitives.holding import Holding
    from celery_atomicity.primitives.keeper import Keeper

#: The leases that the running task or block holds, outermost first.
held: ContextVar[tuple[Lease, ...]] = ContextVar("atomicity_held", default=())


class Lease:
    """
    A hold of *keys*, exclusive until its deadline, renewed until it is released; used once.

    Thread-safe. In a child that was forked while it was held it counts as lost: the parent has it.
    """

    def __init__(self, keeper: Keeper, holding: Holding, owner: object = None) -> None:
        self._keeper = keeper
        self._holding = holding
        # What lets it go has to live as long as anybody believes in it; see *guard*.
        self._owner = owner

    @property
    def id(self) -> str:
        """What only its holder knows: the server lets nobody else renew or release."""
        return self._holding.id

    @property
    def fence(self) -> int:
        """
        Larger than the fence of every lease that the group was given before.

        Hand it to whatever you write to, and have it refuse a smaller one than it has seen.
        """
        return self._holding.fence

    @property
    def keys(self) -> tuple[str, ...]:
        """What is held."""
        return self._holding.terms.keys

    @property
    def group(self) -> str:
        """Whose keys they are."""
        return self._holding.terms.group

    @property
    def lost(self) -> bool:
        """Whether somebody else may hold the keys by now. Reads the clock and asks nobody."""
        return self._holding.lost()

    @property
    def remaining(self) -> float:
        """Seconds for which it is held unless it is renewed; 0.0 once it is lost."""
        if self.lost:
            return 0.0
        return max(0.0, self._holding.deadline - clock.monotonic())

    def check(self) -> None:
        """
        Do nothing while it is held.

        Raises:
            LeaseLost: It is not, and another holder may run beside this one.
        """
        if self.lost:
            raise self.error()

    def error(self) -> LeaseLost:
        """The error that says why it is lost."""
        reason = self._holding.reason
        return LeaseLost(
            f"The lease of {shown(self.keys)} in group {self.group!r} (fence {self.fence}) was "
            f"lost: {reason}. Another holder may have run meanwhile; what compares fences refuses "
            "the late writes of this one.",
            keys=self.keys,
            group=self.group,
            fence=self.fence,
            reason=reason,
        )

    @property
    def released(self) -> bool:
        """Whether it was let go."""
        return self._holding.released

    def guard(self, owner: object) -> None:
        """Have it let go once *owner* is no more, if nobody has done so by then."""
        self._keeper.guard(self._holding, owner)

    def kept_by(self, owner: object) -> Lease:
        """The same lease, for somebody to hold in whose hands *owner* stays alive."""
        return Lease(self._keeper, self._holding, owner)

    def release(self) -> None:
        """
        Let the keys go. Later calls do nothing.

        One round trip, and at most the timeout; what cannot be reached runs out by itself, and is
        logged. Raises nothing for the arbiter's sake.
        """
        self._keeper.release(self._holding)

    def __repr__(self) -> str:
        state = "released" if self.released else "lost" if self.lost else "held"
        return f"<Lease of {shown(self.keys)}, fence {self.fence}, {state}>"


def shown(keys: Sequence[str]) -> str:
    """*keys* for a message; what is very long is cut."""
    return ", ".join(repr(key if len(key) <= LONGEST else f"{key[:LONGEST]}...") for key in keys)

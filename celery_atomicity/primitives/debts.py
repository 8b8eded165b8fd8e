"""
The two debts under a key: what a start, a place, a pause and a loss of data make of them.

Debts are units and not milliseconds so that versions of the code with different rates can share a
key: the debt drains at no more than the larger rate and fills no more than the larger burst. Only
time that is held back is counted in milliseconds and turned into units at the rate of each call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from celery_atomicity.primitives.limit import Limit


@dataclass(frozen=True, slots=True)
class Debts:
    """
    What stands under a key; times in milliseconds on the server's clock.

    Args:
        started: Units that the last start leaves, of all that were charged; they drain from it on.
        ahead: How far ahead of *at* that start lies.
        promised: Units that have a place or have started; they drain from *at* on.
        at: When all this was true.
        rate: Units a millisecond, of the last call.
        born: When this state was made, as the server writes it.
    """

    started: float
    ahead: float
    promised: float
    at: float
    rate: float
    born: str

    @classmethod
    def drained(cls, state: Debts | None, limit: Limit, now: float) -> Debts:
        """What is left at *now* of what stood there; None: nothing did."""
        rate = limit.per_ms
        if state is None:
            return cls(0.0, 0.0, 0.0, now, rate, f"{now:.17g}")
        # A clock that stepped back drains nothing, and counts from where it stands now.
        elapsed = max(0.0, now - state.at)
        started = max(0.0, state.started - rate * max(0.0, elapsed - state.ahead))
        ahead = max(0.0, state.ahead - elapsed)
        # The part of the promises that only covers the time ahead was counted at the rate of then.
        promised = state.promised + (rate - state.rate) * state.ahead - rate * elapsed
        return cls(started, ahead, max(started + rate * ahead, promised), now, rate, state.born)

    def start_of(self, limit: Limit) -> float:
        """How long until there is room in what has started: never before the last charged start."""
        return self.ahead + max(0.0, (self.started + limit.cost - limit.burst) / limit.per_ms)

    def place_of(self, limit: Limit) -> float:
        """How long until there is room in what is promised, too."""
        return max(self.start_of(limit), (self.promised + limit.cost - limit.burst) / limit.per_ms)

    def charged(self, limit: Limit, start: float, *, promise: bool) -> Debts:
        """With a start in *start* milliseconds; *promise*: it had none and counts there too."""
        rate = limit.per_ms
        started = max(0.0, self.started - rate * (start - self.ahead)) + limit.cost
        promised = self.promised + limit.cost if promise else self.promised
        promised = max(started + rate * start, promised)
        return replace(self, started=started, ahead=start, promised=promised)

    def with_place(self, limit: Limit) -> Debts:
        """With one more place given away."""
        return replace(self, promised=self.promised + limit.cost)

    def held(self, limit: Limit, ms: float) -> Debts:
        """With nothing to start for *ms* milliseconds, and no burst after them."""
        rate = limit.per_ms
        left = self.started - rate * max(0.0, ms - self.ahead)
        started, ahead = max(0.0, left, limit.burst - limit.cost), max(self.ahead, ms)
        promised = max(self.promised, started + rate * ahead)
        return replace(self, started=started, ahead=ahead, promised=promised)

    def after_loss(self, limit: Limit, ms: float) -> Debts:
        """Held until *ms* after it was made: what stood there before is lost, and may be asleep."""
        left = ms - max(0.0, self.at - float(self.born))
        return self.held(limit, left) if left > 0 else self


def held_back(state: Debts | None, limit: Limit, ms: float, now: float) -> Debts:
    """What stands under the key of *limit* once nothing may start for *ms* milliseconds."""
    return Debts.drained(state, limit, now).held(limit, ms)

"""What is known of one lease: its terms, its deadline, and what each address last said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from celery_atomicity import clock, keys
from celery_atomicity.connection import Script
from celery_atomicity.primitives import quorum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from celery_atomicity.connection import Call, Reply
    from celery_atomicity.primitives.lease import Lease

RENEW = Script("renew")
RELEASE = Script("release", late=True)

# A lease is renewed at this fraction of its ttl; a renewal that got no majority is tried again
# after the second fraction, and what is due within the third goes along in the same round trip.
RENEWAL = 1 / 3
RETRY = 1 / 12
ALONG = 1 / 20

# What was handed over is granted for a short while only, and renewed in full so soon; seconds. Most
# have let go of it by then, and it costs them no round trip.
CONFIRM = 0.2

# What the release script is told in place of a channel.
IN_NO_LINE = "-"

# A waiter that was not seen for so long is passed over, in ms. Waiters show up far more often.
LIVE_MS = 4000


class Terms(NamedTuple):
    """
    What is asked for.

    Attributes:
        group: Whose keys they are.
        keys: The names, as the user gave them.
        places: What stands for them on the server; see *keys.lock_places*.
        holder: Who asks, for a person to read.
        ttl: Seconds from one renewal to the next that must not be missed.
        grace: Seconds for which a restarted server grants nothing.
        min_hold: Seconds for which the keys stay taken from the grant on, in any case.
        max_hold: Seconds after which the lease is lost, in any case.
        on_lost: Told once, by the keeper's thread, when a loss is noticed.
    """

    group: str
    keys: tuple[str, ...]
    places: tuple[str, ...]
    holder: str
    ttl: float
    grace: float
    min_hold: float | None = None
    max_hold: float | None = None
    on_lost: Callable[[Lease], None] | None = None

    @property
    def locks(self) -> tuple[str, ...]:
        """The keys on the server that say who holds."""
        return keys.locks_of(self.places)

    @property
    def grace_ms(self) -> int:
        """What the scripts are told of *grace*."""
        return round(self.grace * 1000)


class Holding:
    """
    One lease as this process knows it.

    Args:
        lease_id: What the server knows the holder by.
        value: What stands under the keys: the id, the request's number, and who holds it.
        sent: Our clock before the request that was granted was sent.
        runs: The run of each address that granted; empty for the others.
        handed_over: Whoever held it before has granted it, some time after the request.

    Attributes:
        released: Its holder has let go of it.
        inherited: It belongs to the process that this one was forked from.
        guard: What has it let go when nobody can do so any more; see the keeper.
    """

    def __init__(
        self,
        terms: Terms,
        lease_id: str,
        value: str,
        *,
        fence: int,
        sent: float,
        runs: Sequence[str],
        handed_over: bool = False,
    ) -> None:
        self.terms = terms
        self.id = lease_id
        self.value = value
        self.fence = fence
        self.asked = sent
        self.granted = clock.monotonic() if handed_over else sent
        self.ends = self.granted + terms.max_hold if terms.max_hold is not None else float("inf")
        self._ttl = min(terms.ttl, LIVE_MS / 1000) if handed_over else terms.ttl
        self.deadline = min(sent + quorum.lasts(self._ttl), self.ends)
        due = sent + self._ttl * RENEWAL
        self.due = min(self.granted + CONFIRM if handed_over else due, due, self.ends)
        self.released = False
        self._runs = list(runs)
        self.inherited = False
        self.guard: object = None
        self._failure = ""

    def lost(self) -> bool:
        """Whether somebody else may hold the keys by now; once it is, it stays so."""
        if not self._failure and clock.monotonic() >= self.deadline:
            # Noted, or a renewal that is answered at this very moment would revive it.
            self.fail(
                f"it was held for its max_hold of {self.terms.max_hold:g} s"
                if self.deadline >= self.ends
                else f"no renewal reached a majority within its ttl of {self._ttl:g} s"
            )
        return bool(self._failure) or self.inherited

    @property
    def reason(self) -> str:
        """Why it is lost, in words."""
        if self.inherited:
            return "it belongs to the process that this one was forked from"
        return self._failure

    def fail(self, reason: str) -> None:
        """It is lost for good, whatever the deadline says."""
        self._failure = self._failure or reason

    def goes_along(self, now: float) -> bool:
        """Whether it is due, or nearly."""
        return now >= self.due - self.terms.ttl * ALONG

    def renewal(self, address: int, *, put_back: bool = False) -> Call:
        """What asks *address* to lengthen it."""
        # Up to the end of its max_hold it has to stand.
        left = min(self.terms.ttl, quorum.ttl_for(self.ends - clock.monotonic()))
        arguments: list[str | int] = [
            self.id,
            self.value,
            max(1, round(left * 1000)),
            self.terms.grace_ms,
            self._runs[address],
            int(put_back),
        ]
        return RENEW, (keys.MARKER, *self.terms.locks), arguments

    def renewed(self, sent: float, standing: Sequence[Reply | None]) -> None:
        """A majority stands by a renewal that was sent at *sent*."""
        if not self.lost():
            self._ttl = self.terms.ttl
            self.deadline = min(sent + quorum.lasts(self._ttl), self.ends)
        self.due = min(sent + self.terms.ttl * RENEWAL, self.ends)
        for address, reply in enumerate(standing):
            if reply is not None and reply.value == quorum.Standing.STANDS:
                self._runs[address] = reply.run

    def postpone(self, now: float) -> None:
        """A renewal was not answered by a majority; try again soon."""
        self.due = now + self._ttl * RETRY

    def release(self) -> Call:
        """What lets it go, or keeps it taken for the rest of its min_hold."""
        held = clock.monotonic() - self.granted
        return release_call(self.terms, self.id, keep=(self.terms.min_hold or 0.0) - held)


def release_call(
    terms: Terms, lease_id: str, *, keep: float = 0.0, number: int | None = None, ring: str = ""
) -> Call:
    """
    What lets go of *terms*' keys where they are held under *lease_id*, *keep* seconds on.

    With *number*, only of what was granted to the request of that number or an earlier one; with
    *ring*, a channel, it stands in line again, where it stood; IN_NO_LINE says that it does not
    stand there, and without either it leaves.
    """
    upto = "" if number is None else number
    return RELEASE, terms.places, [lease_id, max(0, round(keep * 1000)), LIVE_MS, upto, ring]

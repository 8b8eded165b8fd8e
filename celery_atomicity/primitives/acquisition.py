"""Getting a lease: asking, standing in line, and giving back what a failed attempt took."""

from __future__ import annotations

import math
import os
import random
from typing import TYPE_CHECKING

from celery_atomicity import clock, events
from celery_atomicity.connection import Script
from celery_atomicity.errors import LockTimeout, Unavailable
from celery_atomicity.primitives import estate, quorum
from celery_atomicity.primitives.fence import agree
from celery_atomicity.primitives.holding import IN_NO_LINE, LIVE_MS, Holding, release_call
from celery_atomicity.primitives.keeper import let_go
from celery_atomicity.primitives.lease import shown
from celery_atomicity.primitives.votes import Answers, is_decided, is_enough

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_atomicity.connection import Call, Clients
    from celery_atomicity.connection.mailbox import Bell, Mailbox
    from celery_atomicity.events import Event
    from celery_atomicity.primitives.holding import Terms
    from celery_atomicity.primitives.lease import Lease

ACQUIRE = Script("acquire")

# A waiter shows up at least this often, in seconds; a server passes over one it has not seen for
# about three times as long.
REFRESH = 1.25

# Pauses between attempts that nobody can ring us for (no line, a split vote), in seconds, each a
# random one of up to twice the last.
SHORTEST, LONGEST = 0.002, 1.0

# A pause that ends with the holder's ttl ends this much later, so that the server has noticed.
AFTER = 0.002

# How often whoever has the first address asks on for the others before it gives that back, and how
# long, in seconds, a newcomer leaves it alone.
RACES = 3
YIELD = 0.05

# Of so many refusals by the first address, one is checked with the others.
DOUBT = 4


def new_id() -> str:
    """What nobody else can know, or come to by chance."""
    return os.urandom(16).hex()


class Acquisition:
    """
    One caller's way to one lease, under one id from the first request to the last.

    A request whose answer was lost is asked again with the same id and is given what it already
    has, so nobody waits for itself. Requests are numbered: giving back what one took, which may
    arrive late, does not undo what a later one was given.
    """

    _number = 0
    _value = ""
    _ring: Bell | None = None
    _stood: Answers | None = None
    _leftover = False
    _took = False
    _races = 0
    _refusals = 0
    _insists = False
    _yielded = ""
    _pause = SHORTEST

    def __init__(self, clients: Clients, mailbox: Mailbox, terms: Terms) -> None:
        self.id = new_id()
        self._clients = clients
        self._mailbox = mailbox
        self._terms = terms

    def run(
        self,
        wait: float | None,
        keep: Callable[[Holding], Lease],
        called_off: Callable[[], bool] | None = None,
    ) -> Lease:
        """
        Wait until the lease is granted: *wait* seconds at the most, None without limit, 0 not.

        Args:
            wait: As said.
            keep: Given what was granted, makes the lease of it that the caller gets.
            called_off: Asked after each attempt; the wait is over once it answers True.

        Raises:
            LockTimeout: It was not granted in time.
        """
        began = clock.monotonic()
        until = math.inf if wait is None else began + wait
        try:
            # Before anything is asked: whoever is killed in mid-request may hold it all the same.
            estate.note(self.id, self._terms.places, self._terms.min_hold)
            if wait != 0 and self._clients.count == 1 and self._mailbox.listens:
                # Others of this process wait, or did just now: stand in line at once.
                self._ring = self._mailbox.expect(self.id, until - began)
            while True:
                outcome, holding = self._attempt(until)
                if holding is not None:
                    lease = keep(holding)
                    self._clean_up(granted=True)
                    if events.lock_acquired.listeners:
                        contended = self._number > 1 or self._stood is not None
                        self._tell(events.lock_acquired, began, contended=contended)
                    return lease
                left = until - clock.monotonic()
                if left <= 0 and not outcome.contested:
                    break
                if called_off is not None and called_off():
                    break
                self._wait(outcome, left)
            self._clean_up(granted=False)
        except BaseException:
            # A time limit or a revoke struck, at any instant: nothing may stay behind.
            self._clean_up(granted=False)
            raise
        self._tell(events.lock_timed_out, began, unreachable=outcome.silent)
        raise self._timeout(outcome, clock.monotonic() - began)

    def _tell(self, event: Event, began: float, **how: bool) -> None:
        event.tell(group=self._terms.group, waited=clock.monotonic() - began, **how)

    # -- one attempt ----------------------------------------------------------------------------

    def _attempt(self, until: float) -> tuple[quorum.Outcome, Holding | None]:
        """Ask once; stand in line for the next time, if there is one before *until*."""
        if self._stood is not None:
            holding = self._handed_over(self._stood)
            if holding is not None:
                return self._stood.outcome, holding
        answers, is_complete = self._ask()
        outcome = answers.outcome
        if not is_complete:
            return outcome, None
        self._insists = outcome.contested
        if outcome.contested:
            self._yielded = outcome.holder
        holding = self._grant(answers)
        if holding is not None:
            return answers.outcome, holding
        first = answers.votes[0]
        has_first = first is not None and first.verdict is quorum.Verdict.GRANTED
        if has_first and not outcome.silent and self._races < RACES:
            # Nobody else can have it, and those who race us for the others give them back.
            self._pause = SHORTEST if not self._races else self._pause
            self._races += 1
        else:
            # What a minority gave goes back before any pause. Whoever holds without the first
            # address may then take that too. We stay in line, unless we cannot reach the others.
            self._races = 0
            self._give_back(stay=not outcome.silent)
            standing = self._ring is not None or outcome.contested
            if not standing and first is not None:
                self._stand_in_line(until - clock.monotonic())
        return answers.outcome, None

    def _ask(self) -> tuple[Answers, bool]:
        """What the addresses say, and whether all that matter were asked."""
        if self._ring is not None:
            self._ring.muffle()
        if self._clients.count == 1:
            return self._ask_alone(), True
        if self._ring is not None:
            answers = self._ask_first()
            if answers is not None and answers.is_refused:
                self._refusals += 1
                if not self._doubts():
                    return answers, False
        return self._ask_all(), True

    def _doubts(self) -> bool:
        """Whether to ask the others though the first refuses: it may have missed a release."""
        return self._insists or self._refusals % DOUBT == 0

    def _ask_first(self) -> Answers | None:
        """Whether it is our turn, from the address that keeps the line; None if it is silent."""
        self._leftover = self._took = True
        sent = clock.monotonic()
        try:
            reply = self._clients.ask(*self._call(self._mailbox.channel))
        except Unavailable:
            return None
        answers = Answers([reply], sent)
        return None if answers.votes[0] is None else answers

    def _ask_alone(self) -> Answers:
        """What the only address says."""
        self._leftover = True
        stands = self._ring is not None and len(self._terms.keys) == 1
        sent = clock.monotonic()
        try:
            reply = self._clients.ask(
                *self._call("" if self._ring is None else self._mailbox.channel, handed=stands)
            )
        except Unavailable:
            reply = None
        answers = Answers([reply], sent)
        self._note(answers)
        self._stood = answers if stands and not self._took else None
        return answers

    def _handed_over(self, stood: Answers) -> Holding | None:
        """
        The lease that whoever let go has granted to the request that *stood* answers.

        Only that request has made this value known, so that what it was granted is younger than it.
        What another server than the one we listen to has done may be undone by now.
        """
        bell = self._ring
        if bell is None or bell.said.count(" ") < 2:  # noqa: PLR2004 - it has three parts
            return None
        fence, run, value = bell.said.split(" ", 2)
        if value != self._value or run != bell.run or not fence.isdecimal():
            return None
        holding = Holding(
            self._terms,
            self.id,
            value,
            fence=int(fence),
            sent=stood.sent,
            runs=[bell.run],
            handed_over=True,
        )
        # What is nearly over is better asked for again, in full.
        lasts = quorum.lasts(min(self._terms.ttl, LIVE_MS / 1000))
        return holding if clock.monotonic() < stood.sent + lasts / 2 else None

    def _ask_all(self) -> Answers:
        """What each address says, as far as it matters."""
        self._leftover = True
        sent = clock.monotonic()
        replies = self._clients.ask_each(
            [[self._call("")]] * self._clients.count, decided=is_decided, enough=is_enough
        )
        answers = Answers(replies, sent, self._yielded)
        self._note(answers)
        return answers

    def _note(self, answers: Answers) -> None:
        """Note what may have to be given back."""
        self._took = answers.may_hold
        self._leftover = self._took or self._ring is not None

    def _grant(self, answers: Answers) -> Holding | None:
        """The lease that *answers* amount to, unless it took too long to get."""
        if not answers.outcome.granted:
            return None
        group = self._terms.group
        fence = agree(self._clients, group, answers.votes, answers.outcome.fence)
        if not fence:
            return None
        holding = Holding(
            self._terms, self.id, self._value, fence=fence, sent=answers.sent, runs=answers.runs
        )
        return None if holding.lost() else holding

    def _call(self, ring: str, *, handed: bool = False) -> Call:
        terms = self._terms
        ttl_ms = max(1, round(terms.ttl * 1000))
        self._number += 1
        self._value = f"{self.id}.{self._number} {terms.holder}, since {clock.utc_now()}"
        who: list[str | int] = [self.id, self._value, ttl_ms, terms.grace_ms]
        return ACQUIRE, terms.places, [*who, ring, LIVE_MS, int(handed)]

    # -- between attempts -----------------------------------------------------------------------

    def _stand_in_line(self, seconds: float) -> None:
        if seconds <= 0:
            return
        self._ring = self._mailbox.expect(self.id, seconds)
        if self._ring is not None:
            # The next attempt stands us there; it must not wait for a ring that cannot come yet.
            self._ring.ring()

    def _wait(self, outcome: quorum.Outcome, left: float) -> None:
        """Wait for a ring, for the holder's ttl to end, or until it is time to show up again."""
        if outcome.contested:
            pause = YIELD
        elif self._races or self._ring is None or outcome.silent:
            pause = self._backoff()
        elif outcome.pause > 0:
            pause = min(REFRESH, outcome.pause + AFTER)
        else:
            pause = REFRESH
        if not outcome.contested:
            pause = min(pause, left)
        if self._ring is None:
            clock.sleep(pause)
        else:
            self._mailbox.wait(self._ring, pause)

    def _backoff(self) -> float:
        self._pause = min(LONGEST, 2 * self._pause)
        return random.uniform(SHORTEST, self._pause)  # noqa: S311 - to part from others, no secret

    def _give_back(self, *, stay: bool) -> None:
        """Release what was taken, without waiting: whatever is asked next comes after it."""
        if self._took:
            call = release_call(self._terms, self.id, number=self._number, ring=IN_NO_LINE)
            first = call
            if self._ring is not None:
                ring = self._mailbox.channel if stay else ""
                first = release_call(self._terms, self.id, number=self._number, ring=ring)
            let_go(self._clients, call, first=first, at_once=True)
            self._took = False
            self._leftover = self._ring is not None

    def _clean_up(self, *, granted: bool) -> None:
        # An exception from outside may have struck before we knew what rings us.
        self._mailbox.forget(self.id)
        self._ring = None
        if self._leftover and not granted:
            let_go(self._clients, release_call(self._terms, self.id))
        if not granted:
            estate.strike(self.id)

    def _timeout(self, outcome: quorum.Outcome, waited: float) -> LockTimeout:
        terms = self._terms
        holder = outcome.holder.partition(" ")[2] or None
        if outcome.silent:
            why = "; ".join(
                (
                    "too few of the addresses in atomicity_redis answered; check that they run",
                    *self._clients.troubles,
                )
            )
        elif holder is None:
            why = "others are before us, or a server that restarted still grants nothing"
        else:
            why = f"it is held by {holder}, for {outcome.pause:.1f} s more unless renewed"
        return LockTimeout(
            f"{shown(terms.keys)} of group {terms.group!r} was not to be had within "
            f"{waited:.2f} s: {why}.",
            keys=terms.keys,
            group=terms.group,
            waited=waited,
            holder=holder,
            remaining=outcome.pause if holder else None,
            unreachable=outcome.silent,
        )

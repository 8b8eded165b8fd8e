"""
What the answers of N addresses mean: pure rules, without clock, thread or socket.

N independent servers decide together, floor(N/2)+1 of them being a majority (Redlock). Any two
majorities share a server, and that server says no to the second.

**Fences.** Each server counts grants for itself. A lease's fence must be a number that a majority
has stored, each of its servers because it was larger than what it had. Two such majorities share a
server, on which the later one stored the larger number; so fences never repeat, and a lease asked
for after another was given has the larger one, whichever majority gave it. Where all servers of the
granting majority answer the same number, that is the case already; else the largest is raised on
the others before the lease counts as given.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# A lease is given up this much before the server ends it: clocks drift, and a check takes time.
DRIFT = 0.01
SLACK = 0.002


class Verdict(IntEnum):
    """What one address says to a request for a lease; the numbers are the script's."""

    TAKEN = 0
    GRANTED = 1
    NOT_OUR_TURN = 2
    SITTING_OUT = 3


VERDICTS = {int(each): each for each in Verdict}


class Vote(NamedTuple):
    """One address's answer: *pause* is how long, in seconds, its reason may last."""

    verdict: Verdict
    fence: int = 0
    pause: float = 0.0
    holder: str = ""


class Outcome(NamedTuple):
    """
    What an attempt came to.

    Attributes:
        granted: A majority granted, and the first address did not put somebody before us.
        fence: The largest fence offered; 0 without a grant.
        silent: So few answered that nobody could be granted.
        contested: A majority granted, but we yield for once to whoever has the first address.
        pause: Seconds until what was in the way may be gone, as far as is known.
        holder: Who holds a key, as its value says.
    """

    granted: bool
    fence: int = 0
    silent: bool = False
    contested: bool = False
    pause: float = 0.0
    holder: str = ""


def majority(total: int) -> int:
    """How many of *total* addresses decide."""
    return total // 2 + 1


def lasts(ttl: float) -> float:
    """Seconds for which a holder may believe in a lease of *ttl*, from when it was asked for."""
    return ttl - ttl * DRIFT - SLACK


def ttl_for(seconds: float) -> float:
    """The ttl of which a holder may believe in for *seconds*: the other way round of *lasts*."""
    return (seconds + SLACK) / (1 - DRIFT)


def is_enough(verdicts: Sequence[Verdict | None], missing: int) -> bool:
    """
    Whether the grants cannot become a majority any more, or are one.

    Args:
        verdicts: What each address said; None: no answer yet, or none to be had.
        missing: How many may still answer.
    """
    granted, needed = verdicts.count(Verdict.GRANTED), majority(len(verdicts))
    return granted >= needed or granted + missing < needed


def is_decided(verdicts: Sequence[Verdict | None], missing: int, *, hears_first: bool) -> bool:
    """
    Whether further answers cannot change what an attempt comes to.

    The first address knows who came before us, which matters more than a majority of the others;
    and what is refused by all has not to be given back.

    Args:
        verdicts: As for *is_enough*.
        missing: As for *is_enough*.
        hears_first: The first address has answered, or will not.
    """
    if verdicts[0] is Verdict.NOT_OUR_TURN:
        return True
    needed = majority(len(verdicts))
    return hears_first and (not missing or verdicts.count(Verdict.GRANTED) >= needed)


def judge(votes: Sequence[Vote | None], yielded: str = "") -> Outcome:
    """
    What *votes*, those of all addresses in order, come to; None is an address that is silent.

    Whoever has the first address came first, and is about to get the others: we yield to it, but
    only once. If it is still there with nothing else, it has died or is cut off.

    Args:
        votes: What each address said.
        yielded: What the first address said holds it, if we have yielded to that before.
    """
    total = len(votes)
    first = votes[0]
    said = [vote for vote in votes if vote is not None]
    granted = sum([vote.verdict is Verdict.GRANTED for vote in said]) >= majority(total)
    is_taken = first is not None and first.verdict is Verdict.TAKEN
    before_us = first is not None and (
        first.verdict is Verdict.NOT_OUR_TURN or (is_taken and not _is_same(first.holder, yielded))
    )
    if granted and not before_us:
        return Outcome(True, max([vote.fence for vote in said]))
    refusals = [vote for vote in said if vote.verdict is not Verdict.GRANTED]
    holder = next((vote.holder for vote in refusals if vote.holder), "")
    pauses = [vote.pause for vote in refusals if vote.pause > 0]
    return Outcome(
        granted=False,
        silent=len(said) < majority(total) and not before_us,
        contested=granted and is_taken and not yielded,
        pause=min(pauses, default=0.0),
        holder=holder,
    )


def agrees(votes: Sequence[Vote | None], fence: int) -> int:
    """How many addresses stored *fence* with their grant."""
    return len(
        [
            vote
            for vote in votes
            if vote is not None and vote.verdict is Verdict.GRANTED and vote.fence == fence
        ]
    )


class Standing(IntEnum):
    """What one address says to a renewal; the numbers are the script's."""

    TAKEN = -1
    GONE = 0
    STANDS = 1


def renewal(answers: Sequence[Standing | None]) -> bool | None:
    """
    What the answers to a renewal come to; None is an address that is silent.

    Returns:
        True: a majority stands. False: so many do not that no majority can. None: not known yet.
    """
    needed = majority(len(answers))
    stands = sum(answer is Standing.STANDS for answer in answers)
    silent = sum(answer is None for answer in answers)
    if stands >= needed:
        return True
    return False if stands + silent < needed else None


def _is_same(value: str, other: str) -> bool:
    """Whether two values of a lock name the same lease, whichever its request."""
    return bool(value) and value.partition(".")[0] == other.partition(".")[0]

"""Replies to a request for a lease as votes, which the rules of a majority are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery_atomicity.connection import ErrorReply
from celery_atomicity.primitives import quorum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery_atomicity.connection import Reply


class Answers:
    """
    What the addresses said to one request, and what that comes to.

    Attributes:
        sent: Our clock before the request was sent.
        votes: What each address said; None for silence.
        runs: The run of each address that granted; empty for the others.
        may_hold: One of them granted, or may have without our hearing of it.
    """

    def __init__(self, replies: Sequence[Reply | None], sent: float, yielded: str = "") -> None:
        self.sent = sent
        self.votes: list[quorum.Vote | None] = []
        self.runs: list[str] = []
        self.may_hold = False
        for reply in replies:
            vote = _vote(reply)
            granted = vote is not None and vote.verdict is quorum.Verdict.GRANTED
            self.votes.append(vote)
            self.runs.append(reply.run if granted and reply is not None else "")
            self.may_hold = self.may_hold or granted or vote is None
        self.outcome = quorum.judge(self.votes, yielded)

    @property
    def is_refused(self) -> bool:
        """Whether the first of several addresses, asked by itself, leaves nothing to the others."""
        first = self.votes[0]
        return first is not None and first.verdict in (
            quorum.Verdict.TAKEN,
            quorum.Verdict.NOT_OUR_TURN,
        )


def is_decided(replies: Sequence[Reply | None]) -> bool:
    """Whether further replies cannot change what an attempt comes to."""
    if replies[0] is None:
        return False  # asked at each reply, and usually answered by this
    verdicts = [_verdict(reply) for reply in replies]
    return quorum.is_decided(verdicts, replies.count(None), hears_first=True)


def is_enough(replies: Sequence[Reply | None]) -> bool:
    """Whether the grants among *replies* are a majority, or cannot become one."""
    missing = replies.count(None)
    if missing >= quorum.majority(len(replies)):
        return False  # neither a majority's grants nor their refusals can be among so few
    return quorum.is_enough([_verdict(reply) for reply in replies], missing)


def _verdict(reply: Reply | None) -> quorum.Verdict | None:
    """The first word of an answer, without a look at the others."""
    value = reply.value if reply is not None else None
    verdict = value[0] if isinstance(value, list) and value else None
    return quorum.VERDICTS.get(verdict) if isinstance(verdict, int) else None


def _vote(reply: Reply | None) -> quorum.Vote | None:
    """What one address said; None for silence, which an error or nonsense is as well."""
    if reply is None or isinstance(reply.value, Exception | ErrorReply):
        return None
    value: Any = reply.value
    try:
        verdict, fence, pause_ms, holder = value
        return quorum.Vote(
            quorum.VERDICTS[verdict],
            int(fence),
            max(0, int(pause_ms)) / 1000,
            holder.decode("utf-8", "replace"),
        )
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError):
        return None

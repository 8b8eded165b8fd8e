"""What is asked at each reply says nothing else than the rules, whatever has been answered."""

from itertools import product

import pytest

from celery_atomicity.connection import ErrorReply, Reply
from celery_atomicity.primitives import quorum, votes


def reply(value):
    return Reply(value, 0.0, 0.0, "run")


SAYS = [
    None,
    reply([1, 7, 10_000, b""]),
    reply([0, 0, 3_000, b"somebody"]),
    reply([2, 0, 0, b""]),
    reply(TimeoutError()),
    reply(ErrorReply("OOM no")),
]
MEANT = [
    None,
    quorum.Verdict.GRANTED,
    quorum.Verdict.TAKEN,
    quorum.Verdict.NOT_OUR_TURN,
    None,
    None,
]


@pytest.mark.parametrize("total", [1, 2, 3, 4, 5])
def test_a_look_at_the_replies_follows_the_rules(total):  # LOCK-10
    for said in product(range(len(SAYS)), repeat=total):
        replies = [SAYS[index] for index in said]
        verdicts = [MEANT[index] for index in said]
        missing = replies.count(None)

        assert votes.is_enough(replies) == quorum.is_enough(verdicts, missing)
        assert votes.is_decided(replies) == quorum.is_decided(
            verdicts, missing, hears_first=replies[0] is not None
        )

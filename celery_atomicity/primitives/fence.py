"""Having a majority store one fence, where the addresses of a grant offered several."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from celery_atomicity import keys
from celery_atomicity.connection import Script
from celery_atomicity.primitives import quorum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery_atomicity.connection import Call, Clients, Reply

RAISE = Script("raise")

# Rounds of raising a fence that others raise at the same time, before the attempt counts as failed.
ROUNDS = 5


def agree(clients: Clients, group: str, votes: Sequence[quorum.Vote | None], fence: int) -> int:
    """
    A fence that a majority has stored for us; 0 if that cannot be had now.

    *fence* is the largest that *votes* offer. Nothing is asked where a majority offers it.
    """
    needed = quorum.majority(len(votes))
    if quorum.agrees(votes, fence) >= needed:
        return fence
    stored = {index for index, vote in enumerate(votes) if vote is not None and vote.fence == fence}
    for _ in range(ROUNDS):
        lifted, highest = _raise(clients, group, fence, stored)
        if lifted >= needed:
            return fence
        stored = set()
        fence = max(highest, fence) + 1
    return 0


def _raise(clients: Clients, group: str, fence: int, stored: set[int]) -> tuple[int, int]:
    """Raise the last fence everywhere; how many have it for us now, and the highest met."""
    needed = quorum.majority(clients.count)

    def result(replies: list[Reply | None]) -> tuple[int, int]:
        lifted, highest = set(stored), fence
        for index, reply in enumerate(replies):
            if reply is not None and isinstance(reply.value, list):
                with suppress(TypeError, ValueError):  # nonsense is silence
                    done, last = map(int, cast("list[int]", reply.value))
                    highest = max(highest, last)
                    if done:
                        lifted.add(index)
        return len(lifted), highest

    call: Call = (RAISE, [keys.fence_key(group)], [fence])
    replies = clients.ask_each(
        [[call]] * clients.count, decided=lambda replies: result(replies)[0] >= needed
    )
    return result(replies)

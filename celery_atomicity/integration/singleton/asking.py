"""A task that found its key taken: back to its queue, to ask again when the key may be free."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NoReturn

from celery_atomicity import events
from celery_atomicity.integration.tasks.requeue import give_back

if TYPE_CHECKING:
    from celery_atomicity.errors import LockTimeout
    from celery_atomicity.integration.tasks.execution import Execution

#: The pause before the task asks again, in seconds: the first is what the holder has left, within
#: these two; each further one is twice as long, up to the longest.
SHORTEST_PAUSE, FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0, 30.0

#: By what fraction each differs at random, so that those who met do not meet again.
JITTER = 0.25

#: The header that counts how often a task was given back because its key was taken.
ASKED = "atomicity_asked"


def ask_again(execution: Execution, keys: list[str], error: LockTimeout) -> NoReturn:
    """Give the task back to its queue, to ask again when the key may be free."""
    asked = int((execution.request.headers or {}).get(ASKED, 0))
    first = max(SHORTEST_PAUSE, min(FIRST_PAUSE, error.remaining or FIRST_PAUSE))
    pause = first * 2.0 ** min(asked, 10)
    pause = min(LONGEST_PAUSE, pause) * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
    events.asks_again.tell(
        task=execution.name,
        task_id=execution.request.id,
        keys=keys,
        holder=error.holder,
        seconds=pause,
    )
    give_back(execution.task, pause, headers={ASKED: asked + 1})


def forget_asked(execution: Execution) -> None:
    """A retry of this task begins to ask anew."""
    request = execution.request
    if request is not None and request.headers:
        request.headers.pop(ASKED, None)

"""A question to some addresses, and its answers as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from celery_atomicity import clock
from celery_atomicity.threads import Waiting

# How long a question that has enough answers still waits for the one that matters most, in seconds.
PATIENCE = 0.005

if TYPE_CHECKING:
    from collections.abc import Callable


# Below so many missing answers it is looked whether any is missing.
FEW = 8


class Reply(NamedTuple):
    """
    What one address answered.

    Attributes:
        value: The answer; an ErrorReply where the server refused, another exception where it
            could not be reached or did not answer in time.
        sent: Our clock when the question was sent, in seconds.
        received: Our clock when the answer was read.
        run: What distinguishes this run of the server from any other.
    """

    value: object
    sent: float
    received: float
    run: str


class Question(Waiting):
    """
    One question, answered by whoever happens to read; waited for by the thread that asked it.

    Attributes:
        done: Decided: all have answered, or those who have are enough.
        until: When to stop waiting, on our clock: it is overdue, or what there is has to do.
    """

    def __init__(
        self,
        expected: int,
        decided: Callable[[list[Reply | None]], bool] | None,
        timeout: float,
        enough: Callable[[list[Reply | None]], bool] | None = None,
    ) -> None:
        self.replies: list[Reply | None] = [None] * expected
        self._timeout = timeout
        self.begin()
        self._missing = expected
        self._decided = decided
        self._enough = enough

    def begin(self) -> None:
        """It is sent now: its time begins."""
        self.sent = clock.monotonic()
        self.deadline = self.until = self.sent + self._timeout

    def answer(self, index: int, value: object, run: str) -> None:
        """Take in the answer of the address, or to the command, of this *index*."""
        if self.replies[index] is not None:
            return
        self.replies[index] = Reply(value, self.sent, clock.monotonic(), run)
        self._missing -= 1
        self.look()

    def look(self) -> None:
        """See whether it is decided; a question that needs no answer is so from the start."""
        # Two threads that answer at the same time may count one answer only.
        complete = self._missing < FEW and None not in self.replies
        if complete or (self._decided is not None and self._decided(self.replies)):
            self.done = True
            self.wake()
        elif (
            self._enough is not None and self.until == self.deadline and self._enough(self.replies)
        ):
            self.until = min(self.deadline, clock.monotonic() + PATIENCE)
            self.wake()

    def make_do(self) -> None:
        """Take what there is for the decision, if it is enough and patience has ended."""
        if not self.done and self.until < self.deadline and clock.monotonic() >= self.until:
            self.done = True

    def extend(self) -> None:
        """Give what is still to be answered as long again, if nobody waits for it any more."""
        if self.done:
            self.deadline = clock.monotonic() + self._timeout

    def close(self) -> None:
        """
        Nobody waits for it any more: it is decided, or whoever asked was torn away.

        Nothing more is done of it then where a server did not know the script: what undoes it may
        have been asked since, and done.
        """
        self.done = True

    def expire(self, error: Exception) -> None:
        """Answer with *error* whatever is still missing; nobody waits for it any more."""
        for index, reply in enumerate(self.replies):
            if reply is None and not self.done:
                self.answer(index, error, "")
        # Whoever gave the last answer may have been torn away before it saw that.
        self.done = True

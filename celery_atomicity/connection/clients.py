"""One set of clients per process: asking the first address, or all of them at the same time."""

from __future__ import annotations

import os
import reprlib
import weakref
from typing import TYPE_CHECKING, cast

from celery_atomicity import clock
from celery_atomicity.connection.exchange import Exchange
from celery_atomicity.connection.question import Question, Reply
from celery_atomicity.connection.resp import Argument, ErrorReply
from celery_atomicity.connection.script import Command
from celery_atomicity.connection.server import NEEDS
from celery_atomicity.errors import NotConfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from celery_atomicity.connection.script import Call, Script
    from celery_atomicity.connection.server import Server
    from celery_atomicity.settings import Settings


class Clients:
    """
    The connections of this process to the addresses of *settings*.

    Connects on first use. Thread-safe, also between greenlets. After a fork the child makes its
    own. A call takes at most the timeout, and where it has to connect first about three of them.
    Nothing is asked twice: retrying is the business of those who know what a repetition means.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        #: How many addresses there are.
        self.count = len(settings.addresses)
        self._exchange = self._fresh()
        _every.add(self)

    def _fresh(self) -> Exchange:
        return Exchange(self.settings)

    def start_anew(self) -> None:
        """Leave inherited connections to the parent process and begin with none."""
        self._exchange.forget()
        self._exchange = self._fresh()

    def ask(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Reply:
        """
        Run *script* on the first address.

        Raises:
            NotConfigured: There is no address.
            Unavailable: It was not reached or refused, so that nothing was done; or its answer did
                not come, and whether it was done is not known.
        """
        return self._ask_one(script.command(keys, arguments))

    def ask_many(self, calls: Sequence[Call]) -> list[Reply]:
        """
        Run several scripts on the first address in one round trip.

        A call that the server refused has an *ErrorReply* for its value; the others were done.

        Raises:
            NotConfigured: There is no address.
            Unavailable: As for *ask*, for all of them.
        """
        if not calls:
            return []
        return self._ask_first([script.command(keys, args) for script, keys, args in calls])

    def command(self, *arguments: Argument) -> object:
        """Run one plain command on the first address and give its answer; raises as *ask* does."""
        return self._ask_one(Command.plain(*arguments)).value

    def command_many(self, commands: Sequence[Sequence[Argument]]) -> list[object]:
        """
        Run several plain commands on the first address in one round trip.

        A command that the server refused has an *ErrorReply* for its answer; raises as *ask_many*.
        """
        if not commands:
            return []
        return [reply.value for reply in self._ask_first([Command.plain(*one) for one in commands])]

    def ask_each(
        self,
        calls: Sequence[Sequence[Call]],
        *,
        decided: Callable[[list[Reply | None]], bool],
        enough: Callable[[list[Reply | None]], bool] | None = None,
    ) -> list[Reply | None]:
        """
        Run scripts on all addresses at the same time.

        Returns as soon as *decided* says of the replies so far (None: not yet) that the others do
        not matter; what these answer later is read when somebody next asks. An address that is
        down has its error for a reply at once and is tried again aside.

        Args:
            calls: For each address its scripts, equally many for all. The reply to script ``j`` of
                address ``a`` stands at ``a * how many + j``.
            decided: Asked after each reply, by whichever thread reads it; must not block.
            enough: The same, with less: such replies do if nothing better comes in a few
                milliseconds, and at once if an address is known to be slow.

        Raises:
            NotConfigured: There is no address.
        """
        # What all addresses are asked alike is packed once.
        packed = {
            id(its): [script.command(keys, arguments) for script, keys, arguments in its]
            for its in {id(its): its for its in calls}.values()
        }
        commands = [packed[id(its)] for its in calls]
        return self._ask_each(commands, decided, enough, up=self.count // 2 + 1)

    def command_each(
        self, commands: Sequence[Sequence[Sequence[Argument]]]
    ) -> list[list[object] | Unavailable]:
        """
        Run plain commands on all addresses at the same time, on each its own, perhaps none.

        Waits for all of them, and at most for about three timeouts.

        Returns:
            For each address the answers to its commands, an *ErrorReply* where it refused one; or
            why it did not answer.

        Raises:
            NotConfigured: There is no address.
        """
        plain = [[Command.plain(*one) for one in its] for its in commands]
        replies = iter(self._ask_each(plain, lambda _: False, None, up=self.count))
        answers: list[list[object] | Unavailable] = []
        for server, its in zip(self._exchange.servers, commands, strict=True):
            values = [cast("Reply", next(replies)).value for _ in its]
            lost = [one for one in values if _is_silence(one)]
            answers.append(_unavailable(server, cast("Exception", lost[0])) if lost else values)
        return answers

    def refused(self, address: int, cause: Exception) -> Unavailable:
        """The error that says that the address of this index did not serve a request."""
        return _unavailable(self._exchange.servers[address], cause)

    def unexpected(self, value: object) -> Unavailable:
        """The error that says that the first address answered *value*: nonsense, or an error."""
        if isinstance(value, Exception):
            return _unavailable(self._server(), value)
        return _unavailable(self._server(), ValueError(f"it answered {reprlib.repr(value)}"))

    @property
    def troubles(self) -> list[str]:
        """What keeps addresses from serving us at present, each with its address; for a message."""
        return [
            f"{server.address}: {trouble}"
            for server in self._exchange.servers
            for trouble in ([str(server.error)] if server.error else server.refusals)
        ]

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self._exchange.close()

    def _server(self) -> Server:
        if not self._exchange.servers:
            raise NotConfigured(
                "No arbiter is configured: set atomicity_redis on the app, or ATOMICITY_REDIS in "
                "the environment, to the URL of a Redis or Valkey server."
            )
        return self._exchange.servers[0]

    def _ask_each(
        self,
        commands: Sequence[Sequence[Command]],
        decided: Callable[[list[Reply | None]], bool],
        enough: Callable[[list[Reply | None]], bool] | None,
        *,
        up: int,
    ) -> list[Reply | None]:
        """Send each address its *commands*, once *up* of them are connected if that can be."""
        self._server()
        exchange = self._exchange
        exchange.connect(exchange.servers, up)
        if enough is not None:
            now = clock.monotonic()
            if any(server.is_late(now) for server in exchange.servers):
                decided = enough
        question = Question(sum(map(len, commands)), decided, exchange.timeout, enough)
        exchange.ask_each(question, commands)
        return list(question.replies)

    def _ask_one(self, command: Command) -> Reply:
        server = self._server()
        question = Question(1, None, self._exchange.timeout)
        self._exchange.ask(server, question, (command,))
        [reply] = question.replies
        assert reply is not None  # it has its answer, or an error in its place
        if isinstance(reply.value, Exception):
            raise _unavailable(server, reply.value)
        return reply

    def _ask_first(self, commands: Sequence[Command]) -> list[Reply]:
        server = self._server()
        question = Question(len(commands), None, self._exchange.timeout)
        self._exchange.ask(server, question, commands)
        replies = cast("list[Reply]", question.replies)
        for reply in replies:
            if _is_silence(reply.value):
                raise _unavailable(server, cast("Exception", reply.value))
        return replies


def _is_silence(value: object) -> bool:
    """Whether it stands for an answer that did not come, rather than being one."""
    return isinstance(value, Exception) and not isinstance(value, ErrorReply)


def _unavailable(server: Server, cause: Exception) -> Unavailable:
    said = str(cause).rstrip(".")
    if isinstance(cause, ErrorReply):
        said += NEEDS if cause.code == "NOPERM" else ""
    else:
        said += ". Check that it runs, and that atomicity_redis names it"
    error = Unavailable(f"The arbiter at {server.address} did not serve a request: {said}.")
    error.__cause__ = cause
    return error


_every: weakref.WeakSet[Clients] = weakref.WeakSet()


def _after_fork() -> None:
    for clients in list(_every):
        clients.start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

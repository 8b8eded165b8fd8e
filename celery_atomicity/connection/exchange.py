"""
Questions out and answers in, over one socket per address, for all threads of the process.

A thread that asks writes its command under the lock and then reads: the first that finds nobody
reading reads for all, and wakes another when its own question is decided. So a lone thread pays for
nothing but the round trip, fifty threads share one connection in order (a release never overtakes
its acquire), and no thread is kept for it.

Celery raises into running code (soft time limits), so every state here heals: a reader that was
torn away is replaced when its question is overdue, and a socket in mid-command is given up.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from celery_atomicity import clock, threads
from celery_atomicity.connection.link import Broken
from celery_atomicity.connection.question import Question
from celery_atomicity.connection.readiness import readable, readable_of
from celery_atomicity.connection.resp import ErrorReply
from celery_atomicity.connection.script import Command
from celery_atomicity.connection.server import Server
from celery_atomicity.connection.turns import Turns
from celery_atomicity.threads import Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from celery_atomicity.connection.link import Link, Receiver
    from celery_atomicity.settings import Settings

# Timeouts that connecting is waited for, at the most: it takes several requests.
PATIENCE = 3

# How long the others are waited for when a majority is connected, in seconds, if nothing is known
# against them.
HELLO = 0.05

# What is owed to a server that is down is brought back in so many attempts; they take seconds.
RETURNS = 12

# With several addresses a reader looks for new connections this often, in seconds.
SLICE = 0.05


class Exchange:
    """
    The sockets of this process to the addresses of *settings*.

    Thread-safe. Blocks only for connecting and reading, each within the timeout.
    """

    def __init__(self, settings: Settings) -> None:
        self.timeout = settings.timeout
        self.servers = [Server(address, settings) for address in settings.addresses]
        self._lock = threading.RLock()
        self._changed = Changes()
        self._turns = Turns()

    def forget(self) -> None:
        """Let go of what a parent process left us, without disturbing it."""
        for server in self.servers:
            server.forget()

    def close(self) -> None:
        """Close the connections; whoever waits for an answer is told."""
        with self._lock:
            for server in self.servers:
                self._drop(server, ConnectionError("the connection was closed"))

    # -- connecting -----------------------------------------------------------------------------

    def connect(self, servers: Sequence[Server], needed: int) -> None:
        """
        Have links to *servers* if that can be; wait only while fewer than *needed* are up.

        Threads aside do it: connecting is left to a client library, which takes whatever is raised
        into it, such as a time limit, for an outage.
        """
        with self._lock:
            now = clock.monotonic()
            # Each is looked at, since one that was closed meanwhile is connected to anew.
            links = [self._usable_link(server, now) for server in servers]
            if None not in links:
                return
            for server in servers:
                if server.due(now):
                    self._connect_aside(server, now)
        self._await(servers, PATIENCE * self.timeout, lambda: _how_many_up(servers) >= needed)
        # The others are not known to be down; but not for long, since they may hang.
        unknown = [server for server in servers if server.error is None]
        self._await(unknown, HELLO, lambda: False)

    def _await(
        self, servers: Sequence[Server], seconds: float, is_enough: Callable[[], bool]
    ) -> None:
        """Wait for those of *servers* that began to connect less than *seconds* ago."""

        def left() -> float:
            now = clock.monotonic()
            return max((seconds - server.connecting_for(now) for server in servers), default=0.0)

        self._changed.wait_for(lambda: is_enough() or left() <= 0, left())

    def _connect_aside(self, server: Server, now: float) -> None:
        server.begin_to_connect(now)
        try:
            threads.start("atomicity-connect", self._connect, server)
        except RuntimeError as error:
            server.stop_connecting()
            server.failed(ConnectionError(f"no thread could be started: {error}"), now)
        except BaseException:
            # Torn away, perhaps from a thread that runs: then two may connect, and one is too many.
            server.stop_connecting()
            raise

    def _connect(self, server: Server) -> None:
        link: Link | None = None
        failure: Exception = ConnectionError("connecting broke off")
        try:
            link = server.connect()
        except OSError as error:
            failure = error
        finally:
            with self._lock:
                server.stop_connecting()
                if server.link is not None:
                    # Another thread was sooner, of which we were not to know.
                    if link is not None:
                        link.close()
                elif link is None:
                    server.failed(failure, clock.monotonic())
                else:
                    server.connected(link)
                    self._send_owed(server, link)
            self._changed.tell()

    def _return_soon(self, server: Server) -> None:
        """See that what is owed to *server* gets there though nobody may ask it again."""
        if server.owed and not server.returning:
            server.returning = True
            try:
                threads.start("atomicity-return", self._return, server)
            except RuntimeError:
                server.returning = False  # it goes with the next connection, then
            except BaseException:
                server.returning = False
                raise

    def _return(self, server: Server) -> None:
        try:
            for _ in range(RETURNS):
                clock.sleep(server.pause_left(clock.monotonic()))
                self.connect([server], 1)
                self._hear_out(server)
                with self._lock:
                    if not server.owed:
                        server.returning = False
                        return
        finally:
            server.returning = False

    def _hear_out(self, server: Server) -> None:
        """Read what *server* still owes: a script that it does not know is sent anew only then."""
        link = server.link
        while link is not None and link.oldest is not None:
            descriptor = link.socket.fileno()
            if descriptor < 0 or not readable(descriptor, self.timeout):
                return
            self._take(server)

    def _send_owed(self, server: Server, link: Link) -> None:
        """Send what could not be sent before, ahead of everything else; nobody waits for it."""
        commands = list(server.owed)
        server.owed.clear()
        if commands:
            question = Question(len(commands), lambda _: True, self.timeout)
            question.look()
            data = b"".join([link.worded(command) for command in commands])
            receivers = [(question, index, command) for index, command in enumerate(commands)]
            self._write(server, link, data, receivers)

    def _usable_link(self, server: Server, now: float) -> Link | None:
        """The link, unless it turns out to be dead or overdue."""
        link = server.link
        if link is None or link.is_fresh(now):
            return link
        if link.oldest is not None:
            self._drop_overdue(server)
        elif link.is_dead():
            # The server closed it while nobody looked: connected to anew, and not yet an outage.
            self._drop(server, ConnectionResetError("the server closed the connection"))
        return server.link

    # -- asking ---------------------------------------------------------------------------------

    def ask(self, server: Server, question: Question, commands: Sequence[Command]) -> None:
        """
        Ask *server* the commands of *question* and wait for the answers.

        Connects first where that is needed.
        """
        try:
            with self._lock:
                connected = self._usable_link(server, question.sent) is not None
                if connected:
                    self._put(server, question, commands, 0)
            if not connected:
                self.connect([server], 1)
                question.begin()
                with self._lock:
                    self._put(server, question, commands, 0)
            self._read_until_done(question)
        finally:
            question.close()

    def ask_each(self, question: Question, commands: Sequence[Sequence[Command]]) -> None:
        """
        Ask each server its *commands* and wait until *question* is decided.

        After *connect*; a server that is down fails.
        """
        first = 0
        try:
            with self._lock:
                for server, its in zip(self.servers, commands, strict=True):
                    if its:
                        self._put(server, question, its, first)
                    first += len(its)
            question.look()
            self._read_until_done(question)
        finally:
            question.close()

    def _put(
        self, server: Server, question: Question, commands: Sequence[Command], first: int
    ) -> None:
        """Write *commands*, whose answers are those of *question* from *first* on, or fail."""
        link = server.link
        if link is None:
            server.owed.extend(command for command in commands if command.is_owed)
            error = server.error or ConnectionError("it is not connected yet")
            for index in range(len(commands)):
                question.answer(first + index, error, "")
            self._return_soon(server)
        elif len(commands) == 1:
            [command] = commands
            self._write(server, link, link.worded(command), [(question, first, command)])
        else:
            data = b"".join([link.worded(command) for command in commands])
            receivers = [
                (question, index, command) for index, command in enumerate(commands, first)
            ]
            self._write(server, link, data, receivers)

    def _write(self, server: Server, link: Link, data: bytes, receivers: list[Receiver]) -> None:
        try:
            link.send(data, receivers, self.timeout)
        except Broken as error:
            self._fail(server, link, error)
        except BaseException:
            # Torn away in mid-command: what the server makes of the rest is anybody's guess.
            self._tear(server, link, "interrupted while sending")
            raise

    def _read_until_done(self, question: Question) -> None:
        """Read, or wait for somebody who reads for us, until *question* is decided or overdue."""
        turns = self._turns
        try:
            while not question.done:
                if turns.is_mine(question):
                    self._read(question)
                else:
                    question.wait(question.until - clock.monotonic())
                    self._expire(question)
        finally:
            turns.leave(question)

    def _read(self, question: Question) -> None:
        """Hand out the answers that are there, waiting for some until the question is overdue."""
        left = question.until - clock.monotonic()
        # Another thread may drop a link at any time; a closed one has no descriptor.
        links: dict[int, Server] = {}
        for server in self.servers:
            link = server.link
            if link is not None and (descriptor := link.socket.fileno()) >= 0:
                links[descriptor] = server
        if left <= 0 or not links:
            self._expire(question)
        elif len(self.servers) == 1:
            if readable(descriptor, left):
                self._take(server)
        else:
            # A link may come while we wait, on which others are then answered.
            for descriptor in readable_of(links, min(left, SLICE)):
                self._take(links[descriptor])

    def _take(self, server: Server) -> None:
        """Hand out what *server* has answered."""
        link = server.link
        if link is None:
            return
        try:
            answers = link.read()
        except Broken as error:
            self._fail(server, link, error)
            return
        except BaseException:
            self._tear(server, link, "interrupted while reading")
            raise
        for receiver, value in answers:
            question, index, command = receiver
            if isinstance(value, ErrorReply) and value.is_unknown_script and command.in_full:
                with self._lock:
                    again = Command(command.in_full(question.done))
                    # The question may be over, and a release still has to be done.
                    question.extend()
                    self._write(server, link, again.data, [(question, index, again)])
            else:
                question.answer(index, value, link.run)
                if isinstance(value, ErrorReply) and command.in_full:
                    self._refused(server, link, value)

    def _refused(self, server: Server, link: Link, error: ErrorReply) -> None:
        """Note an error that a script was answered with."""
        if error.is_of_a_replica:
            # It was demoted while we were connected: look for the master of today.
            self._fail(server, link, error)
        else:
            with self._lock:
                server.refused(error)

    # -- giving up ------------------------------------------------------------------------------

    def _expire(self, question: Question) -> None:
        """Give up whatever is overdue, and *question* if it is."""
        question.make_do()
        for server in self.servers:
            self._drop_overdue(server)
        if clock.monotonic() >= question.deadline:
            question.expire(TimeoutError(f"no answer within {self.timeout:g} s"))

    def _drop_overdue(self, server: Server) -> None:
        """Give up a link whose oldest question is overdue, so that answers are never mixed up."""
        link = server.link
        now = clock.monotonic()
        if link is None or not link.is_overdue(now):
            return
        # It may well have answered, only nobody has looked since: a straggler after a majority.
        self._take(server)
        if link.is_overdue(now):
            self._fail(server, link, TimeoutError(f"no answer within {self.timeout:g} s"))

    def _fail(self, server: Server, link: Link, error: Exception) -> None:
        with self._lock:
            if server.link is link:
                server.failed(error, clock.monotonic())
                self._drop(server, error)

    def _tear(self, server: Server, link: Link, what: str) -> None:
        """
        Give up a link that an exception from outside, such as a time limit's, has put out of step.

        That is no fault of the server's, which may be asked again at once: what was taken has to
        go back.
        """
        with self._lock:
            if server.link is link:
                self._drop(server, ConnectionAbortedError(what))

    def _drop(self, server: Server, error: Exception) -> None:
        """Close the link and answer whoever waits for it with *error*."""
        link, server.link = server.link, None
        if link is not None:
            for question, index, command in link.give_up():
                if command.is_owed:
                    server.owed.append(command)
                question.answer(index, error, link.run)
            self._return_soon(server)


def _how_many_up(servers: Sequence[Server]) -> int:
    return sum(server.link is not None for server in servers)

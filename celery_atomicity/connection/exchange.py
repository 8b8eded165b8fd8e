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

import select
import threading
from collections import deque
from typing import TYPE_CHECKING

from celery_atomicity import clock
from celery_atomicity.connection.resp import ErrorReply
from celery_atomicity.connection.script import Command
from celery_atomicity.connection.server import Server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery_atomicity.connection.question import Question
    from celery_atomicity.connection.server import Link, Receiver
    from celery_atomicity.settings import Settings

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
        self._changed = threading.Condition(self._lock)
        self._reader: Question | None = None
        self._waiting: deque[Question] = deque()

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

    def connect(self, server: Server) -> None:
        """Have a link to *server* if that can be, connecting in the calling thread."""
        with self._lock:
            self._drop_if_dead(server)
            if server.link is not None:
                return
            self._changed.wait_for(lambda: not server.connecting, 3 * self.timeout)
            if not server.due(clock.monotonic()):
                return
            server.connecting = True
        self._connect(server)

    def connect_aside(self, needed: int) -> None:
        """Reconnect what is down in threads aside; wait only while fewer than *needed* are up."""
        with self._lock:
            now = clock.monotonic()
            for server in self.servers:
                self._drop_if_dead(server)
                if server.due(now):
                    server.connecting = True
                    threading.Thread(
                        target=self._connect, args=(server,), name="atomicity-connect", daemon=True
                    ).start()
            self._changed.wait_for(
                lambda: (
                    sum(one.link is not None for one in self.servers) >= needed
                    or not any(one.connecting for one in self.servers)
                ),
                self.timeout,
            )

    def _connect(self, server: Server) -> None:
        link, failure = None, None
        try:
            link = server.connect()
        except OSError as error:
            failure = error
        finally:
            with self._lock:
                server.connecting = False
                if link is not None:
                    server.connected(link)
                else:
                    server.failed(failure or ConnectionError("interrupted"), clock.monotonic())
                self._changed.notify_all()

    def _drop_if_dead(self, server: Server) -> None:
        """A server that closed a quiet connection is connected to anew: not yet an outage."""
        link = server.link
        if link is not None and link.quiet(clock.monotonic()) and _readable([link], 0):
            self._drop(server, ConnectionResetError("the server closed the connection"))

    # -- asking ---------------------------------------------------------------------------------

    def send(self, server: Server, question: Question, commands: dict[int, Command]) -> None:
        """Write *commands* to *server*, each named by which answer of *question* is its own."""
        with self._lock:
            self._drop_overdue(server)
            link = server.link
            if link is None:
                error = server.error or ConnectionError("it is not connected yet")
                for index in commands:
                    question.answer(index, error, "")
                return
            data = b"".join(command.data for command in commands.values())
            self._write(
                server, link, data, [(question, index, it) for index, it in commands.items()]
            )

    def _write(self, server: Server, link: Link, data: bytes, receivers: list[Receiver]) -> None:
        try:
            link.send(data, receivers, self.timeout)
        except OSError as error:
            self._fail(server, link, error)
        except BaseException:
            # Torn away in mid-command: what the server makes of the rest is anybody's guess.
            self._fail(server, link, ConnectionAbortedError("interrupted while sending"))
            raise

    def read_until_done(self, question: Question) -> None:
        """Read, or wait for somebody who reads for us, until *question* is decided or overdue."""
        while not question.done:
            if self._may_read(question):
                try:
                    while not question.done:
                        self._read(question)
                finally:
                    self._hand_over(question)
            else:
                question.wait(question.deadline - clock.monotonic())
                self._expire(question)
        if self._waiting and self._reader is None:
            self._hand_over(question)

    def _may_read(self, question: Question) -> bool:
        """Become the reader, or stand in the queue to become it."""
        with self._lock:
            reader = self._reader
            free = reader is None or reader.done or clock.monotonic() > reader.deadline
            if free:
                self._reader = question
            elif question not in self._waiting:
                self._waiting.append(question)
            return free

    def _hand_over(self, question: Question) -> None:
        """Stop reading, and wake one who waits, so that somebody reads while anybody waits."""
        with self._lock:
            if self._reader is question:
                self._reader = None
            while self._waiting:
                follower = self._waiting.popleft()
                if not follower.done:
                    follower.wake()
                    return

    def _read(self, question: Question) -> None:
        """Hand out the answers that are there, waiting for some until the question is overdue."""
        left = question.deadline - clock.monotonic()
        pairs = [(server, server.link) for server in self.servers if server.link is not None]
        if left <= 0 or not pairs:
            self._expire(question)
            return
        if len(self.servers) > 1 or pairs[0][1].tls:
            ready = _readable([link for _, link in pairs], min(left, SLICE))
            pairs = [(server, link) for server, link in pairs if link in ready]
        for server, link in pairs:
            self._take(server, link, left)

    def _take(self, server: Server, link: Link, seconds: float) -> None:
        """Hand out what *link* has to read."""
        try:
            answers = link.read(seconds)
        except TimeoutError:
            return
        except (OSError, ValueError, IndexError) as error:
            self._fail(server, link, error)
            return
        except BaseException:
            self._fail(server, link, ConnectionAbortedError("interrupted while reading"))
            raise
        for receiver, value in answers:
            question, index, command = receiver
            if isinstance(value, ErrorReply) and value.is_unknown_script and command.in_full:
                with self._lock:
                    again = Command(command.in_full())
                    # A straggler's question may be over, and a release still has to be done.
                    question.extend(self.timeout)
                    self._write(server, link, again.data, [(question, index, again)])
            else:
                question.answer(index, value, link.run)

    # -- giving up ------------------------------------------------------------------------------

    def _expire(self, question: Question) -> None:
        """Give up whatever is overdue, and *question* if it is."""
        for server in self.servers:
            self._drop_overdue(server)
        if clock.monotonic() >= question.deadline:
            question.expire(TimeoutError(f"no answer within {self.timeout:g} s"))

    def _drop_overdue(self, server: Server) -> None:
        """Give up a link whose oldest question is overdue, so that answers are never mixed up."""
        link = server.link
        now = clock.monotonic()
        if link is None or link.oldest is None or now < link.oldest.deadline:
            return
        if _readable([link], 0):
            # It did answer, only nobody has looked since: a straggler after a majority.
            self._take(server, link, 0.001)
        if link.oldest is not None and now >= link.oldest.deadline:
            self._fail(server, link, TimeoutError(f"no answer within {self.timeout:g} s"))

    def _fail(self, server: Server, link: Link, error: Exception) -> None:
        with self._lock:
            if server.link is link:
                server.failed(error, clock.monotonic())
                self._drop(server, error)

    def _drop(self, server: Server, error: Exception) -> None:
        """Close the link and answer whoever waits for it with *error*."""
        link, server.link = server.link, None
        if link is not None:
            link.close()
            for question, index, _ in link.unanswered():
                question.answer(index, error, link.run)


def _readable(links: Sequence[Link], seconds: float) -> list[Link]:
    """Those of *links* that have something to read, waiting for the first of them."""
    by_descriptor = {link.socket.fileno(): link for link in links}
    by_descriptor.pop(-1, None)
    if hasattr(select, "poll"):
        poll = select.poll()
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(seconds * 1000)]
    else:
        # eventlet takes poll away, since it cannot make it yield.
        ready, _, _ = select.select(list(by_descriptor), [], [], seconds)
    return [by_descriptor[descriptor] for descriptor in ready]

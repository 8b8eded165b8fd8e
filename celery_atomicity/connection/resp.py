"""
Commands to bytes and bytes to answers (RESP 2).

Our own, because answers of several servers are read as they come: what a slow server has sent of
its answer must neither block the others nor be lost. Connecting, TLS and logging in are redis-py's;
hiredis reads the answers where it is installed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

try:
    import hiredis
except ImportError:
    hiredis = None

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Argument: TypeAlias = "bytes | str | int | float"

INCOMPLETE = object()

# No answer of ours has as many bytes, or nests as deep. What claims to is not a server of ours, or
# one that would have us fill our memory.
MOST_BYTES = 1 << 24
DEEPEST = 8

# Nor as many items: hiredis makes room for all that are announced. What we keep on a server holds
# no line breaks, so this can only be an announcement.
_HUGE = re.compile(rb"\n[*~>%|]\d{6,}\r")

# The longest beginning of one that may be the end of what was received.
_CUT = 24


class ErrorReply(Exception):
    """An error that the server answered with; *code* is its first word, such as ``NOSCRIPT``."""

    @property
    def code(self) -> str:
        """The first word of the message."""
        return str(self).partition(" ")[0]

    @property
    def is_unknown_script(self) -> bool:
        """Whether it says that the server has no script of that hash."""
        return self.code == "NOSCRIPT"

    @property
    def is_of_a_replica(self) -> bool:
        """Whether it says that the server is not, or not any more, the one that takes writes."""
        return self.code in ("READONLY", "MASTERDOWN") or "-READONLY" in str(self)


def pack(arguments: Sequence[Argument]) -> bytes:
    """One command, ready to be sent."""
    return b"*%d\r\n%b" % (len(arguments), pack_all(arguments))


def pack_all(arguments: Iterable[Argument]) -> bytes:
    """The words of a command."""
    # Nearly all of them are ASCII, whose length in bytes is known before they are encoded.
    parts = []
    for argument in arguments:
        text = argument
        if type(text) is int:
            text = str(text)
        elif type(text) is not str:
            break
        parts.append(f"${len(text)}\r\n{text}\r\n")
    else:
        packed = "".join(parts)
        if packed.isascii():
            return packed.encode("ascii")
    return b"".join(map(_pack_one, arguments))


def _pack_one(argument: Argument) -> bytes:
    if not isinstance(argument, bytes):
        text = argument if isinstance(argument, str) else repr(argument)
        argument = text.encode("utf-8", "surrogatepass")
    return b"$%d\r\n%b\r\n" % (len(argument), argument)


class Reader:
    """Takes in bytes as they come and gives out whole answers."""

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Add what was received."""
        self._buffer = self._buffer[self._at :] + data
        self._at = 0

    def gets(self) -> object:
        """
        The next whole answer, or INCOMPLETE.

        Raises:
            ValueError: What was received is not RESP; the connection is of no more use.
        """
        if self._at == len(self._buffer):
            return INCOMPLETE
        start = self._at
        value = self._value()
        if value is INCOMPLETE:
            self._at = start
        return value

    def _value(self, depth: int = 0) -> object:
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            return INCOMPLETE
        kind, rest = self._buffer[self._at : self._at + 1], self._buffer[self._at + 1 : end]
        self._at = end + 2
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return self._data(int(rest))
        if kind == b"*":
            return self._list(int(rest), depth)
        if kind == b"+":
            return rest
        if kind == b"-":
            return ErrorReply(rest.decode("utf-8", "replace"))
        raise ValueError(f"not an answer of a Redis server: {(kind + rest)[:40]!r}")

    def _data(self, length: int) -> object:
        if length < 0:
            return None
        end = self._at + length
        if len(self._buffer) < end + 2:
            return INCOMPLETE
        data = self._buffer[self._at : end]
        self._at = end + 2
        return data

    def _list(self, length: int, depth: int) -> object:
        if length < 0:
            return None
        if depth == DEEPEST:
            raise ValueError("an answer nests too deep")
        values = []
        for _ in range(length):
            value = self._value(depth + 1)
            if value is INCOMPLETE:
                return INCOMPLETE
            values.append(value)
        return values


class Intake:
    """What comes in over one connection, as answers."""

    def __init__(self) -> None:
        self._reader = new_reader()
        self._end = b"\n"
        self._unfinished = 0

    def take(self, data: bytes) -> list[object]:
        """
        The answers that *data* completes.

        Raises:
            ValueError: It is nothing that a server of ours would send; no more can be read.
        """
        seen = self._end + data
        if _HUGE.search(seen):
            raise ValueError(f"an answer of too many items: {data[:40]!r}")
        self._end = seen[-_CUT:]
        self._reader.feed(data)
        answers = []
        try:
            while (value := self._reader.gets()) is not INCOMPLETE:
                answers.append(value)
        except (MemoryError, RecursionError) as error:
            raise ValueError(f"an answer that cannot be held: {data[:40]!r}") from error
        self._unfinished = 0 if answers else self._unfinished + len(data)
        if self._unfinished > MOST_BYTES:
            raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
        return answers


def new_reader() -> Any:
    """A reader of answers: hiredis's, or ours."""
    if hiredis is None:
        return Reader()
    return hiredis.Reader(protocolError=ValueError, replyError=ErrorReply, notEnoughData=INCOMPLETE)

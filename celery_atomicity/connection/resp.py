"""
Commands to bytes and bytes to answers (RESP 2).

Our own, because answers of several servers are read as they come: what a slow server has sent of
its answer must neither block the others nor be lost. Connecting, TLS and logging in are redis-py's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Argument: TypeAlias = "bytes | str | int | float"

INCOMPLETE = object()


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


def pack(arguments: Iterable[Argument]) -> bytes:
    """One command, ready to be sent."""
    parts = [_bulk(argument) for argument in arguments]
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))


def _bulk(argument: Argument) -> bytes:
    data = (
        argument
        if isinstance(argument, bytes)
        else argument.encode("utf-8", "surrogatepass")
        if isinstance(argument, str)
        else repr(argument).encode()
    )
    return b"$%d\r\n%b\r\n" % (len(data), data)


class Reader:
    """Takes in bytes as they come and gives out whole answers."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Add what was received."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def next(self) -> object:
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

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            return None
        line = bytes(self._buffer[self._at : end])
        self._at = end + 2
        return line

    def _value(self) -> object:
        line = self._line()
        if line is None:
            return INCOMPLETE
        kind, rest = line[:1], line[1:]
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return self._data(int(rest))
        if kind == b"*":
            return self._list(int(rest))
        if kind == b"+":
            return rest
        if kind == b"-":
            return ErrorReply(rest.decode("utf-8", "replace"))
        raise ValueError(f"not an answer of a Redis server: {line[:40]!r}")

    def _data(self, length: int) -> object:
        if length < 0:
            return None
        end = self._at + length
        if len(self._buffer) < end + 2:
            return INCOMPLETE
        data = bytes(self._buffer[self._at : end])
        self._at = end + 2
        return data

    def _list(self, length: int) -> object:
        if length < 0:
            return None
        values = []
        for _ in range(length):
            value = self._value()
            if value is INCOMPLETE:
                return INCOMPLETE
            values.append(value)
        return values

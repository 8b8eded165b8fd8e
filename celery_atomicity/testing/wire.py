"""As much of the servers' protocol as it takes to send one command and read its answer."""

from __future__ import annotations

from typing import BinaryIO

from celery_atomicity.testing.errors import ServerError

Reply = str | int | list["Reply"] | None


def packed(*command: str | float | bytes) -> bytes:
    """Return *command* as a server reads it."""
    parts = [part if isinstance(part, bytes) else str(part).encode() for part in command]
    bulks = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"*%d\r\n%s" % (len(parts), bulks)


def read(answers: BinaryIO) -> Reply:
    """
    Take one answer off *answers*, texts decoded; block until it is there.

    Raises:
        ServerError: The answer is an error.
        ConnectionError: There is no more to read.
    """
    line = answers.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server closed the connection before it answered")
    kind, text = line[:1], line[1:-2].decode(errors="replace")
    if kind == b"-":
        raise ServerError(text)
    if kind == b":":
        return int(text)
    if kind == b"$":
        return None if text == "-1" else answers.read(int(text) + 2)[:-2].decode(errors="replace")
    if kind == b"*":
        return None if text == "-1" else [read(answers) for _ in range(int(text))]
    return text

"""The terminal: its size, its keys, and drawing on it without flicker."""

from __future__ import annotations

import os
import re
import select
import sys
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from celery_atomicity.integration.command.watch.layout import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery_atomicity.integration.command.watch.frame import Frame
    from celery_atomicity.integration.command.watch.layout import Line

# The other screen without a cursor and without wrapping; and back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J", "\x1b[?7h\x1b[?25h\x1b[?1049l"

_STYLES: dict[str, dict[str, object]] = {
    "title": {"bold": True},
    "head": {"bold": True, "fg": "cyan"},
    "odd": {"fg": "yellow"},
    "problem": {"bold": True, "fg": "red"},
    "foot": {"dim": True},
}

# What keys that are more than a letter send.
_KEYS = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b": "q",
    b"\x03": "q",
    b"\x04": "q",
}


# One key: a sequence that begins with an escape, or one byte.
_KEY = re.compile(rb"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)


class PlainScreen:
    """
    The whole terminal, without rich; a context manager.

    Only lines that have changed are written, each over its old text and nothing erased before, so
    that nothing flickers.
    """

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._shown: list[Line] = []
        self._size = (0, 0)

    def __enter__(self) -> PlainScreen:
        self._write(_ENTER)
        return self

    def __exit__(self, *_error: object) -> None:
        self._write(_LEAVE)

    def draw(self, frame: Frame, foot: str, size: tuple[int, int], skip: int) -> None:
        """Show *frame*."""
        lines = lines_of(frame, foot, size, skip)
        if size != self._size:
            self._shown, self._size = [], size
        old = [*self._shown, *[None] * len(lines)]
        changed = [
            f"\x1b[{at};1H{self._styled(line)}"
            for at, (line, before) in enumerate(zip(lines, old, strict=False), 1)
            if line != before
        ]
        self._shown = lines
        self._write("".join(changed))

    def _styled(self, line: Line) -> str:
        style = _STYLES.get(line.look) if self._colours else None
        return click.style(line.text, **style) if style else line.text  # type: ignore[arg-type]

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def size_of() -> tuple[int, int]:
    """Columns and lines of the terminal; those of a small one, where it does not say."""
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 80, 24
    return (columns, lines) if columns and lines else (80, 24)


@contextmanager
def keyboard() -> Iterator[Keys]:
    """The keys, each as it is pressed, and not shown; none, where there is no keyboard."""
    if not sys.stdin.isatty():
        yield Keys(None)
        return
    # Where there is no terminal of this kind there is nothing to import either.
    import termios  # noqa: PLC0415
    import tty  # noqa: PLC0415

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Keys:
    """What is pressed on *descriptor*; None: nothing ever is."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._pressed: deque[str] = deque()

    def wait(self, seconds: float) -> str:
        """The key that is pressed within *seconds*: a letter or a name; empty: none is."""
        if not self._pressed:
            readable = [] if self._descriptor is None else [self._descriptor]
            ready, _, _ = select.select(readable, [], [], seconds)
            if ready:
                # The terminal is gone where there is nothing to be read.
                self._pressed.extend(names_of(os.read(ready[0], 1024)) or ["q"])
        return self._pressed.popleft() if self._pressed else ""


def names_of(data: bytes) -> list[str]:
    """The keys that a terminal has sent as *data*; what it may send besides has no name."""
    return [_KEYS.get(key) or key.decode("ascii", "replace") for key in _KEY.findall(data)]

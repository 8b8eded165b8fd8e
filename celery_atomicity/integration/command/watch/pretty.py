"""A frame by rich, which knows more kinds of terminals; only imported where it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from celery_atomicity.integration.command.watch.layout import lines_of

if TYPE_CHECKING:
    from celery_atomicity.integration.command.watch.frame import Frame
    from celery_atomicity.integration.command.watch.layout import Line

_STYLES = {
    "title": "bold",
    "head": "bold cyan",
    "odd": "yellow",
    "problem": "bold red",
    "foot": "dim",
    "plain": "",
}


class RichScreen:
    """The whole terminal, drawn by rich; a context manager."""

    def __init__(self, *, colours: bool) -> None:
        self._console = Console(no_color=None if colours else True, highlight=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> RichScreen:
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    def draw(self, frame: Frame, foot: str, size: tuple[int, int], skip: int) -> None:
        """Show *frame*."""
        lines = lines_of(frame, foot, size, skip)
        self._live.update(Group(*map(_text, lines)), refresh=True)


def _text(line: Line) -> Text:
    return Text(line.text, _STYLES[line.look], no_wrap=True, overflow="crop")

"""A frame by rich; only imported where that is installed and wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from celery_atomicity.integration.command.text import printable
from celery_atomicity.integration.command.watch.frame import cut
from celery_atomicity.integration.command.watch.layout import problem_lines, widths_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from celery_atomicity.integration.command.watch.frame import Frame, Table


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
        self._live.update(rendered(frame, foot, size, skip), refresh=True)


def rendered(frame: Frame, foot: str, size: tuple[int, int], skip: int = 0) -> RenderableType:
    """*frame* on a screen of *size*, columns and lines, of which it leaves none empty."""
    width, height = size
    parts: list[RenderableType] = [_line(frame.title, "bold")]
    parts += [_line(problem, "bold red") for problem in problem_lines(frame, width)]
    fitted = cut(frame, height - len(parts) - 1, skip)
    used = len(parts)
    for table in fitted.tables:
        parts += [Text("")] * fitted.spaced
        parts.append(_table(table, width))
        used += fitted.spaced + 1 + len(table.rows)
    if fitted.more:
        parts.append(_line(f"{fitted.more} more rows; scroll with up and down", "dim"))
        used += 1
    parts += [Text("")] * (height - used - 1)
    parts.append(_line(foot, "dim"))
    return Group(*parts)


def _line(text: str, style: str) -> Text:
    return Text(printable(text), style, no_wrap=True, overflow="ellipsis")


def _table(table: Table, width: int) -> RichTable:
    grid = RichTable(
        box=None, padding=(0, 1), pad_edge=False, header_style="bold cyan", show_edge=False
    )
    for title, wide in zip(table.columns, widths_of(table, width), strict=True):
        grid.add_column(title, width=wide, no_wrap=True, overflow="ellipsis")
    for row in table.rows:
        grid.add_row(*(Text(printable(cell)) for cell in row.cells), style="yellow" * row.odd)
    return grid

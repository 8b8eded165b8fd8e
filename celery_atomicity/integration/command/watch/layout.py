"""A frame as lines of just a terminal's width: pure."""

from __future__ import annotations

import textwrap
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_atomicity.integration.command.text import printable
from celery_atomicity.integration.command.watch.frame import cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery_atomicity.integration.command.watch.frame import Frame, Table

# Between two columns, and what stands for what was cut off.
GAP, ELLIPSIS = 2, "…"

# What a column that is cut keeps at least, and lines that problems may take.
LEAST, PROBLEMS = 8, 4


@dataclass(frozen=True)
class Line:
    """A line of the screen, and how it is to look: title, head, odd, problem, foot or plain."""

    text: str
    look: str = "plain"


def lines_of(frame: Frame, foot: str, size: tuple[int, int], skip: int = 0) -> list[Line]:
    """
    *frame* on a screen of *size*, columns and lines, which is filled to its last line.

    Args:
        frame: What is to be seen.
        foot: What stands in the last line.
        size: Of the terminal.
        skip: Rows that are scrolled away.
    """
    width, height = size
    lines = [Line(frame.title, "title")]
    lines += [Line(text, "problem") for text in problem_lines(frame, width)]
    fitted = cut(frame, height - len(lines) - 1, skip)
    for table in fitted.tables:
        lines += [Line("")] * fitted.spaced
        lines += _table(table, width)
    if fitted.more:
        lines.append(Line(f"{fitted.more} more rows; scroll with up and down", "foot"))
    lines += [Line("")] * (height - len(lines) - 1)
    lines = [*lines[: height - 1], Line(foot, "foot")]
    return [Line(fit(line.text, width), line.look) for line in lines]


def problem_lines(frame: Frame, width: int) -> list[str]:
    """What is wrong, in some lines."""
    return [line for text in frame.problems for line in textwrap.wrap(text, width)][:PROBLEMS]


def widths_of(table: Table, width: int) -> list[int]:
    """How wide each column is; only those that may be cut are narrower than their cells."""
    cells = [table.columns, *(row.cells for row in table.rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    over = sum(widths) + GAP * (len(widths) - 1) - width
    while over > 0:
        at = max(table.wide, key=lambda index: widths[index])
        if widths[at] <= LEAST:
            break
        widths[at] -= 1
        over -= 1
    return widths


def fit(text: str, width: int) -> str:
    """*text* cut or filled up to *width* columns; what cannot be printed stands as ``?``."""
    text = printable(text)
    if columns(text) > width:
        while columns(text) > width - 1:
            text = text[:-1]
        text += ELLIPSIS
    return text + " " * (width - columns(text))


def columns(text: str) -> int:
    """How many columns of a terminal *text* takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _table(table: Table, width: int) -> list[Line]:
    widths = widths_of(table, width)
    return [
        Line(_joined(table.columns, widths), "head"),
        *(Line(_joined(row.cells, widths), "odd" if row.odd else "plain") for row in table.rows),
    ]


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    return (" " * GAP).join(map(fit, cells, widths)).rstrip()

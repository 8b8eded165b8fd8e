"""Two pictures out of nothing: ratios as dots on a logarithmic axis, and curves in small panels."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from benchmarks.report import times

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.report import Curve, Results, Row, Section

LEGEND = (
    "Multiples of each section's basis, on a logarithmic axis. Green: celery-atomicity. "
    "Upright bars: targets, red where missed."
)
FONT = 'font-family="system-ui, sans-serif"'
INK, FAINT, GRID = "#1f2933", "#66727f", "#d9dee3"
OURS, OTHERS, BAD = "#0b6e4f", "#7b8794", "#b42318"
LINES = ("#0b6e4f", "#1d6fb8", "#b7791f", "#7b8794", "#8e44ad", "#b42318")


def text(x, y, words, *, size=12, fill=INK, anchor="start", weight="normal"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(str(words))}</text>'
    )


def line(x1, y1, x2, y2, colour=GRID, *, width=1.0):
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="{width}"/>'
    )


def dot(x, y, colour, radius=4.5):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>'


def picture(width, height, parts: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" {FONT}>\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


class Scale:
    """A logarithmic axis from *least* to *most*, drawn from *start* to *end*."""

    def __init__(self, values, start, end):
        known = [value for value in values if value > 0] or [1.0]
        self.least, self.most = min(known), max(known)
        if self.most < 2 * self.least:
            self.least, self.most = self.least / 2, self.most * 2
        self.start, self.end = start, end

    def __call__(self, value):
        value = max(value, self.least)
        share = math.log(value / self.least) / math.log(self.most / self.least)
        return self.start + share * (self.end - self.start)

    def ticks(self):
        """Round numbers between both ends: about eight at most."""
        decades = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
        spread = self.most / self.least
        steps = (1, 1.5, 2, 3, 5, 7) if spread < 10 else (1, 2, 5) if spread < 200 else (1,)
        found = [step * 10.0**decade for decade in decades for step in steps]
        return [one for one in found if self.least * 0.999 <= one <= self.most * 1.001]


def ratios(results: Results) -> str:
    """
    Each section's cases as multiples of its basis; a mark where the design wants it to be.

    Sections whose rows have no ratio are left out.
    """
    width, label, right, step = 900, 330, 60, 20
    parts = [
        text(12, 24, LEGEND, fill=FAINT),
        line(12, 34, width - 12, 34),
    ]
    y = 62.0
    for section in results.sections:
        if sum(row.ratio is not None for row in section.rows) < 2:
            continue
        drawn, y = _section(section, y, (label, width - right), step)
        parts += drawn
    return picture(width, round(y + 10), parts)


def _section(section: Section, top: float, across: tuple[int, int], step: int):
    """The parts of one section, and where the next one begins."""
    rows = [row for row in section.rows if row.ratio]
    bounds = [row.target.bound for row in rows if row.target and row.target.of != "median"]
    scale = Scale([*(row.ratio for row in rows), *bounds, 1.0], *across)
    bottom = top + 14 + step * len(rows)
    parts = [text(12, top, section.title, size=14, weight="600")]
    for tick in scale.ticks():
        parts.append(line(scale(tick), top + 8, scale(tick), bottom))
        parts.append(
            text(scale(tick), bottom + 12, f"{tick:g}", size=10, fill=FAINT, anchor="middle")
        )
    parts.append(line(scale(1), top + 8, scale(1), bottom, FAINT, width=1.5))
    for index, row in enumerate(rows):
        y = top + 22 + step * index
        colour = OURS if _is_ours(row) else OTHERS
        parts.append(text(across[0] - 14, y + 4, row.case, size=11, anchor="end"))
        parts.append(line(scale(1), y, scale(row.ratio), y, colour, width=2))
        parts.append(dot(scale(row.ratio), y, colour))
        parts.append(text(across[1] + 10, y + 4, times(row.ratio), size=11))
        if row.target and row.target.of != "median":
            at, hue = scale(row.target.bound), BAD if row.verdict == "missed" else OURS
            parts.append(line(at, y - 8, at, y + 8, hue, width=3))
    return parts, bottom + 44


def _is_ours(row: Row) -> bool:
    """Whether it is a figure of this package, as all are that have a target."""
    names = ("celery-atomicity", "atom.", "rate_limited", "singleton_by", "both decorators")
    return row.target is not None or row.case.startswith(names)


def growth(curves: list[Curve]) -> str:
    """A panel for each curve, two in a row, both axes logarithmic."""
    width, height, columns = 450, 330, 2
    parts: list[str] = []
    for index, curve in enumerate(curves):
        left, top = width * (index % columns), height * (index // columns)
        parts += _panel(curve, left, top, width, height)
    return picture(width * columns, height * math.ceil(len(curves) / columns), parts)


def _panel(curve: Curve, left, top, width, height):
    legend = 15 * len(curve.lines)
    points = [point for line_ in curve.lines.values() for point in line_]
    across = Scale([x for x, _ in points], left + 60, left + width - 20)
    up = Scale([y for _, y in points], top + height - 50, top + 44 + legend)
    parts = [text(left + 16, top + 24, curve.title, size=14, weight="600")]
    for tick in up.ticks():
        parts.append(line(across.start, up(tick), across.end, up(tick)))
        parts.append(
            text(across.start - 6, up(tick) + 4, f"{tick:g}", size=10, fill=FAINT, anchor="end")
        )
    told = -math.inf
    for tick in sorted({x for x, _ in points}):
        parts.append(line(across(tick), up.start, across(tick), up.start + 4, FAINT))
        if across(tick) - told > 40:
            told = across(tick)
            parts.append(
                text(told, up.start + 16, f"{tick:g}", size=10, fill=FAINT, anchor="middle")
            )
    middle = (across.start + across.end) / 2
    parts.append(text(middle, up.start + 34, f"{curve.y}, by {curve.x}", size=11, anchor="middle"))
    for number, (name, found) in enumerate(curve.lines.items()):
        colour = LINES[number % len(LINES)]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in found)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [dot(across(x), up(y), colour, 3) for x, y in found]
        parts.append(dot(left + 22, top + 38 + 15 * number, colour))
        parts.append(text(left + 32, top + 42 + 15 * number, name, size=11))
    return parts

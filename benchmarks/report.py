"""
What a measurement is written down as: rows held against a basis and a target, and curves.

Each script of this package has ``measure(run)``, which adds sections and curves to the run's
results, and ends in ``report.main(measure)``, so that it runs alone too. What counts is the ratio
of medians of cases that took turns in one run.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import logging
import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PACKAGES = (
    "celery",
    "kombu",
    "redis",
    "hiredis",
    "python-redis-lock",
    "pottery",
    "redis-fifo-lock",
    "celery-singleton",
    "celery-once",
    "limits",
    "pyrate-limiter",
)


@dataclass(frozen=True)
class Target:
    """
    A bound of a row's *ratio*, of its *late* ratio as well, or of its *median*.

    Attributes:
        bound: What it may be at most, or at least where *at_least* is set.
        of: "ratio"; "both", of the medians and of the 99th percentiles; "median", in the unit.
        why: What is known about it where it is missed; a sentence for the page.
    """

    bound: float
    of: str = "ratio"
    at_least: bool = False
    why: str = ""

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return (
            f"{sign} {self.bound:g}{ {'both': ', p99 too', 'median': ' (value)'}.get(self.of, '') }"
        )

    def met(self, row: Row) -> bool:
        """Whether *row* keeps to it; without a figure it does not."""
        figures = {"ratio": [row.ratio], "both": [row.ratio, row.late], "median": [row.median]}
        return all(
            one is not None and (one >= self.bound if self.at_least else one <= self.bound)
            for one in figures[self.of]
        )


@dataclass(frozen=True)
class Row:
    """
    One case of a section.

    Attributes:
        median: In *unit*.
        p99: In *unit*; None where there are too few samples for one.
        ratio: To the median of the case *basis*; *late* is that of the 99th percentiles.
    """

    case: str
    median: float
    unit: str = "us"
    p99: float | None = None
    basis: str = ""
    ratio: float | None = None
    late: float | None = None
    target: Target | None = None

    @property
    def verdict(self) -> str:
        """``ok``, ``missed``, or nothing where the design names no target."""
        if self.target is None:
            return ""
        return "ok" if self.target.met(self) else "missed"


@dataclass
class Section:
    """Cases that were measured together; *notes* are lines that stand below the table."""

    title: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(
        self,
        case: str,
        median: float,
        *,
        p99: float | None = None,
        unit: str = "us",
        basis: str = "",
        target: Target | None = None,
    ) -> Row:
        """Add a row, with its ratios to the row of the case *basis*, which is there already."""
        ratio = late = None
        if basis == case:
            ratio, late = 1.0, None if p99 is None else 1.0
        elif basis:
            base = next(row for row in self.rows if row.case == basis)
            ratio = _over(median, base.median)
            late = _over(p99, base.p99)
        self.rows.append(Row(case, median, unit, p99, basis, ratio, late, target))
        return self.rows[-1]

    def add_samples(
        self,
        samples: Mapping[str, Sequence[float]],
        *,
        basis: str | Callable[[str], str],
        targets: Mapping[str, Target] | None = None,
        unit: str = "us",
    ) -> None:
        """Add a row a case, each held against the case *basis*, or the one that it answers."""
        for case, found in samples.items():
            to = basis if isinstance(basis, str) else basis(case)
            self.add(
                case,
                statistics.median(found),
                p99=late(found),
                unit=unit,
                basis=to,
                target=(targets or {}).get(case),
            )


@dataclass
class Curve:
    """How something grows: a series of (x, y) a line; both axes are logarithmic."""

    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]


@dataclass
class Results:
    """All that one run has found."""

    machine: str = ""
    command: str = ""
    sections: list[Section] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def section(self, title: str) -> Section:
        self.sections.append(Section(title))
        return self.sections[-1]

    def rows(self) -> list[tuple[Section, Row]]:
        return [(section, row) for section in self.sections for row in section.rows]

    def dump(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def load(cls, text: str) -> Results:
        found = json.loads(text)
        sections = [
            Section(
                one["title"],
                [
                    Row(**{**row, "target": row["target"] and Target(**row["target"])})
                    for row in one["rows"]
                ],
                one["notes"],
            )
            for one in found["sections"]
        ]
        curves = [Curve(**one) for one in found["curves"]]
        return cls(found["machine"], found["command"], sections, curves)


@dataclass
class Run:
    """What a script is given: how thorough to be, where to write, and whom to tell."""

    quick: bool
    results: Results
    prefix: str = ""

    def times(self, full: float, quick: float) -> float:
        return quick if self.quick else full

    def section(self, title: str) -> Section:
        self.progress(title)
        return self.results.section(title)

    def progress(self, what: str) -> None:
        """One line on stderr that is overwritten on a terminal."""
        line = f"{self.prefix}{what}"
        if sys.stderr.isatty():
            print(f"\r\033[K{line[:100]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


def late(found: Sequence[float]) -> float | None:
    """The 99th percentile; None of fewer than a hundred, where it would be the longest."""
    return sorted(found)[int(len(found) * 0.99)] if len(found) >= 100 else None


def _over(figure: float | None, base: float | None) -> float | None:
    return figure / base if figure is not None and base else None


def turns(
    cases: Mapping[str, Callable[[], object]], rounds: int, calls: int = 1, warm: int = 20
) -> dict[str, list[float]]:
    """
    Microseconds of each call; the cases take turns, so that what else happens meets each.

    The collector of garbage rests meanwhile.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    for case in cases.values():
        for _ in range(warm):
            case()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, case in cases.items():
                for _ in range(calls):
                    began = time.perf_counter_ns()
                    case()
                    times[name].append((time.perf_counter_ns() - began) / 1000)
    finally:
        gc.enable()
    return times


def machine(server_version: str = "") -> str:
    """One line: processor, system, versions and how busy the machine is."""
    parts = [_processor(), f"{os.cpu_count()} cores", f"load {os.getloadavg()[0]:.1f} at the start"]
    parts += [platform.system() + " " + platform.release(), f"Python {platform.python_version()}"]
    if server_version:
        parts.append(server_version)
    for name in PACKAGES:
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(parts)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:  # noqa: PTH123 - no path of ours
            names = [line.split(":")[1].strip() for line in info if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def table(results: Results) -> str:
    """All rows as text of fixed columns."""
    lines = [results.machine]
    for section in results.sections:
        lines += ["", section.title, f"  {'':40} {'median':>11} {'p99':>9}  ratio    target"]
        for row in section.rows:
            ratio = f"{times(row.ratio) if row.ratio is not None else '':>7}"
            p99 = number(row.p99) if row.p99 is not None else ""
            told = f"{row.target}: {row.verdict}" if row.target else ""
            value = f"{number(row.median)} {row.unit}"
            lines.append(f"  {row.case:40} {value:>11} {p99:>9} {ratio}  {told}".rstrip())
        lines += [f"  ({note})" for note in section.notes]
    for curve in results.curves:
        lines += ["", f"{curve.title}: {curve.y} by {curve.x}"]
        for name, points in curve.lines.items():
            told = "  ".join(f"{x:g}: {number(y)}" for x, y in points)
            lines.append(f"  {name:40} {told}")
    judged = [row.verdict for _, row in results.rows() if row.verdict]
    lines += ["", f"targets: {judged.count('ok')} met, {judged.count('missed')} missed"]
    return "\n".join(lines)


def number(value: float) -> str:
    """Three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(ratio: float) -> str:
    """Two digits after the point, or two that count."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def main(measure: Callable[[Run], None], doc: str | None) -> None:
    """Run one script by itself or for the whole: ``--json`` is what the whole asks for."""
    parser = argparse.ArgumentParser(description=(doc or "").strip().splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to try, not to quote")
    parser.add_argument("--json", metavar="PATH", help="write what was found there, no table")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # servers that are frozen on purpose are no news
    run = Run(options.quick, Results(machine()), os.environ.get("BENCH_PREFIX", ""))
    measure(run)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(run.results.dump())
        return
    run.progress("")
    print(table(run.results))

"""docs/benchmarks.md, all of it, from what one run has found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report import number, times

if TYPE_CHECKING:
    from benchmarks.report import Results, Row, Section

INTRODUCTION = """\
# What it costs

Measured, not promised: {command} made this page, its tables and its pictures in one run, the
other packages beside ours.

> {machine}

{caution}{verdict}

## How to read it

- **Ratios, not times.** A time says as much about the machine as about the code. So each case is
  held against a basis that was measured in the same run, the cases taking turns call by call;
  *ratio* is that of the medians. Differences under 10% are noise, more so on a machine that does
  other work.
- **The basis** of a lock is two bare round trips: an EVALSHA of a script that does nothing,
  packed once, over a raw socket. No client in any language can do less. Between that and ours
  stands a row for our own two scripts over the same raw socket: what is above it is Python, what
  is below it is the server's work.
- **p99** is the 99th percentile, of at least a hundred samples.
- **Pinned.** *A core of its own* means that client and server each stay on one core: the client
  sleeps and is woken, as by a remote host. *On one core* means that nothing overlaps and only
  work is counted, which makes everything beyond the round trip weigh more. Left to itself the
  scheduler mixes both. What needs many processes, the tasks and the beat are not pinned.
- **Targets** come from the design, not from what was reached: those that are missed are shown
  too, with what is known of the reason.

![Each case as a multiple of its basis](images/benchmarks-ratios.svg)

"""

GROWTH = """\
## How cost grows

![Locks, meter calls, registering and beat as they grow](images/benchmarks-growth.svg)

Both axes are logarithmic. Threads share one process and its connections; processes have their
own, and this machine's cores between them.

"""

METHOD = """\
## What was compared, and how

- redis-py's `Lock`, python-redis-lock and pottery's `Redlock` are used as their documentation
  shows, with an expiry as long as our ttl; none of the three has a fence or, used so, renews
  itself. redis-fifo-lock does both; it is written for asyncio, and an event loop is entered for
  each of its two calls, as a synchronous task has to.
- The *raw first-come grant* is twelve lines of Lua: take, or stand in line and wait with BLPOP;
  let go by granting to the next and ringing it. A holder or waiter that dies blocks it for good,
  and nothing ever runs out. It is what waiting in line costs if nothing goes wrong.
- *Let go to held*: the waiter is another process, and has stood in line for 20 ms.
- celery-singleton and celery-once take their key where a task is sent, so that the worker's
  throughput shows only half of their cost. The table of processor time counts both sides.
- The server's own time is what INFO commandstats says; commands while waiting are counted by
  MONITOR.

`make bench` makes the page anew, in an environment of its own (`build/bench`), in less than nine
minutes; `python -m benchmarks --quick` tries everything out in two. Each part runs alone: `python
-m benchmarks.lock`, `contention`, `clients`, `meter`, `tasks`, `beat`, `slots`,
`partition_scale`. `python benchmarks/correctness.py` is not about speed, but about [what becomes
of a key](coming-from.md#what-was-seen).
"""

QUICK = """\
**These are the figures of a quick run, made to try the page out on a machine that was busy with
other work. Do not quote them: `make bench` on a quiet machine makes it anew.**

"""


def page(results: Results, *, quick: bool) -> str:
    """The page's text."""
    judged = [row for _, row in results.rows() if row.target]
    missed = [(section, row) for section, row in results.rows() if row.verdict == "missed"]
    verdict = f"Of {len(judged)} targets {len(judged) - len(missed)} are met"
    verdict += (
        f" and {len(missed)} missed; [which and why](#targets-that-are-missed)." if missed else "."
    )
    parts = [
        INTRODUCTION.format(
            command=f"`{results.command}`",
            machine=results.machine,
            caution=QUICK if quick else "",
            verdict=verdict,
        )
    ]
    parts += [_table(section) for section in results.sections]
    if results.curves:
        parts.append(GROWTH)
    if missed:
        parts.append(_missed(missed))
    parts.append(METHOD)
    return "".join(parts)


def _table(section: Section) -> str:
    if not section.rows:
        return f"## {section.title}\n\n" + "\n".join(section.notes) + "\n\n"
    has_late = any(row.p99 is not None for row in section.rows)
    has_ratio = any(row.ratio is not None for row in section.rows)
    heads = ["", "median", *["p99"] * has_late, *["ratio"] * has_ratio, "target"]
    lines = [f"## {section.title}", "", _line(heads), _line(["---"] * len(heads))]
    for row in section.rows:
        cells = [row.case, f"{number(row.median)} {row.unit}"]
        if has_late:
            cells.append(number(row.p99) if row.p99 is not None else "")
        if has_ratio:
            cells.append(times(row.ratio) if row.ratio is not None else "")
        lines.append(_line([*cells, _told(row)]))
    if section.notes:
        lines += ["", *(f"{note[:1].upper()}{note[1:]}.  " for note in section.notes)]
        lines[-1] = lines[-1].rstrip()
    return "\n".join(lines) + "\n\n"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _told(row: Row) -> str:
    if row.target is None:
        return ""
    return f"{_bound(row)}: {'met' if row.verdict == 'ok' else '**missed**'}"


def _bound(row: Row) -> str:
    words = "at least" if row.target.at_least else "at most"
    if row.target.of == "median":
        return f"{words} {row.target.bound:g} {row.unit}"
    return f"{words} {row.target.bound:g}{', p99 too' * (row.target.of == 'both')}"


def _missed(missed: list[tuple[Section, Row]]) -> str:
    """Each target that was missed, those of one reason together."""
    lines = ["## Targets that are missed", ""]
    reasons: dict[str, list[str]] = {}
    for section, row in missed:
        figure = row.median if row.target.of == "median" else row.ratio
        found = f"{figure:.2f}" + (
            f" (p99 {row.late:.2f})" if row.target.of == "both" and row.late else ""
        )
        reasons.setdefault(row.target.why, []).append(
            f"*{section.title}*, {row.case}: {found}, wanted {_bound(row)}"
        )
    for why, found in reasons.items():
        lines += [f"- {each}" for each in found]
        lines += ["", f"    {why or 'No reason is known that would excuse it.'}", ""]
    return "\n".join(lines) + "\n"

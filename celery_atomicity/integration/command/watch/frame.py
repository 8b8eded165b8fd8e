"""A status as what is to be seen of it: tables with titles, columns and rows. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from celery_atomicity.integration.command.text import age_of, duration, number, per_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from celery_atomicity.custody import Held
    from celery_atomicity.integration.command.entries import Entry
    from celery_atomicity.integration.command.status import Group, Replica, Status
    from celery_atomicity.overview import Limited, Owed

T = TypeVar("T")

# By what rows are sorted, in the order in which one key goes through them.
SORTS = ("name", "time", "waiting")

# Of a task's id so much is shown as tells it from others.
_ID = re.compile(r"\[([0-9a-f]{8})-[0-9a-f-]{27}\]")


@dataclass(frozen=True)
class Row:
    """Cells, and whether they are out of the ordinary."""

    cells: tuple[str, ...]
    odd: bool = False


@dataclass(frozen=True)
class Table:
    """
    What there is of one kind.

    Attributes:
        columns: Their titles; the first says what is shown, and how many there are.
        wide: Which columns are cut where there is no room; the others never are.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    wide: tuple[int, ...] = (0,)

    def without_empty_last(self) -> Table:
        """The same without its last column, if nothing stands in it."""
        if any(row.cells[-1] for row in self.rows):
            return self
        rows = tuple(replace(row, cells=row.cells[:-1]) for row in self.rows)
        last = len(self.columns) - 1
        return Table(self.columns[:-1], rows, tuple(at for at in self.wide if at != last))


@dataclass(frozen=True)
class Frame:
    """
    What is seen at one moment.

    Attributes:
        title: Whose status it is.
        problems: What did not answer.
        tables: What did.
        more: How many rows there is no room for.
        spaced: Whether there is room for an empty line above each table.
    """

    title: str
    problems: tuple[str, ...]
    tables: tuple[Table, ...]
    more: int = 0
    spaced: bool = False


def frame_of(status: Status, now: float, *, sort: str = SORTS[0], old: float = 0.0) -> Frame:
    """
    *status*, which was asked for *old* seconds before *now*, in seconds since the epoch.

    Args:
        status: What there is to show.
        now: When it is looked at.
        sort: One of *SORTS*: by name, by how long, or by how many wait.
        old: Counted off what runs out.
    """
    problems = [f"The broker does not answer: {status.workers_error}"] * bool(status.workers_error)
    problems += [status.arbiter_error] * bool(status.arbiter_error)
    tables: list[Table] = []
    for group in status.groups:
        of = f" of {group.name}" if len(status.groups) > 1 else ""
        tables += _tables(group, of, _View(now, sort, old))
        if group.arbiter is not None and group.arbiter.sits_out > old:
            left = duration(group.arbiter.sits_out - old)
            problems.append(f"The arbiter has restarted: for {left} more it grants no lock.")
    names = " ".join(group.name for group in status.groups)
    first, *others = status.addresses or ("no arbiter",)
    more = f" and {len(others)} more" if others else ""
    return Frame(f"{names}  at {first}{more}", tuple(dict.fromkeys(problems)), tuple(tables))


def cut(frame: Frame, height: int, skip: int = 0) -> Frame:
    """
    *frame* with no more lines of tables than *height*; if it has more, without its first *skip*.

    Each table takes a line for its titles and one a row; a table without a row that is shown is
    left out, unless it had none to begin with and there is room. One line is kept to say how many
    there are more.
    """
    rows = sum(len(table.rows) for table in frame.tables)
    needed = rows + len(frame.tables)
    if needed <= height:
        return replace(frame, spaced=needed + len(frame.tables) <= height)
    left, hidden, tables = height - 1, min(skip, rows), []
    to_skip = hidden
    for table in frame.tables:
        passed = min(to_skip, len(table.rows))
        to_skip -= passed
        some = table.rows[passed:][: max(0, left - 1)]
        hidden += len(table.rows) - passed - len(some)
        if left >= 1 and (some or (not table.rows and not skip)):
            tables.append(replace(table, rows=some))
            left -= 1 + len(some)
    return replace(frame, tables=tuple(tables), more=hidden)


@dataclass(frozen=True)
class _View:
    """From where it is looked at."""

    now: float
    sort: str
    old: float

    def left(self, seconds: float) -> str:
        """What is left of *seconds* that were when it was asked for."""
        return duration(max(0.0, seconds - self.old))


def _tables(group: Group, of: str, view: _View) -> Iterable[Table]:
    yield _workers(group, of, view)
    arbiter = group.arbiter
    if arbiter is None:
        return
    yield _locks(arbiter.locks, of, view)
    if arbiter.limits:
        yield _limits(arbiter.limits, of, view)
    if arbiter.debts:
        yield _debts(arbiter.debts, of, view)
    if group.beats or group.entries:
        yield _entries(group, of, view)


def _workers(group: Group, of: str, view: _View) -> Table:
    def row(replica: Replica) -> Row:
        if replica.index is None:
            said = ("nothing", "", replica.error)
        else:
            said = (
                f"{replica.index} of {replica.total}",
                view.left(replica.until),
                replica.error,
            )
        return Row((replica.worker, *said), odd=replica.index is None or bool(replica.error))

    replicas = _sorted(
        group.replicas,
        view,
        name=lambda each: (each.index is None, each.index or 0, each.worker),
        time=lambda each: each.until,
        waiting=None,
    )
    titles = (f"WORKERS{of} {len(group.replicas)}", "OWNS", "FOR", "TROUBLE")
    return Table(titles, tuple(map(row, replicas)), wide=(0, 3)).without_empty_last()


def _locks(locks: Iterable[Held], of: str, view: _View) -> Table:
    def row(held: Held) -> Row:
        age = age_of(held, view.now)
        cells = (
            held.key,
            short(held.holder) or "another client",
            "" if age is None else duration(age),
            "never" if held.remaining is None else view.left(held.remaining),
            str(held.waiting or ""),
            "" if held.stands else f"{held.at}/{held.of}",
        )
        return Row(cells, odd=held.remaining is None or not held.stands)

    shown = _sorted(
        locks,
        view,
        name=lambda held: held.key,
        time=lambda held: -(age_of(held, view.now) or 0.0),
        waiting=lambda held: -held.waiting,
    )
    titles = (f"LOCKS{of} {len(shown)}", "HOLDER", "HELD", "FREE IN", "WAIT", "ON")
    return Table(titles, tuple(map(row, shown)), wide=(0, 1)).without_empty_last()


def _limits(limits: Iterable[Limited], of: str, view: _View) -> Table:
    def row(limited: Limited) -> Row:
        standing = limited.standing
        behind = standing.behind - view.old
        cells = (
            limited.key,
            per_time(standing.rate),
            number(standing.burst),
            view.left(standing.behind) if behind > 0 else "",
            f"{standing.waiting:.0f}" if standing.waiting >= 1 else "",
        )
        return Row(cells)

    shown = _sorted(
        limits,
        view,
        name=lambda limited: limited.key,
        time=lambda limited: -limited.standing.behind,
        waiting=lambda limited: -limited.standing.waiting,
    )
    titles = (f"LIMITS{of} {len(shown)}", "RATE", "BURST", "BEHIND", "WAIT")
    return Table(titles, tuple(map(row, shown)))


def _debts(debts: Iterable[Owed], of: str, view: _View) -> Table:
    shown = _sorted(
        debts, view, name=lambda owed: owed.key, time=lambda owed: -owed.debt, waiting=None
    )
    rows = tuple(Row((owed.key, view.left(owed.debt / 1000.0))) for owed in shown)
    return Table((f"DEBTS{of} {len(shown)}", "OWES"), rows)


def _entries(group: Group, of: str, view: _View) -> Table:
    def row(entry: Entry) -> Row:
        late = entry.coming is not None and entry.coming < view.now
        cells = (
            entry.name,
            " ".join(entry.owners),
            str(entry.slots or ""),
            "" if entry.sent is None else duration(max(0.0, view.now - entry.sent)),
            _due(entry, view.now),
            str(entry.open or ""),
        )
        return Row(cells, odd=late or entry.dropped is not None)

    shown = _sorted(
        group.entries,
        view,
        name=lambda entry: entry.name,
        time=lambda entry: entry.coming or view.now,
        waiting=None,
    )
    titles = (
        f"ENTRIES{of} {len(shown)}, BEATS {group.beats or 0}",
        "BY",
        "SLOTS",
        "SENT",
        "NEXT",
        "OPEN",
    )
    return Table(titles, tuple(map(row, shown)), wide=(0, 1))


def _due(entry: Entry, now: float) -> str:
    if entry.coming is None:
        return ""
    left = entry.coming - now
    return duration(left) if left >= 0 else f"-{duration(-left)}"


def short(holder: str) -> str:
    """Who holds a key, without what a screen has no room for."""
    return _ID.sub(r"[\1]", holder).removeprefix("task ")


def _sorted(
    things: Iterable[T],
    view: _View,
    *,
    name: Callable[[T], Any],
    time: Callable[[T], Any],
    waiting: Callable[[T], Any] | None,
) -> list[T]:
    """*things* in the order that is wanted, those that are alike in it by name."""
    by = {"name": name, "time": time, "waiting": waiting or name}[view.sort]
    return sorted(sorted(things, key=name), key=by)

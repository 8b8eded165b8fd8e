"""A fleet's status as lines of plain text, at most 80 columns wide."""

from __future__ import annotations

import textwrap
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from celery_atomicity.integration.command.status import Entry, Group, Replica, Status
    from celery_atomicity.overview import Held, Limited, Owed

T = TypeVar("T")

WIDTH = 80

# Of anything, so many are shown; a terminal has no use for ten thousand locks.
MOST = 50

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def lines_of(status: Status, now: float) -> list[str]:
    """
    *status* for a person who reads it at *now*, in seconds since the epoch.

    Errors are not among the lines: they go elsewhere.
    """
    lines = _wrapped(f"arbiter  {' '.join(status.addresses)} (from {status.source})", under=9)
    for group in status.groups:
        lines += ["", *_wrapped(f"group    {group.name}", under=9), *_group(group, now)]
    return lines


def duration(seconds: float) -> str:
    """*seconds* as a person says them, in one unit."""
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    for unit, length, next_length in (("min", MINUTE, HOUR), ("h", HOUR, DAY)):
        if seconds < next_length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds / DAY:.1f} d"


def _group(group: Group, now: float) -> Iterator[str]:
    yield from _section("workers", group.replicas, _replica)
    arbiter = group.arbiter
    if arbiter is None:
        return
    silent = arbiter.registered - sum(one.index is not None for one in group.replicas)
    if silent > 0:
        yield f"  {silent} more registered in the last interval and did not answer here"
    if arbiter.sits_out:
        yield from _wrapped(
            f"  the arbiter has restarted: for {duration(arbiter.sits_out)} more it only renews "
            "leases and grants none",
            under=2,
        )
    yield from _section("locks held", arbiter.locks, lambda held: _held(held, now))
    if arbiter.limits:
        yield from _section("limits in use", arbiter.limits, _limited)
    if arbiter.debts:
        yield from _section("debts", arbiter.debts, _owed)
    if group.beats or group.entries:
        yield f"  beats: {group.beats or 0}"
        yield from _section("entries", group.entries, lambda entry: _entry(entry, now))


def _section(
    title: str, things: Sequence[T], describe: Callable[[T], tuple[str, str]]
) -> Iterator[str]:
    """How many there are, and of each its name and what there is to say of it."""
    yield f"  {title}: {len(things) or 'none'}"
    shown = [describe(thing) for thing in things[:MOST]]
    # Names stand in a column, unless one is too long for that.
    column = max((len(name) for name, _ in shown), default=0)
    for name, said in shown:
        if column <= WIDTH // 2 - 6 and len(said) <= WIDTH - column - 6:
            yield f"    {name:{column}}  {said}".rstrip()
        else:
            yield from _wrapped(f"    {name}", under=6)
            yield from _wrapped(f"      {said}", under=6)
    if len(things) > MOST:
        yield f"    and {len(things) - MOST} more; --json shows all"


def _replica(replica: Replica) -> tuple[str, str]:
    if replica.index is None:
        return replica.worker, f"owns nothing{': ' if replica.error else ''}{replica.error}"
    said = f"{replica.index} of {replica.total}, for {duration(replica.until)} unless renewed"
    return replica.worker, f"{said}; {replica.error}" if replica.error else said


def _held(held: Held, now: float) -> tuple[str, str]:
    said = [held.holder or "another client"]
    if held.since:
        said.append(
            f"for {duration(max(0.0, now - datetime.fromisoformat(held.since).timestamp()))}"
        )
    said.append(
        "never free"
        if held.remaining is None
        else f"free in {duration(held.remaining)} at the latest"
    )
    if held.waiting:
        said.append(f"{held.waiting} waiting")
    return held.key, ", ".join(said)


def _limited(limited: Limited) -> tuple[str, str]:
    standing = limited.standing
    said = f"{_number(standing.rate)}/s, burst {_number(standing.burst)}"
    if standing.waiting >= 1:
        said += f", {standing.waiting:.0f} waiting"
    return limited.key, f"{said}, next start in {duration(standing.behind)}"


def _owed(owed: Owed) -> tuple[str, str]:
    return owed.key, f"{duration(owed.debt / 1000.0)} ({_number(owed.debt)} ms)"


def _entry(entry: Entry, now: float) -> tuple[str, str]:
    parts = [f"{entry.slots} slots"] if entry.slots else []
    if entry.sent is None:
        parts.append("not sent yet")
    else:
        parts.append(f"last sent {duration(max(0.0, now - entry.sent))} ago by {entry.by}")
    if entry.open:
        parts.append(f"{entry.open} being sent")
    return entry.name, ", ".join(parts)


def _number(value: float) -> str:
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _wrapped(text: str, *, under: int) -> list[str]:
    """*text* in lines no wider than the terminal; further lines are indented by *under*."""
    indent = len(text) - len(text.lstrip(" "))
    return textwrap.wrap(
        text[indent:], WIDTH, initial_indent=" " * indent, subsequent_indent=" " * under
    )

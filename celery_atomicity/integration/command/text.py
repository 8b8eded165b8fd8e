"""What is known of a fleet as lines of plain text, at most 80 columns wide."""

from __future__ import annotations

import math
import re
import textwrap
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from celery_atomicity import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from celery_atomicity.custody import Custody, Held, Waiter
    from celery_atomicity.integration.command.entries import Entry
    from celery_atomicity.integration.command.status import Group, Replica, Status
    from celery_atomicity.overview import Account, Limited, Owed

T = TypeVar("T")

WIDTH = 80

# Of anything, so many are shown; a terminal has no use for ten thousand locks.
MOST = 50

# Seconds that are said to be more than none.
LEAST = 0.05

# A blank at which no line is broken, and where it stands in for another one.
HARD = "\N{NO-BREAK SPACE}"
_UNITS = re.compile(r"(?<=\d) (?=(?:s|ms|min|h|d)\b)")

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def lines_of(status: Status, now: float) -> list[str]:
    """
    *status* for a person who reads it at *now*, in seconds since the epoch.

    Errors are not among the lines: they go elsewhere.
    """
    lines = wrapped(f"arbiter  {' '.join(status.addresses)} (from {status.source})", under=9)
    for group in status.groups:
        lines += ["", *wrapped(f"group    {group.name}", under=9), *_group(group, now)]
    return lines


def account_lines(account: Account) -> list[str]:
    """What stands under a name, for a person."""
    lines = []
    if account.debt > 0:
        lines.append(f"{account.key}: owes {_milliseconds(account.debt)}")
    for limited in account.limits[:MOST]:
        key, said = _limited(limited)
        lines.append(f"{key}: {said}")
    if len(account.limits) > MOST:
        lines.append(f"and {len(account.limits) - MOST} more limits; --json shows all")
    return lines or [f"{account.key}: owes nothing, and no limit of that name was used lately"]


def lock_lines(locks: Sequence[Held], now: float) -> list[str]:
    """What is held, for a person who reads it at *now*."""
    return [line[2:] for line in _section("locks held", locks, lambda held: _held(held, now))]


def custody_lines(custody: Custody, now: float) -> list[str]:
    """What there is to know of one key, for a person who reads it at *now*."""
    lines = [] if custody.held else [f"{custody.key}: free"]
    for held in custody.held:
        since = held.since[:19].replace("T", " ") + " UTC, " if held.since else ""
        age = age_of(held, now)
        facts = [
            ("holder", held.holder or "another client, which does not say who it is"),
            ("since", "not said" if age is None else f"{since}for {duration(age)}"),
            (
                "free",
                "never, unless its holder lets it go"
                if held.remaining is None
                else f"in {duration(held.remaining)} at the latest, unless it is renewed",
            ),
            ("fence", _fence(custody)),
        ]
        if held.of > 1:
            short = "" if held.stands else ", no majority: being taken, let go, or left behind"
            facts.append(("held on", f"{held.at} of {held.of} addresses{short}"))
        lines.append(f"{custody.key}: held")
        for name, said in facts:
            lines += wrapped(f"  {name:8} {said}", under=11)
    return lines + _line(custody)


def _fence(custody: Custody) -> str:
    if not custody.last_fence:
        return "not known"
    return f"{custody.last_fence} or less: the last that the group was given"


def _line(custody: Custody) -> list[str]:
    if custody.waiters is None:
        return ["  waiting  not known: the first address, which knows, does not answer"]
    if not custody.waiters:
        return ["  waiting  nobody"]
    lines = [
        f"  {'waiting' if place == 1 else '':8} {place}. {_waiter(waiter)}"
        for place, waiter in enumerate(custody.waiters[:MOST], 1)
    ]
    if len(custody.waiters) > MOST:
        lines.append(f"           and {len(custody.waiters) - MOST} more; --json shows all")
    return lines


def _waiter(waiter: Waiter) -> str:
    said = f"for {duration(waiter.waiting)}"
    if waiter.process:
        said += f", process {waiter.process}"
    if waiter.passed_over:
        return f"{said}, gone: it is passed over"
    return said


def age_of(held: Held, now: float) -> float | None:
    """Seconds for which it has been held at *now*; None: not known."""
    if not held.since:
        return None
    try:
        return max(0.0, now - datetime.fromisoformat(held.since).timestamp())
    except ValueError:  # another client's, that looks like ours
        return None


def printable(text: str) -> str:
    """*text*, in which what would move the cursor or change colours is a ``?``."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def per_time(per_second: float) -> str:
    """A rate as a person writes it: per the shortest time in which it is whole, else above one."""
    units = (("s", 1.0), ("m", MINUTE), ("h", HOUR), ("d", DAY))
    even = (
        f"{whole:,}/{unit}"
        for unit, length in units
        if (whole := round(per_second * length))
        and math.isclose(whole, per_second * length, rel_tol=1e-9)
    )
    parted = (
        f"{number(per_second * length)}/{unit}"
        for unit, length in units
        if per_second * length >= 1
    )
    return next(even, None) or next(parted, f"{per_second * DAY:g}/d")


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
        yield from wrapped(
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
            yield from wrapped(f"    {name}", under=6)
            yield from wrapped(f"      {said}", under=6)
    if len(things) > MOST:
        yield f"    and {len(things) - MOST} more; --json shows all"


def _replica(replica: Replica) -> tuple[str, str]:
    if replica.index is None:
        return replica.worker, f"owns nothing{': ' if replica.error else ''}{replica.error}"
    said = f"{replica.index} of {replica.total}, for {duration(replica.until)} unless renewed"
    return replica.worker, f"{said}; {replica.error}" if replica.error else said


def _held(held: Held, now: float) -> tuple[str, str]:
    said = [held.holder or "another client"]
    if (age := age_of(held, now)) is not None:
        said.append(f"for {duration(age)}")
    said.append(
        "never free"
        if held.remaining is None
        else f"free in {duration(held.remaining)} at the latest"
    )
    if held.waiting:
        said.append(f"{held.waiting} waiting")
    if not held.stands:
        said.append(f"on {held.at} of {held.of} addresses only")
    return held.key, ", ".join(said)


def _limited(limited: Limited) -> tuple[str, str]:
    standing = limited.standing
    said = [per_time(standing.rate)]
    if standing.burst != 1:
        said.append(f"burst {number(standing.burst)}")
    behind = standing.behind >= LEAST
    said.append(f"{duration(standing.behind)} behind" if behind else "room now")
    if standing.waiting >= 1:
        said.append(f"{standing.waiting:.0f} waiting")
    return limited.key, ", ".join(said)


def _owed(owed: Owed) -> tuple[str, str]:
    return owed.key, _milliseconds(owed.debt)


def _milliseconds(debt: float) -> str:
    return f"{duration(debt / 1000.0)} ({number(debt)} ms)"


def _entry(entry: Entry, now: float) -> tuple[str, str]:
    parts = [f"{entry.slots} slots"] if entry.slots else []
    if entry.owners:
        parts.append(f"owned by {_owners(entry)}")
    if entry.sent is None:
        parts.append("not sent yet")
    else:
        parts.append(f"last sent {duration(max(0.0, now - entry.sent))} ago by {entry.by}")
    if entry.coming is not None:
        left = entry.coming - now
        parts.append(f"next in {duration(left)}" if left > 0 else f"due for {duration(-left)}")
    if entry.open:
        parts.append(f"{entry.open} being sent")
    if entry.dropped is not None:
        parts.append(f"skipped as too late what was due from {clock.utc(entry.dropped)} on")
    return entry.name, ", ".join(parts)


def _owners(entry: Entry) -> str:
    if len(entry.owners) == 1:
        return next(iter(entry.owners))
    return " and ".join(f"{name} ({count})" for name, count in entry.owners.items())


def number(value: float) -> str:
    """*value* with as many places as it needs, and three at most."""
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def wrapped(text: str, *, under: int) -> list[str]:
    """
    *text* in lines no wider than the terminal; further lines are indented by *under*.

    No number is parted from its unit.
    """
    indent = len(text) - len(text.lstrip(" "))
    kept = _UNITS.sub(HARD, text[indent:])
    lines = textwrap.wrap(kept, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * under)
    return [line.replace(HARD, " ") for line in lines]

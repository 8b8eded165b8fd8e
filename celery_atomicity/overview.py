"""
What stands on the arbiter for a group: for a person who wants to know, never for a decision.

Read in passing: the parts of it were true one after the other. Locks are looked at on every
address, all else on the first, which alone has it. Nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from celery_atomicity import custody, keys
from celery_atomicity.connection import makes_sense
from celery_atomicity.errors import Unavailable
from celery_atomicity.primitives.rates import FIELDS, Standing, standing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from celery_atomicity.connection import Clients
    from celery_atomicity.custody import Held


@dataclass(frozen=True, slots=True)
class Limited:
    """A limit that was used lately: its key, and where it stands."""

    key: str
    standing: Standing


@dataclass(frozen=True, slots=True)
class Owed:
    """A debt: its key, and how many milliseconds it has left to drain."""

    key: str
    debt: float


@dataclass(frozen=True, slots=True)
class Overview:
    """
    What stands on the arbiter for a group.

    Attributes:
        registered: Replicas that registered in the last whole interval.
        sits_out: Seconds for which a restarted server grants no lease yet.
    """

    group: str
    registered: int
    sits_out: float
    locks: tuple[Held, ...]
    limits: tuple[Limited, ...]
    debts: tuple[Owed, ...]


@dataclass(frozen=True, slots=True)
class Account:
    """
    What stands under one name of a group.

    Attributes:
        debt: Milliseconds that the meter of that key has left to drain.
        limits: Those that were used lately, of that name, of that scope, or of that key in any
            scope; the one that is furthest behind first.
    """

    group: str
    key: str
    debt: float
    limits: tuple[Limited, ...]


@makes_sense
def look(clients: Clients, group: str) -> Overview:
    """
    What stands on the arbiter for *group*.

    Blocks for some round trips, and one for every thousand keys of the database.

    Raises:
        NotConfigured: There is no arbiter.
        Unavailable: It did not answer.
    """
    prefix = f"atom:{group}:"
    each = custody.scan_each(clients, prefix)
    if isinstance(each[0], Unavailable):
        raise each[0]
    found = _sorted(each[0], prefix)
    return Overview(
        group,
        registered=registered(clients, group),
        sits_out=_sits_out(clients),
        locks=tuple(custody.locks(clients, group, [_locks(names, prefix) for names in each])),
        limits=tuple(_limits(clients, prefix, found["rate"])),
        debts=tuple(_debts(clients, prefix, found["meter"])),
    )


@makes_sense
def look_up(clients: Clients, group: str, key: str) -> Account:
    """
    What stands under *key* in *group*: its debt, and the limits that it is a name of.

    Blocks for some round trips, and one for every thousand keys of the database; raises as *look*.
    """
    prefix = f"atom:{group}:"
    rates = f"{prefix}rate:"
    # A limit is called scope, scope:key, or scope#2:key where a task has two of one scope.
    [found] = custody.scan_each(clients, rates, first_only=True)
    if isinstance(found, Unavailable):
        raise found
    names = [
        name
        for name in (each.removeprefix(rates) for each in found)
        if name == keys.meant(key)
        or name.startswith((f"{key}:", f"{key}#"))
        or name.endswith(f":{key}")
    ]
    limits = _limits(clients, prefix, names)
    return Account(
        group,
        key,
        debt=sum(owed.debt for owed in _debts(clients, prefix, [keys.meant(key)])),
        limits=tuple(sorted(limits, key=lambda each: (-each.standing.behind, each.key))),
    )


@makes_sense
def registered(clients: Clients, group: str) -> int:
    """
    How many replicas of *group* registered in the last whole interval.

    Raises:
        NotConfigured: There is no arbiter.
        Unavailable: It did not answer.
    """
    closed = int(_now(clients) * 1000 // round(clients.settings.interval * 1000)) - 1
    count = clients.command("GET", f"{keys.slots_base(group)}:{closed}")
    return int(cast("bytes", count or b"0"))


def _sits_out(clients: Clients) -> float:
    since = clients.command("HGET", keys.MARKER, "since")
    if since is None:
        return 0.0
    return max(0.0, clients.settings.grace - (_now(clients) - float(cast("bytes", since)) / 1000.0))


def _now(clients: Clients) -> float:
    """The server's time, in seconds."""
    seconds, micros = cast("list[bytes]", clients.command("TIME"))
    return int(seconds) + int(micros) / 1_000_000


def _sorted(names: list[str], prefix: str) -> dict[str, list[str]]:
    """*names* by what they are for, without what they have in common."""
    found: dict[str, list[str]] = {"lock": [], "rate": [], "meter": []}
    for name in names:
        kind, _, key = name.removeprefix(prefix).partition(":")
        if kind in found:
            found[kind].append(key)
    return found


def _locks(names: list[str] | Unavailable, prefix: str) -> list[str] | Unavailable:
    return names if isinstance(names, Unavailable) else _sorted(names, prefix)["lock"]


def _limits(clients: Clients, prefix: str, names: list[str]) -> Iterator[Limited]:
    now = _now(clients)
    asked = [("HMGET", f"{prefix}rate:{name}", *FIELDS) for name in names]
    for name, fields in zip(names, _answers(clients, asked), strict=True):
        if (found := standing(fields, now * 1000.0)) is not None:
            yield Limited(name, found)


def _debts(clients: Clients, prefix: str, names: list[str]) -> Iterator[Owed]:
    now = _now(clients)
    asked = [("HMGET", f"{prefix}meter:{name}", "d", "a") for name in names]
    for name, fields in zip(names, _answers(clients, asked), strict=True):
        try:
            debt, at = map(float, cast("list[bytes]", fields))
        except (TypeError, ValueError):  # gone since the scan, or nothing that makes sense
            continue
        debt -= max(0.0, now * 1000.0 - at)
        if debt > 0:
            yield Owed(name, debt)


def _answers(clients: Clients, commands: Sequence[Sequence[str]]) -> list[object]:
    answers: list[object] = []
    for start in range(0, len(commands), custody.CHUNK):
        answers += clients.command_many(commands[start : start + custody.CHUNK])
    return answers

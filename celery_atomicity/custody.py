"""
Who holds which keys of a group, at every address: for a person who wants to know.

A lock is what a majority of the addresses says, so all of them are asked. Who stands in line is
known to the first alone. Nothing is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from celery_atomicity import keys
from celery_atomicity.connection import makes_sense
from celery_atomicity.errors import Unavailable
from celery_atomicity.primitives import quorum
from celery_atomicity.primitives.holding import LIVE_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from celery_atomicity.connection import Clients

# Keys that a server looks at in one step of a scan, and commands in one round trip.
STEP, CHUNK = 1000, 500

# What a lock's value of ours looks like: the lease's id, who holds it, and since when.
_VALUE = re.compile(
    r"(?P<lease>[0-9a-f]{32})\.\d+ (?P<holder>.*), since (?P<since>\S+)\Z", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Held:
    """
    A key that is taken.

    Attributes:
        key: Its name, as far as it is readable.
        holder: Who holds it, in the holder's words; empty: it does not say.
        since: When it was asked for, ISO 8601 on the holder's clock; empty: it does not say.
        remaining: Seconds until it is free unless it is renewed; None: it never is.
        waiting: How many stand in line for it.
        at: How many addresses say so.
        of: How many addresses there are.
    """

    key: str
    holder: str
    since: str
    remaining: float | None
    waiting: int
    at: int = 1
    of: int = 1

    @property
    def stands(self) -> bool:
        """Whether a majority says so; else it is being taken or let go, or was left behind."""
        return self.at >= quorum.majority(self.of)


@dataclass(frozen=True, slots=True)
class Waiter:
    """
    One who stands in line for a key.

    Attributes:
        process: What distinguishes its process from others that wait; empty: it has left no sign.
        waiting: Seconds since it came.
        seen: Seconds since it last showed up; None: it has not.
        passed_over: It was not seen for so long that the next one is let in before it.
    """

    process: str
    waiting: float
    seen: float | None
    passed_over: bool


@dataclass(frozen=True, slots=True)
class Custody:
    """
    What there is to know of one key.

    Attributes:
        held: By whom; more than one where some addresses are of another opinion, the one with the
            most of them first.
        waiters: Who stands in line, in order; None: the first address, which knows, is silent.
        last_fence: The last fence that the group was given; the holder's is not larger. 0: none.
        silent: What is wrong with each address that did not answer.
        values: What stands under the key at each address; None: nothing, or the address is silent.
    """

    group: str
    key: str
    held: tuple[Held, ...]
    waiters: tuple[Waiter, ...] | None
    last_fence: int
    silent: tuple[str, ...]
    values: tuple[bytes | None, ...] = field(repr=False)


@makes_sense
def scan_each(
    clients: Clients, prefix: str, *, first_only: bool = False
) -> list[list[str] | Unavailable]:
    """
    The names of the keys that begin with *prefix*, at each address or the first; each once, sorted.

    Blocks for one round trip for every thousand keys of the largest database. An address that did
    not answer has the reason instead.

    Raises:
        NotConfigured: There is no arbiter.
    """
    pattern = re.sub(r"([*?\[\]\\])", r"\\\1", prefix) + "*"
    count = 1 if first_only else clients.count
    cursors: dict[int, bytes] = dict.fromkeys(range(max(1, count)), b"0")
    found: list[set[str]] = [set() for _ in cursors]
    silent: dict[int, Unavailable] = {}
    been: set[tuple[int, bytes]] = set()
    while cursors:
        asked = [
            [("SCAN", cursors[index], "MATCH", pattern, "COUNT", STEP)] if index in cursors else []
            for index in range(max(1, clients.count))
        ]
        answers = clients.command_each(asked)
        for index in list(cursors):
            answer = answers[index]
            if not isinstance(answer, Unavailable) and isinstance(answer[0], Exception):
                answer = clients.refused(index, answer[0])
            if isinstance(answer, Unavailable):
                silent[index] = answer
                del cursors[index]
                continue
            cursors[index], names = cast("tuple[bytes, list[bytes]]", answer[0])
            found[index].update(map(text, names))
            if cursors[index] == b"0":
                del cursors[index]
            elif (index, cursors[index]) in been:
                raise ValueError("a scan that goes round in circles")
            else:
                been.add((index, cursors[index]))
    return [silent.get(index) or sorted(names) for index, names in enumerate(found)]


@makes_sense
def locks(clients: Clients, group: str, names: Sequence[Iterable[str] | Unavailable]) -> list[Held]:
    """
    Those that are held of the locks whose names *scan_each* has found at each address.

    Args:
        clients: Whom to ask.
        group: Whose locks.
        names: The names of locks at each address, without what all have in common.
    """
    prefix = f"atom:{group}:"
    each = [[] if isinstance(some, Unavailable) else list(some) for some in names]
    every = sorted({name for some in each for name in some})
    found: dict[str, list[Held]] = {}
    for start in range(0, len(every), CHUNK):
        chunk = every[start : start + CHUNK]
        asked = [
            command
            for name in chunk
            for command in (
                ("GET", f"{prefix}lock:{name}"),
                ("PTTL", f"{prefix}lock:{name}"),
                ("ZCARD", f"{prefix}line:{name}"),
            )
        ]
        answers = clients.command_each([asked] * clients.count)
        standing = _standing(clients, prefix, chunk, answers[0])
        for place, name in enumerate(chunk):
            said = [
                None if isinstance(answer, Unavailable) else answer[3 * place : 3 * place + 3]
                for answer in answers
            ]
            pairs = [None if one is None else (one[0], one[1]) for one in said]
            found[name] = _held(name, pairs, standing.get(name, 0))
    return [held for name in every for held in found[name]]


@makes_sense
def look_up(clients: Clients, group: str, key: str) -> Custody:
    """
    What there is to know of *key*, as its holder named it or as it was shown.

    Blocks for two round trips.

    Raises:
        NotConfigured: There is no arbiter.
        Unavailable: No address answered.
    """
    lock, line, seen = names_of(group, key)
    asked: list[Sequence[str | int]] = [("GET", lock), ("PTTL", lock)]
    in_line: list[Sequence[str | int]] = [
        ("ZRANGE", line, 0, -1, "WITHSCORES"),
        ("HGETALL", seen),
        ("TIME",),
    ]
    fence = ("GET", keys.fence_key(group))
    count = max(1, clients.count)
    answers = clients.command_each([[*asked, fence]] * count)
    if all(isinstance(answer, Unavailable) for answer in answers):
        raise cast("Unavailable", answers[0])
    [line_said, *_] = clients.command_each([in_line, *[[]] * (count - 1)])
    said = [None if isinstance(one, Unavailable) else (one[0], one[1]) for one in answers]
    holders = {lease_of(one[0]) for one in said if one is not None and isinstance(one[0], bytes)}
    waiters = None if isinstance(line_said, Unavailable) else tuple(_waiters(line_said, holders))
    fences = [one[2] for one in answers if not isinstance(one, Unavailable)]
    return Custody(
        group,
        key,
        held=tuple(_held(key, said, len(waiters or ()))),
        waiters=waiters,
        last_fence=max((int(one) for one in fences if isinstance(one, bytes)), default=0),
        silent=tuple(str(one) for one in answers if isinstance(one, Unavailable)),
        values=tuple(
            one[0] if one is not None and isinstance(one[0], bytes) else None for one in said
        ),
    )


def names_of(group: str, key: str) -> tuple[str, str, str]:
    """Under which names a key, its line and the line's last-seen times stand."""
    part = keys.meant(key)
    line = f"atom:{group}:line:{part}"
    return f"atom:{group}:lock:{part}", line, f"{line}:seen"


def lease_of(value: bytes) -> str:
    """The id of the lease that *value* names; all of it, where another client has put it there."""
    said = _VALUE.match(text(value))
    return said["lease"] if said else value.decode("utf-8", "surrogateescape")


def text(data: bytes) -> str:
    """*data* for a person."""
    return data.decode("utf-8", "backslashreplace")


def _standing(
    clients: Clients, prefix: str, names: Sequence[str], answer: list[object] | Unavailable
) -> dict[str, int]:
    """How many wait for each of *names* of which the first address said that some do."""
    if isinstance(answer, Unavailable):
        return {}
    lengths = {
        name: (length, value)
        for name, value, length in zip(names, answer[::3], answer[2::3], strict=True)
        if isinstance(length, int) and length
    }
    # Who holds a key keeps its place in the line, and does not wait.
    asked = [
        ("ZSCORE", f"{prefix}line:{name}", lease_of(value) if isinstance(value, bytes) else "")
        for name, (_, value) in lengths.items()
    ]
    [places, *_] = clients.command_each([asked, *[[]] * (clients.count - 1)])
    if isinstance(places, Unavailable):
        return {}
    return {
        name: length - isinstance(place, bytes)
        for (name, (length, _)), place in zip(lengths.items(), places, strict=True)
    }


def _held(name: str, said: Sequence[tuple[object, object] | None], waiting: int) -> list[Held]:
    """Who holds *name*, out of its value and its time to live at each address."""
    votes: dict[str, list[tuple[bytes, object]]] = {}
    for one in said:
        # Nothing: let go since the scan. Something else than text: no lock at all.
        if one is not None and isinstance(one[0], bytes):
            votes.setdefault(lease_of(one[0]), []).append((one[0], one[1]))
    return [
        _one(name, theirs, waiting, len(said))
        for theirs in sorted(votes.values(), key=len, reverse=True)
    ]


def _one(name: str, votes: Sequence[tuple[bytes, object]], waiting: int, of: int) -> Held:
    said = _VALUE.match(text(votes[0][0]))
    left = [ttl for _, ttl in votes if isinstance(ttl, int) and ttl != -1]
    return Held(
        name,
        holder=said["holder"] if said else "",
        since=said["since"] if said else "",
        # It is free as soon as it has no majority any more.
        remaining=_from_the_end(left, of) if len(left) == len(votes) else None,
        waiting=waiting,
        at=len(votes),
        of=of,
    )


def _from_the_end(left: list[int], of: int) -> float:
    needed = min(quorum.majority(of), len(left))
    return max(0, sorted(left, reverse=True)[needed - 1]) / 1000.0


def _waiters(said: Sequence[object], holders: set[str]) -> Iterable[Waiter]:
    """Who stands in line; a holder keeps its place there, but does not wait."""
    places, seen, time = said
    if not isinstance(places, list) or not isinstance(seen, list) or not isinstance(time, list):
        return
    now_ms = int(time[0]) * 1000 + int(time[1]) / 1000
    signs: Mapping[bytes, bytes] = dict(zip(seen[::2], seen[1::2], strict=True))
    for lease, came_us in zip(places[::2], places[1::2], strict=True):
        if text(lease) in holders:
            continue
        at = signs.get(lease)
        ring = text(signs.get(lease + b":ring", b""))
        absent = None if at is None else max(0.0, now_ms - float(at)) / 1000.0
        yield Waiter(
            process=ring.rpartition(":")[2],
            waiting=max(0.0, now_ms - float(came_us) / 1000.0) / 1000.0,
            seen=absent,
            passed_over=absent is None or absent * 1000.0 > LIVE_MS,
        )

"""
The shared record of what beat has sent: the last run of every entry, and of every slot of one.

A tick is begun (`claim`) for the last run that it follows from, published, and recorded
(`settle`). Between the two the record says that it is open, and by which copy of the message.
Whoever comes next and finds it open begins it again: the message is sent a second time, with the
same task id and as another copy, and a key of that tick's own lets workers run one of the two.

    atom:<group>:beat                 sorted set: entries, by when a beat last asked for them
    atom:<group>:beat:entry:<entry>   hash: last:<slot>, open:<slot>, owner:<slot>, and for people
                                      who sent it last and when, what is next and was dropped
    atom:<group>:beat:copy:<tick>     string: the copy that runs; there only while two may exist

All of them expire, so nothing has to notice that an entry is gone. Not thread-safe; one beat, one
ledger. Every call is one round trip (a load one for each few thousand units) and raises
`Unavailable` if the arbiter cannot be asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from celery_atomicity import keys
from celery_atomicity.connection import Script, makes_sense
from celery_atomicity.integration.beat.due import Unit, tick_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from celery_atomicity.connection import Clients

# How long a record outlives the last beat that asked for it: beyond the longest holiday.
RECORD_LIFE = 40 * 86_400_000  # ms

# How long it is remembered that a tick has two copies: beyond any queue's backlog.
DOUBT_LIFE = 7 * 86_400_000  # ms

# Units a script, so that none holds the server for more than a few ms; and scripts a round trip.
CHUNK = 500
CHUNKS = 10

_LOAD, _CLAIM, _SETTLE = Script("beat_load"), Script("beat_claim"), Script("beat_settle")


@dataclass(frozen=True, slots=True)
class Claim:
    """A tick that is to be begun: the *unit*, the last run it follows from, and our copy of it."""

    unit: Unit
    last: int
    copy: str


@dataclass(frozen=True, slots=True)
class Begun:
    """A tick that we began; it is *alone* if no other copy of it can exist."""

    claim: Claim
    alone: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What became of a tick.

    Attributes:
        begun: The tick.
        becomes: The new last run; None: nothing was tried, and it is given back.
        dropped: When the first of those was due that were given up; None: none.
        coming: When it is due next, for a person to read; None: not known.
    """

    begun: Begun
    becomes: int | None
    dropped: int | None = None
    coming: int | None = None


@dataclass(frozen=True)
class Record:
    """
    What the ledger holds of an entry; instants in microseconds since the epoch.

    Attributes:
        entry: Its name.
        last: The last run, by slot; the key is None where it is not partitioned.
        open: Slots with a tick that was begun and is not recorded.
        by: Who recorded last, empty if nobody has.
        at: When that was.
        dropped: When the first of those was due that were last given up as too old.
        dropped_at: When they were given up.
        coming: When it is due next; None: not known.
        owners: Who took it up last, by slot; it may have ended since.
    """

    entry: str
    last: Mapping[int | None, int]
    open: tuple[int | None, ...] = ()
    by: str = ""
    at: int | None = None
    dropped: int | None = None
    dropped_at: int | None = None
    coming: int | None = None
    owners: Mapping[int | None, str] = field(default_factory=dict)


class Ledger:
    """
    The ledger of *group*.

    Args:
        clients: Where it is kept: on the first address.
        group: The app's own group.
        name: What the records call us.
    """

    def __init__(self, clients: Clients, group: str, name: str = "") -> None:
        self.clients = clients
        self.group = group
        self.name = name

    def load(self, starts: Mapping[Unit, int]) -> dict[Unit, int]:
        """The last run of each unit; where there is none yet, it is what *starts* says."""
        found: dict[Unit, int] = {}
        for units in _chunked(list(starts), CHUNK * CHUNKS):
            chunks = list(_chunked(units, CHUNK))
            replies = self.clients.ask_many([self._loading(chunk, starts) for chunk in chunks])
            for chunk, reply in zip(chunks, replies, strict=True):
                found.update(zip(chunk, self._instants(reply.value, len(chunk)), strict=True))
        return found

    def claim(self, claims: Sequence[Claim]) -> list[Begun | None]:
        """Begin to send; None for each whose last run is no longer the one that it follows from."""
        arguments: list[str | int] = [RECORD_LIFE, DOUBT_LIFE]
        for claim in claims:
            arguments += (claim.unit.field, str(claim.last), claim.copy)
        reply = self.clients.ask(_CLAIM, self._keys(claims), arguments)
        return [
            Begun(claim, alone=answer == 1) if answer else None
            for claim, answer in zip(claims, self._answers(reply.value, len(claims)), strict=True)
        ]

    def settle(self, outcomes: Sequence[Outcome], now: int) -> list[bool]:
        """Record; False for each that somebody else has begun again, or that is not known."""
        arguments: list[str | int] = [RECORD_LIFE, self.name, str(now)]
        for outcome in outcomes:
            arguments += (
                outcome.begun.claim.unit.field,
                outcome.begun.claim.copy,
                _text(outcome.becomes),
                "1" if outcome.begun.alone else "",
                _text(outcome.dropped),
                _text(outcome.coming),
            )
        keys_ = self._keys([outcome.begun.claim for outcome in outcomes])
        reply = self.clients.ask(_SETTLE, keys_, arguments)
        return [answer == 1 for answer in self._answers(reply.value, len(outcomes))]

    @makes_sense
    def entries(self) -> list[str]:
        """The names of the entries that beats have asked for, in order."""
        names = self.clients.command("ZRANGE", keys.beat_key(self.group), 0, -1)
        return sorted(_decoded(name) for name in self._answers(names))

    @makes_sense
    def record(self, entry: str) -> Record | None:
        """What is recorded of *entry*; None if nothing is."""
        answer = self._answers(self.clients.command("HGETALL", self._record(Unit(entry))))
        texts = [_decoded(text) for text in answer]
        return _parse(entry, dict(zip(texts[::2], texts[1::2], strict=True))) if texts else None

    def _answers(self, value: object, count: int | None = None) -> list[Any]:
        """*value* as the list it is, of *count* items if that is known."""
        if isinstance(value, list) and count in (None, len(value)):
            return value
        raise self.clients.unexpected(value)

    def _instants(self, value: object, count: int) -> list[int]:
        try:
            return [int(answer) for answer in self._answers(value, count)]
        except (TypeError, ValueError):
            raise self.clients.unexpected(value) from None

    def _loading(
        self, units: Sequence[Unit], starts: Mapping[Unit, int]
    ) -> tuple[Script, list[str], list[str | int]]:
        arguments: list[str | int] = [RECORD_LIFE, self.name]
        for unit in units:
            arguments += (unit.entry, unit.field, str(starts[unit]))
        return _LOAD, [keys.beat_key(self.group), *map(self._record, units)], arguments

    def _record(self, unit: Unit) -> str:
        return record_key(self.group, unit.entry)

    def _keys(self, claims: Sequence[Claim]) -> list[str]:
        return list(
            chain.from_iterable(
                (
                    self._record(claim.unit),
                    copy_key(self.group, tick_id(self.group, claim.unit, claim.last)),
                )
                for claim in claims
            )
        )


def record_key(group: str, entry: str) -> str:
    """The hash that records *entry*."""
    return keys.beat_key(group, "entry", entry)


def copy_key(group: str, tick: str) -> str:
    """The string that says which copy of *tick* runs."""
    return keys.beat_key(group, "copy", tick)


def _parse(entry: str, fields: dict[str, str]) -> Record:
    def number(name: str) -> int | None:
        return int(fields[name]) if fields.get(name) else None

    def slots(kind: str) -> Iterator[tuple[int | None, str]]:
        for name, value in fields.items():
            if name.startswith(f"{kind}:"):
                slot = name.partition(":")[2]
                yield int(slot) if slot else None, value

    return Record(
        entry,
        last={slot: int(value) for slot, value in slots("last")},
        open=tuple(slot for slot, _ in slots("open")),
        by=fields.get("by", ""),
        at=number("at"),
        dropped=number("dropped"),
        dropped_at=number("dropped_at"),
        coming=number("next"),
        owners={slot: value for slot, value in slots("owner") if value},
    )


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def _decoded(data: bytes) -> str:
    # As it was encoded: an entry may be called anything.
    return data.decode("utf-8", "surrogatepass")


def _chunked(units: Sequence[Unit], size: int) -> Iterator[Sequence[Unit]]:
    for start in range(0, len(units), size):
        yield units[start : start + size]

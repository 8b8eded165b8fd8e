"""What was written down, put in order."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

# How long after its end a fault may still be felt: connecting again, sitting out a restart.
AFTERMATH = 5.0  # seconds


@dataclass(frozen=True)
class Violation:
    """A guarantee that did not hold: which, when, and what shows it."""

    guarantee: str
    at: float
    text: str
    evidence: tuple = ()


@dataclass
class Lease:
    """One lease as its holder saw it; *first* and *last* are when it was seen to live."""

    id: str
    by: str
    fence: int
    keys: tuple
    asked: float | None
    given: float
    first: float | None = None
    last: float | None = None
    lost: float | None = None
    refused: list = field(default_factory=list)  # (when, key, whether it was lost by then)

    def __str__(self):
        return f"fence {self.fence} of {self.by} on {'+'.join(self.keys)}"


class Span(NamedTuple):
    """From when to when a replica answered the slots of number *i* of *n*."""

    first: float
    last: float
    i: int
    n: int
    by: str
    pid: int = 0


@dataclass
class Tick:
    """One tick: when it was due (wall clock), when it was sent last, and which copies ran when."""

    id: str
    entry: str
    slot: int | None
    due: float
    sent: float = 0.0
    seen: list = field(default_factory=list)  # when it was sent or ran
    copies: set = field(default_factory=set)
    runs: list = field(default_factory=list)  # (when, copy, by)


@dataclass
class Fault:
    """
    Something that was broken on purpose.

    Attributes:
        server: The number of the arbiter that it concerns; None: none.
        lost: When that arbiter had lost its data; None: it did not.
    """

    number: int
    kind: str
    target: str
    begin: float
    end: float
    server: int | None = None
    lost: float | None = None


class Evidence:
    """
    Args:
        records: What the journals hold.
        writes: What the guarded table took, in order: (key, fence, at, who).
    """

    def __init__(self, records, writes=()):
        self.records = sorted(records, key=lambda record: record["t"])
        self.writes = list(writes)
        self.counts = Counter(record["what"] for record in self.records)
        self.plan = {}
        self.leases = {}
        self.ticks = {}
        self.faults = {}
        self.starts = defaultdict(list)
        self.pieces = []
        self.stalls = []
        self.calms = []
        self.looks = []
        self.ended = []
        for record in self.records:
            take = getattr(self, f"_{record['what']}", None)
            if take is not None:
                take(record)
        self.end = self.records[-1]["t"] if self.records else 0.0
        self.begin = self.records[0]["t"] if self.records else 0.0
        for times in self.starts.values():
            times.sort()
        self.spans = list(_joined(self.pieces))

    # -- what each record adds ------------------------------------------------------------------

    def _plan(self, record):
        self.plan = record

    def _given(self, record):
        self.leases[record["lease"]] = Lease(
            record["lease"],
            record["by"],
            record["fence"],
            tuple(record["keys"]),
            record["asked"],
            record["t"],
        )

    def _lives(self, record):
        lease = self.leases[record["lease"]]
        lease.first = record["at"] if lease.first is None else min(lease.first, record["at"])
        lease.last = record["at"] if lease.last is None else max(lease.last, record["at"])

    def _lost(self, record):
        self.leases[record["lease"]].lost = record["t"]

    def _refused(self, record):
        found = (record["t"], record["key"], record["lost"])
        self.leases[record["lease"]].refused.append(found)

    def _start(self, record):
        self.starts[record["limit"]].append(record["t"])

    def _owns(self, record):
        self.pieces.append(
            Span(
                record["first"],
                record["last"],
                record["i"],
                record["n"],
                record["by"],
                record["pid"],
            )
        )

    def _stall(self, record):
        self.stalls.append((record["since"], record["until"]))

    def _sent(self, record):
        tick = self._tick(record)
        tick.sent = max(tick.sent, record["sent"])
        tick.seen.append(record["t"])
        tick.copies.add(record["copy"])

    def _ran(self, record):
        self._sent(record)
        self._tick(record).runs.append((record["t"], record["copy"], record["by"]))

    def _tick(self, record):
        if record["id"] not in self.ticks:
            due = datetime.fromisoformat(record["due"]).timestamp()
            self.ticks[record["id"]] = Tick(record["id"], record["entry"], record["slot"], due)
        return self.ticks[record["id"]]

    def _fault(self, record):
        self.faults[record["n"]] = Fault(
            record["n"],
            record["kind"],
            record["target"],
            record["t"],
            record["t"],
            record.get("server"),
            record.get("lost"),
        )

    def _healed(self, record):
        self.faults[record["n"]].end = record["t"]

    def _calm(self, record):
        self.calms.append(
            {"begin": record["t"], "end": None, "ticks": record["ticks"], "limit": record["limit"]}
        )

    def _stirred(self, record):
        self.calms[-1]["end"] = record["t"]

    def _look(self, record):
        self.looks.append(record)

    def _ended(self, record):
        self.ended.append(record)

    # -- what several checks ask ----------------------------------------------------------------

    def losses(self, server=0):
        """When the arbiter *server* lost its data: (from, to), the earliest and latest moment."""
        return [
            (fault.begin, fault.end)
            for fault in self.faults.values()
            if fault.server == server and fault.lost is not None
        ]

    def disturbances(self, server):
        """When the arbiter *server* may not have answered: spans that do not overlap."""
        spans = sorted(
            (fault.begin, fault.end) for fault in self.faults.values() if fault.server == server
        )
        joined = []
        for begin, end in spans:
            if joined and begin <= joined[-1][1] + 1.0:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((begin, end))
        return joined

    def is_quiet(self, begin, end):
        """Whether nothing was broken, or felt, or slow, from *begin* to *end*."""
        broken = any(
            fault.begin <= end and begin <= fault.end + AFTERMATH for fault in self.faults.values()
        )
        return not broken and not any(
            since <= end and begin <= until for since, until in self.stalls
        )


def _joined(pieces):
    """Pieces of one process that meet, and say the same, as one span."""
    found = {}
    for piece in sorted(pieces, key=lambda piece: piece.first):
        place = (piece.by, piece.pid)
        before = found.get(place)
        if before and (before.i, before.n) == (piece.i, piece.n) and piece.first <= before.last:
            found[place] = before._replace(last=piece.last)
            continue
        if before:
            yield before
        found[place] = piece
    yield from found.values()

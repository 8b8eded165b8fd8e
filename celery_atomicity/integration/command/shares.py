"""Whose the slots are, out of what workers say of themselves: pure, and as text."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_atomicity.integration.command.text import WIDTH
from celery_atomicity.primitives.membership import Assignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from celery_atomicity.integration.command.status import Replica

# So many slots are named; of more, the first and the last.
NAMED = 12


@dataclass(frozen=True)
class Share:
    """A worker, and the slots that it owns by its own word; none: it owns nothing."""

    worker: str
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Shares:
    """
    Whose *total* slots are.

    Attributes:
        shares: In the order of the workers' indices.
        unowned: Slots that no worker that answered owns.
        doubled: Slots that two have named as theirs, each at the moment of its answer.
    """

    group: str
    total: int
    shares: tuple[Share, ...]
    unowned: tuple[int, ...]
    doubled: tuple[int, ...]

    @property
    def settled(self) -> bool:
        """Whether every slot has one owner."""
        return not self.unowned and not self.doubled


def shares_of(group: str, replicas: Iterable[Replica], total: int) -> Shares:
    """Whose the slots are, if *replicas* are all there are of *group*."""
    shares = [Share(each.worker, tuple(_slots(each, total))) for each in replicas]
    owners = Counter(slot for share in shares for slot in share.slots)
    return Shares(
        group,
        total,
        tuple(sorted(shares, key=lambda share: (share.slots or (total,), share.worker))),
        unowned=tuple(slot for slot in range(total) if not owners[slot]),
        doubled=tuple(slot for slot in range(total) if owners[slot] > 1),
    )


def share_lines(found: Shares) -> list[str]:
    """*found*, for a person."""
    lines = [f"group {found.group}: {found.total:,} slots, {_count(found.shares)}"]
    said = [(share.worker, _named(share.slots) or "nothing") for share in found.shares]
    if found.unowned:
        said.append(("nobody", _named(found.unowned)))
    if found.doubled:
        said.append(("two at once", _named(found.doubled)))
    column = min(WIDTH // 2, max((len(name) for name, _ in said), default=0))
    for name, text in said:
        lines += textwrap.wrap(
            f"{name:{column}}  {text}",
            WIDTH,
            initial_indent="  ",
            subsequent_indent=" " * (column + 4),
        )
    if found.doubled:
        lines.append("  Two answers are of two moments while somebody comes or goes; ask again.")
    return lines


def _slots(replica: Replica, total: int) -> list[int]:
    if replica.index is None or not replica.total:
        return []
    return Assignment(replica.index, replica.total).slots(total)


def _count(shares: Sequence[Share]) -> str:
    owners = sum(bool(share.slots) for share in shares)
    return f"{owners} of {len(shares)} workers own some" if shares else "no worker answered"


def _named(slots: Sequence[int]) -> str:
    if not slots:
        return ""
    if len(slots) <= NAMED:
        return f"{len(slots):,}: {', '.join(map(str, slots))}"
    first = ", ".join(map(str, slots[:NAMED]))
    return f"{len(slots):,}: {first} ... {slots[-1]}"

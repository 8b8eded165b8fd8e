"""What a rule says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(str, Enum):
    """How bad it is."""

    OK = "ok"  # looked at, and as it should be
    NOTE = "note"  # worth knowing; or could not be looked at
    WARNING = "warning"  # works, and will not under some circumstances
    FAULT = "fault"  # does not work, or promises are broken


@dataclass(frozen=True)
class Finding:
    """
    One thing that was found.

    Attributes:
        where: An address, ``settings`` or ``broker``.
        check: Which rule says so; docs/operations.md lists them.
        said: What it is, and what it means.
        remedy: What to do; empty where nothing is to be done.
    """

    where: str
    level: Level
    check: str
    said: str
    remedy: str = ""

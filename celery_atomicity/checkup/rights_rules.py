"""What follows from the commands that our user has tried, and which failed: pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from celery_atomicity.checkup.facts import BEATS
from celery_atomicity.checkup.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from celery_atomicity.checkup.facts import ServerFacts

# What a server says that our user may not do.
_FORBIDDEN = re.compile(r"NOPERM|no permission|can't run this command|can't access|ACL failure")
_UNKNOWN = re.compile(r"unknown command", re.IGNORECASE)

# What it says when it refuses to write, and what that means.
_REFUSALS = {
    "OOM": ("its memory is full", "raise maxmemory, or move what else is in it elsewhere"),
    "MISCONF": (
        "it cannot save its data and therefore writes nothing",
        "look into its log and at its disk",
    ),
    "NOREPLICAS": (
        "it has fewer replicas than min-replicas-to-write",
        "bring the replicas back, or lower min-replicas-to-write",
    ),
    "READONLY": ("it is a replica", "name its master in atomicity_redis"),
    "LOADING": ("it is still loading its data", "wait until it has"),
    "BUSY": ("a script keeps it busy", "find out whose, with SLOWLOG and CLIENT LIST"),
    "MASTERDOWN": ("its master is away", "name the master in atomicity_redis"),
}

DOCS = "docs/security.md has the line for ACL SETUSER"


def judge_rights(facts: ServerFacts) -> Iterator[Finding]:
    """What is to be said of the commands that were tried."""
    where = facts.address
    needed_keys = {kind: error for kind, error in facts.failed_keys.items() if kind != BEATS}
    needed = {**facts.failed, **needed_keys}
    commands = [name for name, error in facts.failed.items() if is_right(error)]
    kinds = [kind for kind, error in needed_keys.items() if is_right(error)]
    if commands or kinds:
        parts = [f"commands {' '.join(commands)}"] if commands else []
        parts += [f"keys of {', '.join(kinds)}"] if kinds else []
        yield Finding(
            where,
            Level.FAULT,
            "rights",
            f"our user may not use {' and '.join(parts)}",
            f"allow them with ACL SETUSER; {DOCS}",
        )
    looking = [name for name, error in facts.failed_looking.items() if is_right(error)]
    if looking:
        yield Finding(
            where,
            Level.WARNING,
            "rights",
            f"our user may not use {' '.join(looking)}: decisions work, and commands that show "
            "them, such as status, do not",
            f"allow them, if only for an operator's own user; {DOCS}",
        )
    if is_right(facts.failed_keys.get(BEATS, "")):
        yield Finding(
            where,
            Level.WARNING,
            "rights",
            f"our user may not use keys of {BEATS}: a beat with -S atomicity would own nothing "
            "and send nothing",
            f"allow them, if there is to be such a beat; {DOCS}",
        )
    yield from _refusals(where, needed)
    if not needed and not looking and not facts.error:
        yield Finding(where, Level.OK, "rights", "our user may use all commands that are needed")


def _refusals(where: str, failed: Mapping[str, str]) -> Iterator[Finding]:
    """What failed for another reason than our rights; each reason once."""
    rest = {error for error in failed.values() if not is_right(error)}
    codes = {error.split(" ", 1)[0]: error for error in sorted(rest)}
    for code, error in codes.items():
        if code == "WRONGTYPE":  # follows from a command that was refused before
            continue
        said, remedy = _REFUSALS.get(code, (f"it answers: {error}", "look into its log"))
        yield Finding(
            where, Level.FAULT, "writes", f"it refuses what decisions write: {said}", remedy
        )


def is_right(error: str) -> bool:
    """Whether it is for want of a right that a server answers *error*."""
    return bool(_FORBIDDEN.search(error) or _UNKNOWN.search(error))

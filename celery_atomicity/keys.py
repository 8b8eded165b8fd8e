"""
The names under which a group keeps its decisions on the server.

Keys nest by whose they are, then by what they are for, and are the same as those of
``@toa.io/atomicity``, so that a Toa component and a Celery worker may share a group.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Longer user data is hashed; what is kept of it is for a person who reads the key.
LONGEST = 200
READABLE = 48

# Where a server keeps which run of it was seen last; it belongs to no group.
MARKER = "atom:server"

# What a hashed part ends in. Input that already looks like that is hashed as well.
_HASHED = re.compile(r"~[0-9a-f]{32}\Z")


def safe(text: str) -> str:
    """
    *text* as a part of a key: as it is, or a readable prefix and a hash.

    Two different inputs never give the same part: what is longer than 200 bytes, holds anything
    but printable characters, or looks like a hashed part is hashed.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= LONGEST and text.isprintable() and not _HASHED.search(text):
        return text
    return f"{printable(text, READABLE)}~{hashlib.sha256(data).hexdigest()[:32]}"


def printable(text: str, most: int = LONGEST) -> str:
    """The first *most* characters of *text*, with ``?`` for what is no printable character."""
    if len(text) <= most and text.isprintable():
        return text
    return "".join(char if char.isprintable() else "?" for char in text[:most])


def meant(text: str) -> str:
    """
    The part of a key that a person means by *text*: what a command has shown, or *safe(text)*.

    A name of somebody's own that looks like a hashed part is only found as it is shown.
    """
    return text if _HASHED.search(text) else safe(text)


def slot_of(name: str, total: int) -> int:
    """
    The slot of ``0 .. total-1`` that *name* belongs to: CRC-32 of its UTF-8, modulo *total*.

    The same in every process, language and version, so that keys of one's own can be mapped to
    slots: ``current_atom.owns(slot_of(account, 128), 128)``.

    Raises:
        ValueError: *total* is not positive.
    """
    if total < 1:
        message = f"total must be at least 1, not {total!r}"
        raise ValueError(message)
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) % total


def slots_base(group: str) -> str:
    """The base of the interval counters; the script appends ``:<interval number>``."""
    return f"atom:{group}:slots:{{{group}}}"


def meter_key(group: str, key: str, *, is_safe: bool = False) -> str:
    """The hash that holds the debt of *key*; with *is_safe*, that is *safe(key)* already."""
    return f"atom:{group}:meter:{key if is_safe else safe(key)}"


def rate_key(group: str, key: str, *, is_safe: bool = False) -> str:
    """
    The hash that holds what has started and what is promised under the limit of *key*.

    With *is_safe*, that is *safe(key)* already: it was read from a server.
    """
    return f"atom:{group}:rate:{key if is_safe else safe(key)}"


def lock_key(group: str, key: str) -> str:
    """The string that says who holds *key*."""
    return f"atom:{group}:lock:{safe(key)}"


def fence_key(group: str) -> str:
    """The last fence that was given."""
    return f"atom:{group}:fence"


def line_key(group: str, key: str) -> str:
    """Who waits for *key*, in the order they came."""
    return f"atom:{group}:line:{safe(key)}"


def seen_key(group: str, key: str) -> str:
    """When those who wait for *key* were last seen, and where to ring them."""
    return f"atom:{group}:line:{safe(key)}:seen"


def lock_places(group: str, keys: Sequence[str]) -> tuple[str, ...]:
    """
    What the scripts of locks are told of *keys*.

    The server's marker and the group's last fence, then for each key its lock, its line and the
    line's last-seen times.
    """
    kinds = (lock_key, line_key, seen_key)
    return (MARKER, fence_key(group), *(kind(group, key) for key in keys for kind in kinds))


def locks_of(places: Sequence[str]) -> tuple[str, ...]:
    """The strings that say who holds, of *lock_places*."""
    return tuple(places[2::3])


def mail_channel(group: str, process: str) -> str:
    """The channel on which a process that waits is told whose turn it is."""
    return f"atom:{group}:mail:{process}"


def beat_key(group: str, *parts: str) -> str:
    """The ledger and its companions."""
    return ":".join((f"atom:{group}:beat", *map(safe, parts)))

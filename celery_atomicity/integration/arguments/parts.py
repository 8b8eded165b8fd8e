"""What a compiled key calls: steps into an argument, and how the parts are kept from meeting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from celery_atomicity.integration.arguments.text import quoted, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_atomicity.integration.arguments.template import Key


def escaper(after: str) -> Callable[[str], str]:
    """What keeps a field from running into the text that follows it, which begins with *after*."""
    mark = "\\" if after != "\\" else "^"

    def escape(written: str) -> str:
        if after in written or mark in written:
            return written.replace(mark, mark + mark).replace(after, mark + after)
        return written

    return escape


def ascii_quoted(value: Any) -> str:
    """What ``!a`` writes: quoted, and nothing but ASCII."""
    return quoted(value).encode("ascii", "backslashreplace").decode("ascii")


def attribute_of(value: Any, name: str) -> Any:
    """An attribute, or a dict's item of that name: what was an object is a dict in a message."""
    if isinstance(value, Mapping) and name in value:
        return value[name]
    return getattr(value, name)


def item_of(value: Any, item: str | int) -> Any:
    """An item by name or number."""
    if isinstance(item, int) and isinstance(value, Mapping) and item not in value:
        return value[str(item)]  # JSON has turned it into text
    return value[item]


def answered(answer: Any) -> Key:
    """The key, or keys, that a callable answered."""
    if isinstance(answer, str):
        return text(answer)
    if answer is None:
        raise TypeError("the key's callable returned None; it has to return the key")
    if isinstance(answer, (list, tuple)):
        keys = list(dict.fromkeys(map(text, answer)))
    elif isinstance(answer, (set, frozenset)):
        keys = sorted(set(map(text, answer)))
    else:
        return text(answer)
    if not keys:
        raise ValueError("the key's callable returned no key at all")
    return keys

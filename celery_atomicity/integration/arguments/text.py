"""
A value as the text of a key: the same for equal values, in every process, on every day.

The rules, which the tests hold us to:

- A string is itself. Numbers, dates, UUIDs and the like are what ``str`` makes of them, so that
  ``7`` and ``"7"`` are one text (``{x!r}`` keeps them apart, see below).
- An enum member is its value and a tuple is a list, since that is what arrives through JSON.
- A moment with a time zone is written in UTC, a Decimal without trailing zeros: equal is equal.
- Inside containers, and for ``!r``, strings are quoted: ``[1, '1']``, ``['a, b']`` and
  ``['a', 'b']`` stay apart. Dicts and sets are sorted.
- What has no text but its place in memory is refused: another process would write another key.

Pure and thread-safe.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable

#: What object.__repr__ and its kin write where an object has no text of its own.
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{4,}")

#: Digits up to which a Decimal is written out; beyond it an exponent is shorter and as exact.
_LONG_DECIMAL = 40

_FACELESS = (type, FunctionType, MethodType, BuiltinFunctionType, ModuleType)


def text(value: Any) -> str:
    """
    *value* as text, strings as they are.

    Raises:
        TypeError: It has no text that is the same in every process.
    """
    writer = _WRITERS.get(type(value))
    return _other(value, text) if writer is None else writer(value)


def quoted(value: Any) -> str:
    """*value* as text with its type told: strings in quotes, as everywhere inside containers."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return repr(str.__str__(value))
    writer = _WRITERS.get(type(value))
    return _other(value, quoted) if writer is None else writer(value)


def formatted(value: Any, spec: str) -> str:
    """*value* as its own format *spec* writes it, such as ``{day:%Y-%m}`` or ``{n:04d}``."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, _FACELESS):
        raise _refusal(value)
    return _checked(value, format(value, spec))


def _other(value: Any, write: Callable[[Any], str]) -> str:
    """Those that are not of a well-known type themselves: subclasses, containers, objects."""
    if isinstance(value, Enum):
        return write(value.value)
    for kind, writer in _FAMILIES:
        if isinstance(value, kind):
            return writer(value)
    if isinstance(value, _FACELESS):
        raise _refusal(value)
    if dataclasses.is_dataclass(value):
        fields = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
        return _mapping(fields)
    dump = getattr(value, "model_dump", None)  # pydantic: what it would look like as JSON
    if callable(dump):
        return _mapping(dump(mode="json"))
    faces = {getattr(type(value), name) for name in ("__str__", "__repr__")}
    if faces == {object.__str__, object.__repr__}:
        raise _refusal(value)
    return _checked(value, str(value))


def _checked(value: Any, written: str) -> str:
    if not isinstance(value, str) and _ADDRESS.search(written):
        raise _refusal(value)
    return written


def _refusal(value: Any) -> TypeError:
    kind = type(value).__qualname__
    return TypeError(
        f"a key cannot be made of {_describe(value)}: all it has for a text is its address in "
        "memory, which is another one in every process. Name what tells it apart instead, such as "
        f'"{{{kind.lower()}.id}}", or give a callable that returns text'
    )


def _describe(value: Any) -> str:
    if isinstance(value, _FACELESS):
        return f"the {type(value).__name__} {getattr(value, '__name__', '')}".rstrip()
    return f"an object of the class {type(value).__qualname__}"


def _integer(value: int) -> str:
    try:
        return int.__repr__(value)
    except ValueError:  # Python writes no more than some thousand decimal digits
        return hex(value)


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        return str(value)
    if not value:
        return "0"
    sign, digits, exponent = value.as_tuple()
    number = "".join(map(str, digits)).lstrip("0")
    stripped = number.rstrip("0")
    exponent = int(exponent) + len(number) - len(stripped)
    minus = "-" if sign else ""
    if abs(exponent) > _LONG_DECIMAL:
        return f"{minus}{stripped}E{exponent:+d}"
    if exponent >= 0:
        return f"{minus}{stripped}{'0' * exponent}"
    whole, fraction = stripped[:exponent], stripped[exponent:].rjust(-exponent, "0")
    return f"{minus}{whole or '0'}.{fraction}"


def _moment(value: datetime) -> str:
    return (value.astimezone(timezone.utc) if value.utcoffset() is not None else value).isoformat()


def _duration(value: timedelta) -> str:
    return f"{value // timedelta(microseconds=1)}us" if value.microseconds else str(value)


def _mapping(value: Mapping[Any, Any]) -> str:
    # Keys as text: JSON knows no others, so {1: "a"} arrives as {"1": "a"}.
    items = sorted((repr(text(key)), quoted(item)) for key, item in value.items())
    return "{" + ", ".join(f"{key}: {item}" for key, item in items) + "}"


def _list(value: Any) -> str:
    return "[" + ", ".join(map(quoted, value)) + "]"


def _set(value: AbstractSet[Any]) -> str:
    return "{" + ", ".join(sorted(map(quoted, value))) + "}"


def _bytes(value: bytes | bytearray | memoryview) -> str:
    return repr(bytes(value))


_WRITERS: dict[type, Callable[[Any], str]] = {
    str: str,
    int: _integer,
    bool: repr,
    type(None): repr,
    float: repr,
    complex: repr,
    UUID: str,
    Decimal: _decimal,
    datetime: _moment,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: _duration,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    dict: _mapping,
    list: _list,
    tuple: _list,
    set: _set,
    frozenset: _set,
}

#: The same for what derives from them; datetime stands before date, which it derives from.
_FAMILIES: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    (str, str.__str__),
    (int, _integer),
    (float, float.__repr__),
    (UUID, str),
    (Decimal, _decimal),
    (datetime, _moment),
    (date, date.isoformat),
    (time, time.isoformat),
    (timedelta, _duration),
    (bytes, _bytes),
    (bytearray, _bytes),
    (Mapping, _mapping),
    (AbstractSet, _set),
    (list, _list),
    (tuple, _list),
)

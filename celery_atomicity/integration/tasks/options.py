"""Reading what a decorator was given: refused where it is applied, with what to write instead."""

from __future__ import annotations

import difflib
import math
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    #: Seconds, as a number or a timedelta.
    Seconds = float | timedelta


def choice(name: str, value: object, choices: Sequence[str]) -> str:
    """*value*, which must be one of *choices*."""
    if isinstance(value, str) and value in choices:
        return value
    close = difflib.get_close_matches(str(value), choices, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    known = ", ".join(map(repr, choices))
    raise ValueError(f"{name}={value!r} is not one of {known}{hint}")


def seconds(
    name: str, value: Seconds | None, least: float = 0.0, most: float = math.inf
) -> float | None:
    """*value* in seconds, None for None; it must be from *least* to *most*."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is a number of seconds or a timedelta, not {value!r}")
    if not math.isfinite(value) or not least <= value <= most:
        allowed = f"at least {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
        raise ValueError(f"{name}={value!r} cannot work; it is {allowed} seconds")
    return float(value)


def text(name: str, value: str | None) -> str | None:
    """*value*, a text that is not empty, or None."""
    if value is None or (isinstance(value, str) and value):
        return value
    raise ValueError(f"{name}={value!r} is not a text that names something")

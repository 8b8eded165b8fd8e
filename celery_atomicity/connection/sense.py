"""For those who only look: an answer of another form than that of the question is no answer."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from celery_atomicity.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

# What reading an answer ends in that has another form than the one it is read as.
_NONSENSE = (TypeError, ValueError, AttributeError, IndexError, KeyError, OverflowError)


def makes_sense(function: Callable[P, T]) -> Callable[P, T]:
    """*function*, which reads what servers answer, and to which nonsense is *Unavailable*."""

    @wraps(function)
    def read(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except _NONSENSE as error:
            raise Unavailable(
                f"What the arbiter answers makes no sense ({type(error).__name__}: {error}). Is it "
                "a Redis or Valkey server, and does nothing else write the group's keys?"
            ) from error

    return read

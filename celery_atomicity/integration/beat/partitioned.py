"""
`partitioned`: one entry of the schedule, one message a slot.

It only marks the task; beat reads the mark, and sends each slot from the replica that owns it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from celery.local import PromiseProxy, Proxy

T = TypeVar("T", bound=Callable[..., Any])

SLOTS, ARGUMENT = "atomicity_slots", "atomicity_argument"

# What a beat is asked to keep a last run for, each.
MOST_SLOTS = 65_536


@dataclass(frozen=True, slots=True)
class Fan:
    """Into how many messages an entry is fanned out, and which argument tells its slot."""

    slots: int
    argument: str = "slot"


def partitioned(*, slots: int, argument: str = "slot") -> Callable[[T], T]:
    """
    Beat sends an entry of this task once for each slot, ``0 .. slots-1``, every slot by its owner.

    Stands under or over ``@app.task`` and ``@shared_task``. Only beat fans out: a call of the task
    is one run, of the slot that the caller gives. An entry whose task is not importable in beat
    says the same with the header ``atomicity_slots`` (and ``atomicity_argument``) in its options.

    Args:
        slots: How many, from 1 to 65,536.
        argument: The parameter that is given the slot.

    Raises:
        ValueError: *slots* is not such a number.
        TypeError: The function has no parameter of that name.
    """
    fan = _checked(slots, argument)

    def mark(task: T) -> T:
        # By its type: isinstance would ask what the proxy stands for, and so make it.
        kind = type(task)
        if issubclass(kind, PromiseProxy):
            # Not made yet: to ask for it now would read the app's settings before they are whole.
            promise: Any = task
            promise.__then__(lambda: _mark(promise, fan))
        elif issubclass(kind, Proxy):
            _mark(_shared_function(task), fan)
        else:
            _mark(task, fan)
        return task

    return mark


def fan_of(task: Any, options: Mapping[str, Any]) -> Fan | None:
    """
    How beat fans out an entry with these *options*; None: it is one message.

    Args:
        task: The task, None if it is not known here.
        options: Those of the entry; what its headers say counts first.

    Raises:
        ValueError: What the headers say is no number of slots.
    """
    headers = options.get("headers") or {}
    if headers.get(SLOTS) is not None:
        return _checked(headers[SLOTS], headers.get(ARGUMENT, "slot"))
    for bearer in (task, getattr(task, "run", None)):
        slots = getattr(bearer, SLOTS, None)
        if slots is not None:
            return Fan(slots, getattr(bearer, ARGUMENT, "slot"))
    return None


def _checked(slots: object, argument: object) -> Fan:
    if isinstance(slots, str) and slots.isdecimal():
        slots = int(slots)
    if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= MOST_SLOTS:
        raise ValueError(f"slots must be a whole number from 1 to {MOST_SLOTS}, not {slots!r}")
    return Fan(slots, str(argument))


def _mark(task: Any, fan: Fan) -> None:
    _check_parameter(getattr(task, "run", task), fan.argument)
    setattr(task, SLOTS, fan.slots)
    setattr(task, ARGUMENT, fan.argument)


def _check_parameter(function: Any, argument: str) -> None:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return  # not written in Python: the call will tell
    named = parameters.get(argument)
    if named is not None and named.kind is not named.POSITIONAL_ONLY:
        return
    if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        raise TypeError(
            f"{getattr(function, '__qualname__', function)!s} has no parameter {argument!r} that "
            f"can be given by name; add it, or name another: @partitioned(argument=...)"
        )


def _shared_function(proxy: Any) -> Any:
    """
    The function that a shared task is made of.

    Each app makes a task of its own out of it, now or later, so the mark belongs there; to ask the
    proxy for its task would make the current app's, and its settings, too soon.
    """
    lookup = object.__getattribute__(proxy, "_Proxy__local")
    return inspect.getclosurevars(lookup).nonlocals["fun"]

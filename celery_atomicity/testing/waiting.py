from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

STEP = 0.02  # seconds between two looks at a condition


def wait_until(condition: Callable[[], T], timeout: float = 10.0, what: str = "the condition") -> T:
    """
    Return what *condition* answers, as soon as that is true; look every 20 ms.

    Looks are counted, not clocked: a test may have frozen the time. So a slow *condition* makes
    the wait longer than *timeout* seconds, never shorter.

    Raises:
        AssertionError: *condition* was not true within *timeout*; the message says *what*.
    """
    pause = threading.Event()
    for _ in range(max(1, math.ceil(timeout / STEP))):
        if answer := condition():
            return answer
        pause.wait(STEP)
    if answer := condition():
        return answer
    raise AssertionError(f"{what}: not within {timeout:g} s")

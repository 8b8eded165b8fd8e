"""What is limited, and by how much."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_NOTATION = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?:/\s*([smhd])\s*)?\Z")
_MOST = 1e300
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def per_second(rate: str | float) -> float:
    """
    *rate* in units a second, from Celery's notation: ``"10/s"``, ``"100/m"``, ``"5/h"``, a number.

    Raises:
        TypeError: It is neither text nor a number.
        ValueError: It is not written so, or is not positive. None is unlimited, nor paused.
    """
    if isinstance(rate, bool) or not isinstance(rate, (str, int, float)):
        raise TypeError(f'a rate is a text such as "10/s" or a number a second, not {rate!r}')
    if isinstance(rate, str):
        match = _NOTATION.match(rate)
        if match is None:
            raise ValueError(f'a rate is written as "10/s", "100/m", "5/h" or "1/d", not {rate!r}')
        number = float(match[1]) / _SECONDS[match[2] or "s"]
    else:
        number = float(rate) if -_MOST < rate < _MOST else math.inf
    if not 0 < number < math.inf:
        raise ValueError(f"a rate must be positive and finite, not {rate!r}")
    return number


@dataclass(frozen=True, slots=True)
class Limit:
    """
    At most ``burst + rate * t`` units start in any window of t seconds.

    Args:
        key: What is limited, within the group.
        rate: Units a second.
        burst: Units that may start at once.
        cost: Units of this one start.

    Raises:
        ValueError: A number is not positive and finite, or the cost is above the burst.
    """

    key: str
    rate: float
    burst: float = 1.0
    cost: float = 1.0

    def __post_init__(self) -> None:
        # One comparison where all is well, since each execution of a task makes one of these.
        if 0 < self.cost <= self.burst < math.inf and 0 < self.rate < math.inf:
            return
        for name in ("rate", "burst", "cost"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, not {getattr(self, name)!r}")
        if self.cost > self.burst:
            raise ValueError(
                f"a cost of {self.cost:g} is above the burst of {self.burst:g}, so it could never "
                f"be let through: raise burst to at least {self.cost:g}, or split the work"
            )

    @property
    def per_ms(self) -> float:
        """Units a millisecond."""
        return self.rate / 1000.0

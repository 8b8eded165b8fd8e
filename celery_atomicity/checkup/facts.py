"""What is known of an arbiter before anybody judges it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from celery_atomicity.settings import Settings


# The kind of key that only a beat needs.
BEATS = "slots of beats"


@dataclass(frozen=True)
class ServerFacts:
    """
    What one address answered.

    Attributes:
        address: Without its password.
        error: Why it could not be asked, or not to the end; empty: it could.
        round_trip: Seconds of a PING, the median of some; None: not known.
        clock: By how many seconds its clock is ahead of ours; None: not known.
        clock_error: By how many seconds that may be wrong.
        now: What its clock said, in seconds since the epoch.
        info: What INFO says; None: our user may not ask.
        config: What CONFIG GET says of some of its settings; None: our user may not ask.
        user: As whom it knows us; empty: our user may not ask.
        failed: The commands that we need and that failed, and the error; empty: all of them work.
        failed_looking: The same for those that only commands such as this one need.
        failed_keys: The kinds of key that our user may not use, and the error.
        silent_sentinels: Those of the address that do not answer, and why.
        marker: The run of the server that was seen last, and when it was noticed; empty: none was.
    """

    address: str
    error: str = ""
    round_trip: float | None = None
    clock: float | None = None
    clock_error: float = 0.0
    now: float = 0.0
    info: Mapping[str, str] | None = None
    config: Mapping[str, str] | None = None
    user: str = ""
    failed: Mapping[str, str] = field(default_factory=dict)
    failed_looking: Mapping[str, str] = field(default_factory=dict)
    failed_keys: Mapping[str, str] = field(default_factory=dict)
    silent_sentinels: Mapping[str, str] = field(default_factory=dict)
    marker: Mapping[str, str] = field(default_factory=dict)

    def said(self, name: str, default: str = "") -> str:
        """What INFO says under *name*."""
        return (self.info or {}).get(name, default)

    def number(self, name: str) -> int:
        """The same as a number; 0: it says nothing, or none."""
        text = self.said(name)
        return int(text) if text.isascii() and text.isdigit() else 0


@dataclass(frozen=True)
class BrokerFacts:
    """
    What is known of the broker and of tasks.

    Attributes:
        visibility_timeout: Seconds after which it delivers again what a worker has not
            acknowledged; None: it has no such time.
        time_limit: Seconds that a task may run; None: no limit for all of them.
        acks_late: Whether tasks are acknowledged when they end.
    """

    visibility_timeout: float | None = None
    time_limit: float | None = None
    acks_late: bool = False


@dataclass(frozen=True)
class Facts:
    """All there is to judge."""

    settings: Settings
    servers: tuple[ServerFacts, ...]
    broker: BrokerFacts = field(default_factory=BrokerFacts)

"""
Every error of the package, in one place.

    AtomicityError
    ├── NotConfigured      no address is set, or Atomicity(app) was not called
    ├── Unavailable        the arbiter did not answer, so a request could not be served
    ├── LockTimeout        a key stayed taken, or no majority answered, for as long as was waited
    ├── LeaseLost          a lease ended while its holder still ran
    ├── AlreadyHeld        the same execution asked for a key that it holds
    └── RateLimited        over the limit, with ``on_limit="raise"``

They carry data beside the message, in ``args`` as well: that is what a result backend keeps, be it
pickled or as JSON, and whoever asks for the result gets the error with its data.
A value that cannot work is refused with *InvalidSetting*, a ``ValueError`` that stands apart from
these: Celery's user sees it as Celery's own ``ImproperlyConfigured``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class AtomicityError(Exception):
    """The root of what this package raises by itself."""


class InvalidSetting(ValueError):
    """A value that cannot work: the message names it, where it stands, and the remedy."""


class NotConfigured(AtomicityError):
    """Something was asked that needs an arbiter, and none is configured."""


class Unavailable(AtomicityError):
    """Too few addresses answered in time to serve a request; the cause is the last one's error."""


class _KeyError(AtomicityError):
    """An error about keys of a group; its class, called with its ``args``, makes it again."""

    def __init__(
        self, message: str, keys: Sequence[str] = (), group: str = "", *data: object
    ) -> None:
        super().__init__(message, tuple(keys), group, *data)
        self.keys = tuple(keys)
        self.group = group

    def __str__(self) -> str:
        return str(self.args[0])


class LockTimeout(_KeyError):
    """
    A lock was not given within the time that its caller would wait.

    Attributes:
        keys: What was asked for.
        group: The group the keys belong to.
        waited: Seconds spent waiting.
        holder: Who holds the key, as far as its value says; None when no majority answered.
        remaining: Seconds until the holder's lease runs out unless it is renewed; None if unknown.
        unreachable: Whether it was for want of an answer, and nobody may hold the key at all.
    """

    def __init__(  # noqa: PLR0917 - by position only out of args
        self,
        message: str,
        keys: Sequence[str] = (),
        group: str = "",
        waited: float = 0.0,
        holder: str | None = None,
        remaining: float | None = None,
        unreachable: bool = False,  # noqa: FBT002
    ) -> None:
        super().__init__(message, keys, group, waited, holder, remaining, unreachable)
        self.waited = waited
        self.holder = holder
        self.remaining = remaining
        self.unreachable = unreachable


class LeaseLost(_KeyError):
    """
    A lease ended while its holder still ran; another holder may have run beside it.

    Attributes:
        keys: What was held.
        group: The group the keys belong to.
        fence: The lost lease's fence; whatever guards the resource refuses it from now on.
        reason: Why, in words.
    """

    def __init__(
        self,
        message: str,
        keys: Sequence[str] = (),
        group: str = "",
        fence: int | None = None,
        reason: str = "",
    ) -> None:
        super().__init__(message, keys, group, fence, reason)
        self.fence = fence
        self.reason = reason


class AlreadyHeld(_KeyError):
    """The same task or ``with`` block asked for a key that it holds; it would wait for itself."""


class RateLimited(_KeyError):
    """
    Over the limit.

    Attributes:
        keys: The keys that were over their limit.
        group: The group the keys belong to.
        retry_after: Seconds until there is room, if nobody else comes first.
    """

    def __init__(
        self,
        message: str,
        keys: Sequence[str] = (),
        group: str = "",
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message, keys, group, retry_after)
        self.retry_after = retry_after

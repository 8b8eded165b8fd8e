"""What a user writes for a lock: checked once, then a ``with`` block or an explicit lease."""

from __future__ import annotations

import math
import os
import platform
from functools import lru_cache
from typing import TYPE_CHECKING

from celery_atomicity import keys as names
from celery_atomicity.connection.mailbox import Mailbox
from celery_atomicity.errors import AlreadyHeld, LeaseLost
from celery_atomicity.primitives.acquisition import Acquisition
from celery_atomicity.primitives.holding import Terms
from celery_atomicity.primitives.lease import Lease, held, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from celery_atomicity.connection import Clients
    from celery_atomicity.primitives.keeper import Keeper

NODE = platform.node()

# So many sets of keys are checked and named once.
REMEMBERED = 1024

# A single lease may be shorter than the setting allows, for tests; seconds.
MOST = 1e300
SHORTEST_TTL, LONGEST_TTL = 0.1, 3600.0


class Locks:
    """The locks of one group, and the leases that this process holds of them. Thread-safe."""

    def __init__(self, clients: Clients, keeper: Keeper, group: str) -> None:
        self.group = group
        self._clients = clients
        self._keeper = keeper
        self._mailbox = Mailbox(
            clients.settings, lambda process: names.mail_channel(group, process)
        )

    def lock(
        self,
        keys: str | Sequence[str],
        *,
        wait: float | None = None,
        ttl: float | None = None,
        min_hold: float | None = None,
        max_hold: float | None = None,
        on_lost: Callable[[Lease], None] | None = None,
        holder: str | None = None,
    ) -> Lock:
        """
        A lock on *keys*; nothing is asked before it is entered or acquired.

        Raises:
            TypeError: A key is not a text.
            ValueError: No key, an empty one, or a number that cannot work.
        """
        several = (keys,) if isinstance(keys, str) else tuple(dict.fromkeys(keys))
        ttl = self._clients.settings.lock_ttl if ttl is None else ttl
        _check("ttl", ttl, SHORTEST_TTL, LONGEST_TTL)
        if wait is not None:
            _check("wait", wait, 0.0, math.inf)
        if min_hold is not None:
            _check("min_hold", min_hold, 0.0, math.inf)
        if max_hold is not None:
            _check("max_hold", max_hold, 0.001, math.inf)
        terms = Terms(
            group=self.group,
            keys=several,
            places=_places(self.group, several),
            holder=names.printable(holder) if holder else _this_process(os.getpid()),
            ttl=ttl,
            grace=self._clients.settings.grace_of(ttl),
            min_hold=min_hold,
            max_hold=max_hold,
            on_lost=on_lost,
        )
        return Lock(self._clients, self._keeper, self._mailbox, terms, wait)


class Lock:
    """
    One use of a lock: ``with lock as lease``, or *acquire* and ``lease.release()``.

    May be entered again after it was left; not by two threads at once.

    Attributes:
        called_off: Asked at each look at the key, a few seconds apart, by who waits for it; once it
            answers True the wait is over as if its time were. None: nobody calls it off.
    """

    def __init__(
        self,
        clients: Clients,
        keeper: Keeper,
        mailbox: Mailbox,
        terms: Terms,
        wait: float | None,
    ) -> None:
        self._clients = clients
        self._keeper = keeper
        self._mailbox = mailbox
        self._terms = terms
        self._wait = wait
        self.called_off: Callable[[], bool] | None = None
        self._lease: Lease | None = None
        self._asked = ""

    def acquire(self) -> Lease:
        """
        Wait for the lease; the caller releases it.

        Raises:
            LockTimeout: It was not granted within *wait*.
            AlreadyHeld: The running task or block holds one of the keys.
            NotConfigured: There is no arbiter.
        """
        terms = self._terms
        for lease in _still_held():
            twice = set(lease.keys) & set(terms.keys) if lease.group == terms.group else ()
            if twice:
                raise AlreadyHeld(
                    f"{shown(sorted(twice))} of group {terms.group!r} is held already by the task "
                    "or block that asks for it; it would wait for itself. Take it once, outside.",
                    keys=tuple(sorted(twice)),
                    group=terms.group,
                )
        acquisition = Acquisition(self._clients, self._mailbox, terms)
        self._asked = acquisition.id
        try:
            return acquisition.run(self._wait, self._keeper.keep, self.called_off)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """
        Let go what the last *acquire* got without its caller's knowing; usually nothing.

        An exception from outside, such as a time limit's, may strike between the grant and the
        moment when the caller holds the lease in hand; kept on, it would be renewed for ever.
        """
        if self._asked:
            self._keeper.abandon(self._asked)

    def __enter__(self) -> Lease:
        try:
            lease = self.acquire()
            lease.guard(self)
            self._lease = lease
            held.set((*_still_held(), lease))
            return lease.kept_by(self)
        except BaseException:
            self.abandon()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            lease, self._lease = self._lease, None
            if lease is None:
                return
            held.set(tuple([one for one in held.get() if one is not lease]))
            lost = lease.error() if lease.lost else None
            lease.release()
        except BaseException:
            self.abandon()
            raise
        told = isinstance(error, LeaseLost) or not isinstance(error, Exception | None)
        if lost is not None and not told:
            raise lost from error


def _still_held() -> list[Lease]:
    """What the running task or block holds; some may have been torn away and let go since."""
    return [lease for lease in held.get() if not lease.released]


@lru_cache(REMEMBERED)
def _places(group: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    """What the scripts are told of *keys*, which are checked."""
    if not keys:
        raise ValueError("no key was given; name at least one")
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"a key is a text, not {key!r}; format it first")
        if not key:
            raise ValueError("a key must not be empty")
    return names.lock_places(group, keys)


@lru_cache(1)
def _this_process(pid: int) -> str:
    return names.printable(f"process {pid} on {NODE}")


def _check(name: str, value: float, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number of seconds, not {value!r}")
    # An integer may be larger than any float, and arithmetic with one fails.
    if not least <= value <= most or (isinstance(value, int) and value > MOST):
        limit = f"at least {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
        raise ValueError(f"{name}={value!r} is out of range; it is {limit} seconds")

"""What one group decides, in one place."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from celery_atomicity.connection import Clients
from celery_atomicity.primitives.keeper import Keeper
from celery_atomicity.primitives.lock import Lock, Locks
from celery_atomicity.primitives.meter import Meter
from celery_atomicity.primitives.partition import Partition, PartitionState
from celery_atomicity.primitives.rates import Rates
from celery_atomicity.settings import Settings, check_group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from celery_atomicity.primitives.lease import Lease
    from celery_atomicity.primitives.membership import Assignment


class Arbiter:
    """What the groups of one process share: the connections, and the keeper of its leases."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clients = Clients(settings)
        self.keeper = Keeper(self.clients)
        self.atoms: weakref.WeakValueDictionary[str, Atom] = weakref.WeakValueDictionary()


_lock = threading.RLock()
_arbiters: weakref.WeakValueDictionary[Settings, Arbiter] = weakref.WeakValueDictionary()


def arbiter_of(settings: Settings) -> Arbiter:
    """The arbiter that *settings* name; one per process, however many ask for it."""
    with _lock:
        found = _arbiters.get(settings)
        if found is None:
            found = _arbiters[settings] = Arbiter(settings)
        return found


def arbiters() -> list[Arbiter]:
    """All that this process has at the moment."""
    with _lock:
        return list(_arbiters.values())


def _after_fork() -> None:
    # Whoever held it in the parent, in another thread, does not exist here.
    global _lock  # noqa: PLW0603 - of the process
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Atom:
    """
    The decisions of one group: whose slots are whose, who holds a name, what has been spent.

    There is one per group and process: asking for it again gives the same one. Thread-safe.
    *slots*, *owns* and *assignment* answer from memory; *meter* and *lock* ask the arbiter and need
    no *open*.

    Args:
        group: What replicas share by its name.
        redis: One URL or an odd number of them. Default: ``ATOMICITY_REDIS`` and the other
            ``ATOMICITY_*`` variables of the environment.
        settings: In place of *redis*, everything.

    Raises:
        InvalidSetting: A name or value that cannot work (a ``ValueError``).
    """

    group: str
    settings: Settings

    def __new__(
        cls,
        group: str,
        *,
        redis: str | Sequence[str] | None = None,
        settings: Settings | None = None,
    ) -> Atom:
        """The atom of *group* in this process."""
        check_group(group, "group")
        if settings is None:
            settings = Settings.read({"atomicity_redis": redis} if redis is not None else {})
        arbiter = arbiter_of(settings)
        with _lock:
            found = arbiter.atoms.get(group)
            if found is None:
                found = super().__new__(cls)
                found._set_up(group, arbiter)
                arbiter.atoms[group] = found
            return found

    def _set_up(self, group: str, arbiter: Arbiter) -> None:
        self.group = group
        self.settings = arbiter.settings
        # The arbiter is known weakly elsewhere; it lives as long as one of its atoms.
        self._arbiter = arbiter
        clients = arbiter.clients
        self._partition = Partition(clients, group, arbiter.settings.interval, arbiter.settings.gap)
        self._locks = Locks(clients, arbiter.keeper, group)
        self._meter = Meter(clients, group)
        self.rates = Rates(clients, group)

    # -- slots ----------------------------------------------------------------------------------

    def open(self, alive: Callable[[], bool] | None = None) -> None:
        """
        Begin to register as a replica of the group; returns at once, opening twice is opening once.

        Where no arbiter is configured nothing is registered and nothing is owned.

        Args:
            alive: Asked before each registration; while it answers False, this replica stands down.

        Raises:
            AtomicityError: In a pool child, for whom its worker's main process registers.
        """
        if self.settings.configured:
            self._partition.open(alive)

    def close(self) -> None:
        """Stand down: own nothing from now on, tell the listeners so, and register no more."""
        self._partition.close()

    def __enter__(self) -> Atom:
        self.open()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def assignment(self) -> Assignment | None:
        """Our index and how many we are; None: we own nothing at this moment."""
        return self._partition.assignment

    def slots(self, total: int) -> list[int] | None:
        """
        Our slots of ``0 .. total-1``, ascending; None: we own nothing at this moment.

        While this replica answers a slot, no other replica of the group does. Judged at the moment
        of asking: what takes longer than the interval asks again. No I/O.
        """
        return self._partition.slots(total)

    def owns(self, slot: int, total: int) -> bool:
        """
        Whether *slot* of ``0 .. total-1`` is ours at this moment. No I/O.

        Raises:
            ValueError: There is no such slot.
        """
        return self._partition.owns(slot, total)

    def onassigned(self, listener: Callable[[Assignment | None], None]) -> Callable[[], None]:
        """
        Have *listener* told the assignment as it stands, now, and then each change of it.

        It runs in the calling thread now and in the registering thread later, never twice at once;
        while it runs, nothing is registered. If it raises now, the caller gets the error and it is
        not added. If it raises later, this replica stops for good and owns nothing.

        Returns:
            What removes it again.

        Raises:
            AtomicityError: In a pool child, where nobody could tell it.
        """
        return self._partition.onassigned(listener)

    def state(self) -> PartitionState:
        """What this replica says of itself, for a person."""
        return self._partition.state()

    # -- debts ----------------------------------------------------------------------------------

    def meter(self, keys: Sequence[str], deltas: Sequence[float]) -> list[float]:
        """
        Add each of *deltas*, in milliseconds, to the debt of its key; what the group has reached.

        A debt drains one millisecond a millisecond, on the server's clock. A negative delta pays
        back, never below zero; 0 only reads.

        Raises:
            TypeError: A key is no text or a delta no number; nothing was sent.
            ValueError: Lengths differ, a key is empty, or a delta is not finite; nothing was sent.
            NotConfigured: There is no arbiter.
            Unavailable: It did not answer.
        """
        return self._meter(keys, deltas)

    # -- leases ---------------------------------------------------------------------------------

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
        Hold *keys* for the body of a ``with``; no other holder of the group does meanwhile.

        Args:
            keys: Names within the group, taken together or not at all.
            wait: Seconds to wait at most. None waits without limit, 0 tries once.
            ttl: Seconds until the servers free them if this process dies; renewed while the body
                runs. None: ``atomicity_lock_ttl``.
            min_hold: Seconds from the grant for which the keys stay taken even if the body ends.
            max_hold: Seconds after which the lease counts as lost even if it is renewed.
            on_lost: Called once with the lease, in another thread, when a loss is noticed.
            holder: Who holds them, for those who look; default: this process.

        Raises (on entering):
            LockTimeout: *wait* ran out, because of another holder or because no majority answered.
            AlreadyHeld: This task or block holds one of them.
            NotConfigured: There is no arbiter.

        Raises (on leaving):
            LeaseLost: The lease ended while the body ran.
        """
        return self._locks.lock(
            keys,
            wait=wait,
            ttl=ttl,
            min_hold=min_hold,
            max_hold=max_hold,
            on_lost=on_lost,
            holder=holder,
        )

    def __repr__(self) -> str:
        return f"<Atom {self.group}>"

"""The thread that renews every lease of a process, and letting them go."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING

from celery_atomicity import clock, events, threads
from celery_atomicity.errors import NotConfigured, Unavailable
from celery_atomicity.primitives import estate, quorum
from celery_atomicity.primitives.lease import Lease, held

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from celery_atomicity.connection import Call, Clients, Reply
    from celery_atomicity.primitives.holding import Holding

# A keeper looks around at this pace, in seconds. Without leases it sleeps for good after some
# rounds: waking it costs the next acquisition a thread switch.
LOOK_AROUND = 1.0
ROUNDS = 30


class Keeper:
    """
    Renews every lease of this process, in one round trip per address for all that are due.

    One thread, started with the first lease, which never keeps the process from ending. A child
    starts with none, since what its parent holds is not its own.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._holdings: dict[str, Holding] = {}
        self._leaving: dict[str, Holding] = {}
        self.start_anew()
        _every.add(self)

    def start_anew(self) -> None:
        """Begin with no lease: at first, and after a fork, where those there are our parent's."""
        for holding in (*self._holdings.values(), *self._leaving.values()):
            holding.inherited = True
        self._holdings, self._leaving = {}, {}
        self._lock = threading.Lock()
        self._alarm = threads.Waiting()
        self._renewed = threads.Changes()
        self._unheld: deque[_Guard] = deque()
        self._keeping: object = None
        self._idle = 0
        self._wakes_at = 0.0
        self._renewing: frozenset[str] = frozenset()

    @property
    def leases(self) -> list[Lease]:
        """What this process holds."""
        with self._lock:
            return [Lease(self, holding) for holding in self._holdings.values()]

    def keep(self, holding: Holding) -> Lease:
        """Renew *holding* from now on."""
        with self._lock:
            self._holdings[holding.id] = holding
            if self._keeping is None:
                self._start()
            elif holding.due < self._wakes_at:
                self._alarm.wake()
        return Lease(self, holding)

    def guard(self, holding: Holding, owner: object) -> None:
        """
        Let *holding* go once *owner* is no more, if nobody has done so by then.

        For an owner that lets go when it is left: an exception from outside may strike before the
        first line of that, and then nobody can any more.
        """
        holding.guard = _Guard.of(holding, owner, self._unheld.append)

    def release(self, holding: Holding) -> None:
        """Stop renewing *holding*, and let its keys go; nothing, if our parent process has it."""
        if holding.inherited:
            return
        with self._lock:
            if holding.released:
                return
            # Until it is done, *abandon* may take it up where an exception from outside struck.
            self._leaving[holding.id] = holding
            holding.released = True
            mine = self._holdings.pop(holding.id, None) is not None
        # A renewal that is under way must not arrive after the release.
        if holding.id in self._renewing:
            self._renewed.wait_for(
                lambda: holding.id not in self._renewing, self._clients.settings.timeout
            )
        stood = not holding.lost()
        freed = self._let_go(holding)
        if mine and not stood:
            self._say_lost(holding)
        if stood and not freed:
            terms = holding.terms
            events.release_failed.tell(group=terms.group, keys=terms.keys, seconds=terms.ttl)

    def abandon(self, lease_id: str) -> None:
        """Let go what is kept under *lease_id*, or was about to be let go; usually nothing."""
        holding = self._holdings.get(lease_id)
        if holding is not None and not holding.released:
            self.release(holding)
        leaving = self._leaving.get(lease_id)
        if leaving is not None:  # an exception from outside struck while it was let go
            self._holdings.pop(lease_id, None)
            self._let_go(leaving)

    def _let_go(self, holding: Holding) -> bool:
        freed = let_go(self._clients, holding.release())
        estate.strike(holding.id)
        holding.guard = None
        self._leaving.pop(holding.id, None)
        return freed

    # -- the thread -----------------------------------------------------------------------------

    def _start(self) -> None:
        self._keeping = token = object()
        try:
            threads.start("atomicity-keeper", self._run, token)
        except BaseException:
            # There are too many; or we were torn away from one that runs, and ends of itself.
            self._keeping = None
            raise

    def _run(self, token: object) -> None:
        try:
            while self._keeping is token:
                while self._unheld:
                    self._let_go_in_peace(self._unheld.popleft().holding)
                batch, pause = self._due()
                if batch:
                    self._renew_in_peace(batch)
                else:
                    self._alarm.wait(pause)
        finally:
            if self._keeping is token:
                self._keeping = None

    def _due(self) -> tuple[list[Holding], float]:
        """What is to be renewed now; if nothing, seconds until something may be."""
        with self._lock:
            now = clock.monotonic()
            due = min((one.due for one in self._holdings.values()), default=None)
            self._idle = self._idle + 1 if due is None else 0
            if due is None:
                # Somebody may hold nothing for days; then sleep until the next lease.
                self._wakes_at = now + LOOK_AROUND if self._idle <= ROUNDS else math.inf
                return [], self._wakes_at - now
            # Sooner, if need be, since nobody wakes us for a lease whose owner is no more.
            self._wakes_at = min(due, now + LOOK_AROUND)
            if due > now:
                return [], self._wakes_at - now
            batch = [one for one in self._holdings.values() if one.goes_along(now)]
            self._renewing = frozenset([one.id for one in batch])
            return batch, 0.0

    def _let_go_in_peace(self, holding: Holding) -> None:
        """Let go what its owner cannot any more, whatever comes of it for the others."""
        try:
            self.abandon(holding.id)
        except Exception as error:  # noqa: BLE001 - which is not known
            events.renewing_broke.tell(error=error)

    def _renew_in_peace(self, batch: list[Holding]) -> None:
        """Renew *batch*, while none of it is released."""
        try:
            self._renew(batch)
        except Exception as error:  # noqa: BLE001 - which is not known
            # Nothing is known to raise here, and nothing may end the renewing of the others.
            events.renewing_broke.tell(error=error)
            for one in batch:
                one.postpone(clock.monotonic())
        finally:
            self._renewing = frozenset()
            self._renewed.tell()
        for one in batch:
            if one.released:
                # Its release may have given up waiting for us, and come first.
                let_go(self._clients, one.release(), at_once=True)

    def _renew(self, batch: list[Holding]) -> None:
        standing = [one for one in batch if not self._drop_if_lost(one)]
        if not standing:
            return
        sent = clock.monotonic()
        replies = self._ask(standing, put_back=False)
        absent = []
        for index, one in enumerate(standing):
            answers = replies[index]
            verdict = quorum.renewal([_standing(reply) for reply in answers])
            if verdict:
                one.renewed(sent, answers)
                if events.lease_renewed.listeners:
                    events.lease_renewed.tell(group=one.terms.group)
                if any(_standing(reply) is quorum.Standing.GONE for reply in answers):
                    absent.append(one)
            elif verdict is False:
                one.fail("its key was deleted, taken over or lost by the server")
                events.renewal_failed.tell(group=one.terms.group, refused=True)
                self._drop_if_lost(one)
            else:
                events.renewal_failed.tell(group=one.terms.group, refused=False)
                if not self._drop_if_lost(one):
                    one.postpone(clock.monotonic())
        if absent:
            # A majority stands, so nobody else can be given these: make the others whole again.
            self._ask(absent, put_back=True)

    def _ask(self, batch: list[Holding], *, put_back: bool) -> list[list[Reply | None]]:
        """The replies to the renewal of each of *batch*, in the order of the addresses."""
        width, count = len(batch), self._clients.count
        calls = [
            [one.renewal(address, put_back=put_back) for one in batch] for address in range(count)
        ]

        def enough(replies: list[Reply | None]) -> bool:
            return all(
                quorum.renewal([_standing(reply) for reply in replies[index::width]]) is not None
                for index in range(width)
            )

        # All are listened to that answer soon: on one of them the key may have to be put back.
        replies = self._clients.ask_each(calls, decided=lambda _: False, enough=enough)
        return [replies[index::width] for index in range(width)]

    def _drop_if_lost(self, one: Holding) -> bool:
        if not one.lost():
            return False
        with self._lock:
            mine = self._holdings.pop(one.id, None) is not None
        if mine:
            self._tell(one)
        return True

    def _tell(self, one: Holding) -> None:
        # In threads of their own: these may take their time, or end the thread, and a log may be
        # locked for good (by a time limit that struck in the middle of it); the others are renewed.
        if one.terms.on_lost is not None:
            threads.start("atomicity-on-lost", _call, one.terms.on_lost, Lease(self, one))
        threads.start("atomicity-lost", self._say_lost, one)

    @staticmethod
    def _say_lost(one: Holding) -> None:
        events.lease_lost.tell(
            group=one.terms.group,
            keys=one.terms.keys,
            fence=one.fence,
            holder=one.terms.holder,
            reason=one.reason,
        )


class _Guard(weakref.ref[object]):
    """
    Tells when the owner of a lease is no more.

    Wherever that is noticed, also in the middle of what holds our locks, it is told in one step.
    """

    __slots__ = ("holding",)

    holding: Holding

    @classmethod
    def of(cls, holding: Holding, owner: object, tell: Callable[[_Guard], None]) -> _Guard:
        guard = cls(owner, tell)
        guard.holding = holding
        return guard


def _call(on_lost: Callable[[Lease], None], lease: Lease) -> None:
    try:
        on_lost(lease)
    except BaseException as error:  # noqa: BLE001 - it is the user's own
        events.on_lost_raised.tell(keys=lease.keys, error=error)


def _standing(reply: Reply | None) -> quorum.Standing | None:
    if reply is None or not isinstance(reply.value, int):
        return None
    try:
        return quorum.Standing(reply.value)
    except ValueError:
        return None


def let_go(
    clients: Clients, call: Call, *, first: Call | None = None, at_once: bool = False
) -> bool:
    """
    Ask *call*, a release, of every address, *first* of the first; whether a majority has answered.

    Waits for no more than that, and *at_once* for nothing: what is asked later comes after it.
    """
    if clients.count == 1 and not at_once:
        try:
            return isinstance(clients.ask(*call).value, int)
        except Unavailable:
            return False
    needed = quorum.majority(clients.count)
    everywhere = [call]
    calls = [[first] if first else everywhere, *[everywhere] * (clients.count - 1)]

    def answered(replies: Sequence[Reply | None]) -> int:
        return sum(reply is not None and isinstance(reply.value, int) for reply in replies)

    try:
        replies = clients.ask_each(
            calls,
            decided=lambda replies: at_once or answered(replies) >= needed,
        )
    except (NotConfigured, Unavailable):
        return False
    return answered(replies) >= needed


_every: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _after_fork() -> None:
    for keeper in list(_every):
        keeper.start_anew()
    held.set(())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

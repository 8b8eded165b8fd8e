"""The loop that registers, what it was assigned, and those who want to be told."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from celery_atomicity import clock, events
from celery_atomicity.errors import AtomicityError, Unavailable
from celery_atomicity.primitives.board import Board
from celery_atomicity.primitives.membership import Assignment, Membership
from celery_atomicity.primitives.registration import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_atomicity.connection import Clients


@dataclass(frozen=True)
class PartitionState:
    """
    What one replica says of itself; for a person.

    Attributes:
        until: Seconds for which the assignment still lasts, 0.0 for none.
        registered: Seconds since the last answered registration; None: never.
        round_trip: Seconds the last answered registration took.
        error: Why the last registration failed, or why the loop has ended; empty: it did not.
    """

    group: str
    open: bool
    assignment: Assignment | None
    until: float
    registered: float | None = None
    round_trip: float | None = None
    error: str = ""


class Partition:
    """
    One replica of *group*: registers once per interval while it is open.

    Thread-safe. Reading does no I/O, in this process and in its forked children alike; only the
    process that opened it registers and tells listeners.

    Args:
        clients: The connections to ask over; the first address arbitrates.
        group: What the replicas share.
        interval: Seconds between registrations.
        gap: Slack as a fraction of the interval.
    """

    def __init__(self, clients: Clients, group: str, interval: float, gap: float) -> None:
        self.group = group
        self.interval = interval
        self.gap = gap
        self._clients = clients
        self._board = Board()
        self._home = os.getpid()
        self._in_pool_child = False
        self.start_anew()
        _every.add(self)

    def start_anew(self) -> None:
        """Begin with nobody to tell: at first, and after a fork. The board stays the parent's."""
        self._listeners: list[Callable[[Assignment | None], None]] = []
        self._told: Assignment | None = None
        self._telling = threading.RLock()
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None
        self._alive: Callable[[], bool] | None = None
        self._state = PartitionState(self.group, open=False, assignment=None, until=0.0)
        self._registered_at: float | None = None
        self._unclear = False

    def leave_to_parent(self) -> None:
        """In a pool child: never register here, also if the parent has not begun to yet."""
        self._in_pool_child = True

    # -- reading --------------------------------------------------------------------------------

    @property
    def assignment(self) -> Assignment | None:
        """Our index and how many we are; None: we own nothing at this moment."""
        found = self._board.read()
        return None if found is None else Assignment(*found)

    def slots(self, total: int) -> list[int] | None:
        """Our slots of ``0 .. total-1``, ascending; None: we own nothing at this moment."""
        found = self._board.read()
        if found is None:
            return None
        i, n = found
        return list(range(i, total, n))

    def owns(self, slot: int, total: int) -> bool:
        """Whether *slot* of ``0 .. total-1`` is ours at this moment."""
        if not 0 <= slot < total:
            raise ValueError(f"slot {slot!r} is not one of 0 .. {total - 1}")
        found = self._board.read()
        return found is not None and slot % found[1] == found[0]

    def state(self) -> PartitionState:
        """What ``inspect`` shows."""
        now = clock.monotonic()
        assignment = self.assignment
        return replace(
            self._state,
            open=self._stop is not None and not self._stop.is_set(),
            assignment=assignment,
            until=max(0.0, self._board.until - now) if assignment else 0.0,
            registered=None if self._registered_at is None else now - self._registered_at,
        )

    # -- opening and closing --------------------------------------------------------------------

    def open(self, alive: Callable[[], bool] | None = None) -> None:
        """
        Begin to register, in a thread of its own; returns at once. Opening twice is opening once.

        Args:
            alive: Asked before each registration. While it answers False, this replica neither
                registers nor owns anything.

        Raises:
            AtomicityError: In a child of the process that registers.
        """
        self._refuse_in_child("opened")
        with self._telling:
            if self._stop is not None and not self._stop.is_set():
                return
            if os.getpid() != self._home:
                # A beat that a worker forked registers for itself, on a board of its own.
                self._board, self._home = Board(), os.getpid()
            self._board.opener = self._home
            self._alive = alive
            self._state = replace(self._state, error="")
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._run,
                args=(self._stop,),
                name=f"atomicity-partition-{self.group}",
                daemon=True,
            )
            self._thread.start()

    def close(self) -> None:
        """
        Stand down: own nothing from now on, tell the listeners so, register no more.

        Waits for a listener that is running, and for a registration under way at most its timeout.
        """
        stop, thread = self._stop, self._thread
        if stop is None:
            return
        stop.set()
        self._board.write(None, 0.0)
        with self._telling:
            if self._stop is stop:
                self._stop = self._thread = None
                self._board.opener = 0
            self._tell(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._clients.settings.timeout)

    def onassigned(self, listener: Callable[[Assignment | None], None]) -> Callable[[], None]:
        """
        Have *listener* told the assignment as it stands, now, and then each change of it.

        It runs in the calling thread now and in the registering thread later, never twice at the
        same time; while it runs, nothing is registered. If it raises now, the caller gets the
        error and it is not added. If it raises later, the replica stands down for good: what it
        owned may be half taken up.

        Returns:
            What removes it again; removing twice is removing once.

        Raises:
            AtomicityError: In a child of the process that registers, where nobody could tell it.
        """
        self._refuse_in_child("listened to")
        with self._telling:
            listener(self._told)
            self._listeners.append(listener)

        def off() -> None:
            with self._telling:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return off

    def _refuse_in_child(self, what: str) -> None:
        if self._in_pool_child or self._board.opener not in (0, os.getpid()):
            raise AtomicityError(
                f"The group {self.group!r} cannot be {what} in a pool child: its worker's main "
                "process registers for it. Read slots, owns or assignment here, or listen there, "
                "for example in a handler of the worker_init signal."
            )

    # -- the loop -------------------------------------------------------------------------------

    def _run(self, stop: threading.Event) -> None:
        membership = Membership(self.interval, self.gap)
        try:
            while not stop.is_set():
                if clock.monotonic() >= membership.next_at:
                    self._step(membership)
                self._publish(membership, stop)
                clock.wait(stop, self._pause(membership))
        except Exception as error:  # noqa: BLE001 - whatever a listener raises
            self._fall(error, stop)

    def _step(self, membership: Membership) -> None:
        """Register once, if this process is well enough to."""
        if self._alive is not None and not self._alive():
            membership.reset()
            membership.failed(clock.monotonic())
            self._state = replace(self._state, error="the process that it stands for has stalled")
            return
        began = clock.monotonic()
        try:
            answer = register(self._clients, self.group, self.interval)
        except Exception as error:  # noqa: BLE001 - only a listener ends the loop
            membership.failed(clock.monotonic())
            self._failed(error, clock.monotonic() - began)
            return
        membership.registered(answer)
        seconds = answer.received - answer.sent
        self._registered_at = answer.received
        self._unclear = False
        self._state = replace(self._state, error="", round_trip=seconds)
        events.registered.tell(group=self.group, seconds=seconds)

    def _failed(self, error: Exception, seconds: float) -> None:
        reason = str(error) or type(error).__name__
        # What the connection does not say by itself: there was an answer, but to what?
        unclear = isinstance(error, Unavailable) and error.__cause__ is None
        self._state = replace(self._state, error=reason)
        events.registration_failed.tell(group=self.group, seconds=seconds, reason=reason)
        if not isinstance(error, Unavailable):
            # What nobody foresaw is tried again, and seen.
            events.registration_broke.tell(group=self.group, error=error)
        elif unclear and not self._unclear:
            # It is reached, and so is not said to be away.
            events.registration_unclear.tell(group=self.group, reason=reason)
        self._unclear = unclear

    def _pause(self, membership: Membership) -> float:
        """Seconds until something is due: a registration, the begin or the end of what we own."""
        now = clock.monotonic()
        return membership.due(now) - now

    def _publish(self, membership: Membership, stop: threading.Event) -> None:
        assignment = membership.at(clock.monotonic())
        with self._telling:
            if stop.is_set():
                return
            self._board.write(assignment, membership.deadline)
            self._tell(assignment)

    def _tell(self, assignment: Assignment | None) -> None:
        if assignment == self._told:
            return
        self._told = assignment
        if assignment is None:
            events.unassigned.tell(group=self.group)
        else:
            events.assigned.tell(group=self.group, i=assignment.i, n=assignment.n)
        for listener in list(self._listeners):
            listener(assignment)

    def _fall(self, error: Exception, stop: threading.Event) -> None:
        """End the loop for good: whoever was to be told may have taken up half of it."""
        self._board.write(None, 0.0)
        stop.set()
        events.replica_fell.tell(group=self.group, error=error)
        with self._telling:
            self._state = replace(self._state, error=f"{type(error).__name__}: {error}")
            if self._told is not None:
                self._told = None
                events.unassigned.tell(group=self.group)
            for listener in list(self._listeners):
                try:
                    listener(None)
                except Exception as late:  # noqa: BLE001 - the others are to be told
                    events.listener_raised.tell(what=f"group {self.group}", error=late)


_every: weakref.WeakSet[Partition] = weakref.WeakSet()


def leave_to_parent() -> None:
    """To be called in a pool child: what its worker opens is not opened here."""
    for partition in list(_every):
        partition.leave_to_parent()


def _after_fork() -> None:
    for partition in list(_every):
        partition.start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

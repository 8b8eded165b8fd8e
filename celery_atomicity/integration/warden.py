"""The worker's main process lets go what its killed children held."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING, Any

from billiard import current_process
from celery import bootsteps
from celery.concurrency import prefork
from celery.signals import worker_shutdown

from celery_atomicity import clock, events
from celery_atomicity.integration.app import Atomicity
from celery_atomicity.keys import locks_of
from celery_atomicity.primitives import estate, keeper

if TYPE_CHECKING:
    from celery_atomicity.connection import Clients
    from celery_atomicity.primitives.estate import Estate, Legacy

#: Seconds between two looks. A killed child's keys are free within one, and a look costs no I/O.
PACE = 0.2

#: How many ids are remembered as seen to, so that a page is not acted upon twice.
_REMEMBERED = 4096


def page_of_this_process() -> int | None:
    """The place of a pool child in its pool; None in every other process."""
    index = getattr(current_process(), "index", None)
    return index if isinstance(index, int) else None


def is_gone(pid: int) -> bool:
    """Whether the child *pid* of this process has ended; it is not reaped, which is the pool's."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


class Warden:
    """
    Watches the children of a pool, and releases the leases that a dead one left.

    Only a child that has ended is acted for: one that is about to be killed still runs, and its
    keys are not another holder's to have.

    Args:
        clients: Asked to release; of the main process.
        left: Where the children write what they hold; made before they are forked.
    """

    def __init__(self, clients: Clients, left: Estate) -> None:
        self._clients = clients
        self._left = left
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._seen_to: dict[str, None] = {}

    def start(self) -> None:
        """Watch from now on, in a thread that never keeps the process from ending."""
        self._thread = threading.Thread(target=self._run, name="atomicity-warden", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look a last time and stop watching; waits for no more than two timeouts. Idempotent."""
        self._stopping.set()
        if self._thread is not None and self._process == os.getpid():
            self._thread.join(2 * self._clients.settings.timeout)

    def look(self) -> None:
        """Release what those left that are gone by now."""
        left = [one for one in self._left.read() if one.id not in self._seen_to]
        gone = {pid for pid in {one.pid for one in left} if is_gone(pid)}
        for one in left:
            if one.pid in gone:
                self._release(one)
        while len(self._seen_to) > _REMEMBERED:
            self._seen_to.pop(next(iter(self._seen_to)))

    def _run(self) -> None:
        ending = False
        while not ending:
            ending = clock.wait(self._stopping, PACE)
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - which is not known
                # One page that cannot be read must not end the watch over the others.
                events.watching_broke.tell(error=error)

    def _release(self, one: Legacy) -> None:
        self._seen_to[one.id] = None
        freed = keeper.let_go(self._clients, one.release())
        event = events.left_by_dead if freed else events.stuck_by_dead
        event.tell(pid=one.pid, keys=locks_of(one.places))


class WardenStep(bootsteps.StartStopStep):
    """Starts the warden of a worker whose tasks run in child processes."""

    def include_if(self, worker: Any) -> bool:
        """Whether there are children, and an arbiter to ask in their name."""
        return issubclass(worker.pool_cls, prefork.TaskPool) and (
            Atomicity.of(worker.app).settings.configured
        )

    def create(self, worker: Any) -> Warden:
        """Make the memory that the children share, before the pool forks the first of them."""
        clients = Atomicity.of(worker.app).clients
        warden = Warden(clients, estate.found(page_of_this_process))
        # Steps are stopped in an order that says nothing of the pool, and a cold shutdown kills
        # the children: what they held is let go at the very end.
        worker_shutdown.connect(lambda **_: warden.stop(), weak=False, sender=worker)
        atexit.register(warden.stop)
        return warden

    def stop(self, worker: Any) -> None:
        """Go on watching until the pool has ended."""

    def terminate(self, worker: Any) -> None:
        """Go on watching until the pool has ended."""

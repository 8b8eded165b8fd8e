"""A worker as a replica: it registers while it runs, and says how it stands when asked."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from celery import bootsteps
from celery.signals import worker_process_init
from celery.worker.control import inspect_command

from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.beat.embedded import SchedulerStep
from celery_atomicity.integration.beat.guard import guard
from celery_atomicity.integration.standing import REASON
from celery_atomicity.integration.tasks import stopping
from celery_atomicity.integration.warden import WardenStep, page_of_this_process
from celery_atomicity.primitives.partition import leave_to_parent

if TYPE_CHECKING:
    from celery import Celery

    from celery_atomicity.atom import Atom


class ReplicaStep(bootsteps.StartStopStep):
    """
    Registers the worker in its groups.

    A step of the worker, not of its consumer: that one starts anew whenever the broker was lost.
    What the pool's children read is made here, before the first of them is forked; the thread that
    registers starts after they are, and after an embedded beat is: what a thread is in the middle
    of stays so in a forked child.
    """

    requires = ("celery.worker.components:Pool", "celery.worker.components:Beat")
    label = "Atomicity"

    def __init__(self, worker: Any, **_options: Any) -> None:
        atomicity = Atomicity.of(worker.app)
        self._atoms: list[Atom] = atomicity.atoms_of_workers()
        guard(worker.app)

    def start(self, worker: Any) -> None:
        """Begin to register."""
        Atomicity.of(worker.app).announce()
        for atom in self._atoms:
            atom.open()

    def close(self, _worker: Any) -> None:
        """Stand down first of all, before the worker waits for the tasks that still run."""
        stopping.stop()
        for atom in self._atoms:
            atom.close()

    def stop(self, worker: Any) -> None:
        """Stand down."""
        self.close(worker)

    def terminate(self, worker: Any) -> None:
        """Stand down."""
        self.close(worker)


@inspect_command()
def atomicity(state: Any, **_options: Any) -> list[dict[str, Any]]:
    """How this worker stands in each of its groups."""
    atomicity = Atomicity.of(state.app)
    answers = [asdict(atom.state()) for atom in atomicity.atoms_of_workers()]
    for answer in answers:
        answer["stood_down"] = atomicity.standing.is_down
        if answer["stood_down"]:
            answer["error"] = answer["error"] or REASON
    return answers


@worker_process_init.connect(weak=False)
def _in_pool_child(**_options: Any) -> None:
    if page_of_this_process() is not None:  # the solo pool says so of the main process, too
        leave_to_parent()


def install(app: Celery) -> None:
    """Add the steps to the workers of *app*."""
    app.steps["worker"].update((ReplicaStep, WardenStep, SchedulerStep))

"""``celery worker -B -S atomicity``: the beat that a worker starts beside itself."""

from __future__ import annotations

from typing import Any

from celery import bootsteps
from celery.worker.components import StateDB

from celery_atomicity import events

#: What the entry point of `PartitionedScheduler` is called.
NAME = "atomicity"

_CELERYS_OWN = "celery.beat:PersistentScheduler"


class SchedulerStep(bootsteps.Step):
    """
    Takes ``-S atomicity`` for what it means to ``celery beat``.

    To ``celery worker`` it names a file for the revoked tasks (``--statedb``). Taken for that, each
    worker's beat would be Celery's own, and send every tick once more.
    """

    requires = (StateDB,)

    def __init__(self, worker: Any, *, beat: Any = False, **options: Any) -> None:
        if beat and worker.statedb == NAME and worker.scheduler == _CELERYS_OWN:
            worker.scheduler, worker.statedb = NAME, None
            # Made before this one, and put to use after it.
            for step in worker.blueprint.order:
                if isinstance(step, StateDB):
                    step.enabled = False
            events.scheduler_taken.tell(scheduler=NAME)
        super().__init__(worker, beat=beat, **options)

"""Tasks of the nodes whose logs are read, and what they are told; copied to the nodes."""

import os
import time

from celery import current_app, shared_task
from celery.signals import worker_init

from celery_atomicity import Atomicity, assigned, current_atom, rate_limited, singleton_by

#: The second group of the workers.
SECOND = "second"


@shared_task
@singleton_by("a key", wait=30)
@rate_limited(1000, burst=1000)
def work():
    """Hold a key for a moment."""
    time.sleep(0.01)


@shared_task
def owned():
    """Return the process, and what it owns in each of the groups."""
    second = Atomicity.of(current_app._get_current_object()).atom(SECOND)
    return os.getpid(), current_atom.slots(4), second.slots(4)


@shared_task
def tick():
    """Be sent by beat."""


@worker_init.connect
def _take_part(sender=None, **_options):
    Atomicity(sender.app, groups=[SECOND])


@assigned.connect
def _raise(**_):
    """What a receiver raises does no harm."""
    if os.environ.get("BREAK_RECEIVER"):
        raise RuntimeError("the receiver cannot take it")

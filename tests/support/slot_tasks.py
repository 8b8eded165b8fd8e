"""Tasks of the nodes under test that ask for slots; their source is copied to the nodes."""

import os
import time

from celery import shared_task
from celery.signals import worker_init

from celery_atomicity import AtomicityError, current_atom


@shared_task(bind=True)
def slots(self, total=8):
    """Return the node that runs it, the process, and the node's slots."""
    return self.request.hostname, os.getpid(), current_atom.slots(total)


@shared_task(bind=True)
def watch(self, seconds, total=8):
    """Return the node's slots as they are all the while it runs, changes only."""
    seen = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        now = current_atom.slots(total)
        if not seen or seen[-1] != now:
            seen.append(now)
        time.sleep(0.01)
    return self.request.hostname, seen


@shared_task
def listen():
    """Return how a pool child is told that it cannot listen."""
    try:
        current_atom.onassigned(print)
    except AtomicityError as error:
        return str(error)
    return None


@worker_init.connect
def _break_a_listener(**_options):
    if os.environ.get("BREAK_LISTENER"):
        current_atom.onassigned(_fail)


def _fail(assignment):
    if assignment is not None:
        raise RuntimeError("the listener cannot take it up")

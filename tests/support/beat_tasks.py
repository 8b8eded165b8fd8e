"""
Tasks that beats send, for the acceptance tests; each notes what it ran for.

Notes are kept on a server of their own, which no test takes away.
"""

import json
import os
import time
from functools import cache

from celery import shared_task
from celery.signals import before_task_publish
from redis import Redis

from celery_atomicity import partitioned

TICKS = "ticks"
NOTES = "TEST_NOTES"  # the variable that says where they are kept
SLOTS, MANY_SLOTS = 16, 64


@before_task_publish.connect
def stamp(headers=None, **_):
    headers["sent_at"] = time.time()


@cache
def notes(_process):
    return Redis.from_url(os.environ[NOTES])


def note(task, slot=None):
    request = task.request
    tick = {
        "entry": request.atomicity_beat["entry"],
        "copy": request.atomicity_beat["copy"],
        "slot": slot,
        "due": request.atomicity_due,
        "id": request.id,
        "sent": request.sent_at,
        "by": request.origin,
        "at": time.time(),
    }
    notes(os.getpid()).rpush(TICKS, json.dumps(tick))


@shared_task(bind=True, ignore_result=True)
def tick(self):
    """Runs for an entry that is not partitioned."""
    note(self)


@shared_task(bind=True, ignore_result=True)
@partitioned(slots=SLOTS)
def sweep(self, slot):
    """Runs for a slot."""
    assert self.request.atomicity_slot == slot
    note(self, slot)


@shared_task(bind=True, ignore_result=True)
@partitioned(slots=MANY_SLOTS)
def wide_sweep(self, slot):
    """Runs for one of more slots."""
    assert self.request.atomicity_slot == slot
    note(self, slot)

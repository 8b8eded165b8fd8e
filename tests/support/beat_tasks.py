"""Tasks that beats send, for the acceptance tests; each notes in the broker what it ran for."""

import json
import time

from celery import shared_task
from redis import Redis

from celery_atomicity import partitioned

TICKS = "ticks"
SLOTS = 16


def note(task, slot=None):
    request = task.request
    tick = {
        "entry": request.atomicity_beat["entry"],
        "slot": slot,
        "due": request.atomicity_due,
        "id": request.id,
        "at": time.time(),
    }
    with Redis.from_url(task.app.conf.broker_url) as client:
        client.rpush(TICKS, json.dumps(tick))


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

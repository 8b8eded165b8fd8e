"""
The shop, whose workers also note what they own, what their beats send, and what reaches them.

What they own they note on a common grid of moments. Readings of the same moment come from processes
that looked within *LATE* of it, so that two of them can be compared.
"""

import json
import threading
import time

from celery.signals import after_task_publish, task_received, worker_ready

from celery_atomicity import Atomicity
from shop.celery import app, name
from shop.journal import client

__all__ = ["app"]

MOMENTS, SENT, RECEIVED = f"{name}:moments", f"{name}:sent", f"{name}:received"

# Seconds between two moments, and how late one may look for it to count.
GRID, LATE = 0.025, 0.004


@worker_ready.connect(weak=False)
def observe(sender, **_options):
    threading.Thread(target=look, args=(sender.hostname,), daemon=True).start()


@after_task_publish.connect(weak=False)
def sent(headers, **_options):
    if "atomicity_due" in headers:
        tick = [
            headers["id"],
            headers["atomicity_slot"],
            headers["atomicity_due"],
            time.monotonic(),
        ]
        client().rpush(SENT, json.dumps(tick))


@task_received.connect(weak=False)
def received(request, **_options):
    client().rpush(RECEIVED, json.dumps(request.id))


def look(worker):
    atom = Atomicity.of(app).atom()
    number = int(time.monotonic() / GRID)
    while True:
        number = max(number + 1, int(time.monotonic() / GRID))
        time.sleep(max(0.0, number * GRID - time.monotonic()))
        assignment = atom.assignment
        if time.monotonic() - number * GRID > LATE:
            continue
        owned = None if assignment is None else [assignment.i, assignment.n]
        client().rpush(MOMENTS, json.dumps([number, worker, owned]))

"""
What happened, for whoever wants to check: a list on the broker's Redis.

Instants are those of the machine's monotonic clock, which all processes of one machine share.
"""

import json
import time
from contextlib import contextmanager
from functools import cache

from celery import current_task
from redis import Redis

from shop.celery import app, name

KEY = f"{name}:journal"


@cache
def client():
    """One client a process; redis-py makes its connections anew in a forked child."""
    return Redis.from_url(app.conf.broker_url)


def note(event, key, **details):
    request = current_task.request
    entry = {"event": event, "key": key, "at": time.monotonic(), "worker": request.hostname}
    client().rpush(KEY, json.dumps({**entry, "task": request.id, **details}))


@contextmanager
def span(event, key, **details):
    """Note the start and the end of the body."""
    note(f"{event} starts", key, **details)
    yield
    note(f"{event} ends", key, **details)

"""
One task under each of the packages that let one run at a time go on, for *correctness.py*.

PEER says which package, BROKER and LOCKS which servers. All are given the same EXPIRY: the time
after which the key of a dead holder is free.
"""

import json
import os
import time
from contextlib import contextmanager

from celery import Celery
from redis import Redis

EXPIRY = 6  # seconds
JOURNAL = "journal"
NAME = "peers.work"
PEER, BROKER, LOCKS = (os.environ[name] for name in ("PEER", "BROKER", "LOCKS"))

app = Celery("peers", broker=BROKER, backend=BROKER)
app.conf.update(broker_connection_retry_on_startup=True, worker_prefetch_multiplier=1)


def note(event, task, key):
    entry = {"event": event, "id": task.request.id, "pid": os.getpid(), "key": key}
    with Redis.from_url(BROKER) as client:
        client.rpush(JOURNAL, json.dumps(entry))


def work(self, key, seconds=0.05, retries=0):
    note("start", self, key)
    if self.request.retries < retries:
        raise self.retry(countdown=0)
    try:
        time.sleep(seconds)
    finally:
        note("end", self, key)


def under_atomicity():
    from celery_atomicity import Atomicity, singleton_by

    app.conf.update(atomicity_redis=LOCKS, atomicity_lock_ttl=EXPIRY)
    Atomicity(app)
    return app.task(bind=True, name=NAME)(singleton_by("{key}")(work))


def under_singleton():
    from celery_singleton import Singleton

    app.conf.singleton_backend_url = LOCKS
    options = {"base": Singleton, "unique_on": ["key"], "lock_expiry": EXPIRY}
    return app.task(bind=True, name=NAME, **options)(work)


def under_once():
    from celery_once import QueueOnce

    settings = {"url": LOCKS, "default_timeout": EXPIRY}
    app.conf.ONCE = {"backend": "celery_once.backends.Redis", "settings": settings}
    return app.task(bind=True, name=NAME, base=QueueOnce, once={"keys": ["key"]})(work)


def under_heimdall():
    from celery_heimdall import HeimdallTask

    class Task(HeimdallTask):
        abstract = True

        def setup_redis(self):
            return Redis.from_url(LOCKS)

    def key(args, kwargs):
        return f"work-{args[0] if args else kwargs['key']}"

    options = {"unique": True, "unique_timeout": EXPIRY, "key": key}
    return app.task(bind=True, name=NAME, base=Task, heimdall=options)(work)


def under_recipe():
    """Celery's documentation, "Ensuring a task is only executed one at a time"."""
    cache = Redis.from_url(LOCKS)

    @contextmanager
    def lock(lock_id, oid):
        timeout_at = time.monotonic() + EXPIRY - 0.3
        status = cache.set(lock_id, oid, nx=True, ex=EXPIRY)
        try:
            yield status
        finally:
            if time.monotonic() < timeout_at and status:
                cache.delete(lock_id)

    def locked(self, key, seconds=0.05, retries=0):
        with lock(f"lock-{key}", self.app.oid) as acquired:
            if acquired:
                return work(self, key, seconds, retries)
        return "being run by another worker"

    return app.task(bind=True, name=NAME)(locked)


PEERS = {
    "celery-atomicity": under_atomicity,
    "celery-singleton": under_singleton,
    "celery-once": under_once,
    "celery-heimdall": under_heimdall,
    "recipe": under_recipe,
}

task = PEERS[PEER]()

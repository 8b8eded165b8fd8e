"""
The app of the fleet: ``celery -A chaos.fleetapp``. Each of its tasks writes down what it was given.

What it is told comes as one variable of the environment, CHAOS, in JSON.
"""

import json
import os
import time

from celery import Celery

from celery_atomicity import (
    Atomicity,
    LockTimeout,
    current_atom,
    current_lease,
    partitioned,
    rate_limited,
    singleton_by,
)
from chaos import broken
from chaos.journal import Journal, now
from chaos.table import Table

TOLD = json.loads(os.environ["CHAOS"])
SCOPE = "chaos"
PAUSE = 0.02  # seconds between two writes of a holder

journal = Journal(TOLD["journal"], TOLD["replica"])

app = Celery("chaos", broker=TOLD["broker"])
app.conf.update(
    atomicity_redis=TOLD["redis"],
    atomicity_interval=TOLD["interval"],
    atomicity_timeout=TOLD["timeout"],
    atomicity_lock_ttl=TOLD["ttl"],
    beat_schedule={
        name: {"task": f"chaos.{'sweep' if slots else 'tick'}", "schedule": every}
        for name, (every, slots) in TOLD["schedule"].items()
    },
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options=TOLD["transport"],
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
)
Atomicity(app)
if TOLD.get("broken"):
    broken.BUILDS[TOLD["broken"]]()

_tables = {}
asked = {}  # task id: when its execution began, before its lease was asked for


def table():
    if os.getpid() not in _tables:
        _tables[os.getpid()] = Table(TOLD["table"])
    return _tables[os.getpid()]


def work(lease, keys, seconds, began):
    """
    Write down that the lease lives, and write under its fence, for so many *seconds*.

    It writes once more after it has seen that the lease is lost: the table has to decide.
    """
    journal.note("given", lease=lease.id, fence=lease.fence, keys=keys, asked=began)
    ends = now() + seconds
    while True:
        seen, lost = now(), lease.lost
        if not lost:
            journal.note("lives", lease=lease.id, at=seen)
        for key in keys:
            # Whoever is frozen right here writes too late.
            if not table().write(key, lease.fence, TOLD["replica"]):
                journal.note("refused", lease=lease.id, key=key, lost=lease.lost)
        if lost:
            journal.note("lost", lease=lease.id)
        if lost or now() >= ends:
            return
        time.sleep(PAUSE)


def hold(self, key, seconds):
    work(current_lease, [key], seconds, asked.pop(self.request.id, None))


def holding(conflict, **options):
    """A task that holds a key and meets another holder in the way of *conflict*."""
    single = singleton_by(
        "{key}", scope=SCOPE, on_conflict=conflict, on_lost="log", wait=3.0, **options
    )

    def body(self, key, seconds):
        hold(self, key, seconds)

    return app.task(name=f"chaos.hold_{conflict}", bind=True)(single(body))


hold_wait, hold_retry, hold_skip = map(holding, ("wait", "retry", "skip"))


@app.task(name="chaos.hold_both", bind=True)
def hold_both(self, keys, seconds):
    """Both or none, in the order they are named in."""
    began = now()
    lock = current_atom.lock([f"{SCOPE}:{key}" for key in keys], wait=3.0)
    try:
        lease = lock.acquire()
    except LockTimeout:
        return
    try:
        work(lease, keys, seconds, began)
    finally:
        lease.release()


@app.task(name="chaos.paced")
@rate_limited(TOLD["pace"][0], burst=TOLD["pace"][1], scope="pace")
def paced():
    journal.note("start", limit="pace")


@app.task(name="chaos.tenant")
@rate_limited(TOLD["tenant"][0], burst=TOLD["tenant"][1], key="{name}", scope="tenant")
def tenant(name):
    journal.note("start", limit=f"tenant {name}")


def ran(task):
    of = task.request.atomicity_beat
    journal.note(
        "ran",
        id=task.request.id,
        copy=of["copy"],
        entry=of["entry"],
        slot=of["slot"],
        due=task.request.atomicity_due,
        sent=task.request.sent_at,
    )


@app.task(name="chaos.tick", bind=True)
def tick(self):
    ran(self)


@app.task(name="chaos.sweep", bind=True)
@partitioned(slots=TOLD["slots"])
def sweep(self, slot):
    ran(self)


from chaos import observers  # noqa: E402 - needs the app

observers.observe(app, journal, asked, TOLD)

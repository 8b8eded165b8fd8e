import os
import time

from celery import Celery

from celery_atomicity import Atomicity, lease_lost, partitioned, rate_limited, singleton_by
from metrics import exporter  # noqa: F401 - it connects to Celery's signals

app = Celery("metrics", broker=os.environ.get("METRICS_BROKER", "redis://localhost:6379/0"))
app.conf.beat_schedule = {
    "sweep": {"task": "metrics.celery.sweep", "schedule": 2.0},
    "sync": {"task": "metrics.celery.sync", "schedule": 0.5, "args": [17]},
    "call": {"task": "metrics.celery.call_partner", "schedule": 0.5},
}
app.conf.task_ignore_result = True
app.conf.atomicity_interval = float(os.environ.get("METRICS_INTERVAL", "5"))

Atomicity(app)


@app.task
@singleton_by("{account_id}", on_conflict="retry")
def sync(account_id):
    """Bring one account up to date; takes longer than it takes beat to ask for it again."""
    time.sleep(0.8)
    return account_id


@app.task
@rate_limited("1/s")
def call_partner():
    pass


@app.task
@partitioned(slots=8)
def sweep(slot):
    pass


@lease_lost.connect
def tell_somebody(sender, keys, reason, **_):
    print(f"{', '.join(keys)} of the group {sender} was lost: {reason}")

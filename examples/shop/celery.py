import os

from celery import Celery

from celery_atomicity import Atomicity

name = os.environ.get("SHOP_NAME", "shop")

app = Celery(
    name,
    broker=os.environ.get("SHOP_BROKER", "redis://localhost:6379/0"),
    include=["shop.tasks"],
)
app.conf.update(
    task_ignore_result=True,
    # A task whose worker dies is run again by another: with a Redis broker, after the timeout.
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={
        "visibility_timeout": 8,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "global_keyprefix": f"{name}:",
    },
    # As many beats as there are workers: each sends the slots that it owns.
    beat_schedule={"sweep": {"task": "shop.tasks.sweep", "schedule": 6.0}},
)

Atomicity(app)

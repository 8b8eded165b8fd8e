"""Tasks that hold a key, for the acceptance tests; each notes beside its result what it does."""

import json
import os
import time

from celery import shared_task
from celery.exceptions import Ignore, Reject
from redis import Redis

from celery_atomicity import current_lease, singleton_by

JOURNAL = "journal"


def note(task, event, **facts):
    """Append to the one journal of all nodes, whose order is that of what happened."""
    request = task.request
    entry = {"event": event, "id": request.id, "pid": os.getpid(), "node": request.hostname}
    with Redis.from_url(task.app.conf.result_backend) as client:
        client.rpush(JOURNAL, json.dumps(entry | facts))


def work(task, key, seconds):
    note(task, "start", key=key, fence=current_lease.fence, retries=task.request.retries)
    time.sleep(seconds)
    note(task, "end", key=key)
    return current_lease.fence


@shared_task(bind=True)
@singleton_by("{key}", scope="hold")
def hold(self, key, seconds=0.05):
    """Waits for its key."""
    return work(self, key, seconds)


@shared_task(bind=True, acks_late=True, reject_on_worker_lost=True)
@singleton_by("{key}", scope="hold", ttl=2)
def hold_briefly(self, key, seconds=0.05):
    """Its key is free two seconds after its worker died."""
    return work(self, key, seconds)


@singleton_by("{key}", scope="hold", on_conflict="skip")
@shared_task(bind=True)
def hold_or_skip(self, key, seconds=0.05):
    return work(self, key, seconds)


@shared_task(bind=True)
@singleton_by("{key}", scope="hold", on_conflict="raise")
def hold_or_raise(self, key, seconds=0.05):
    return work(self, key, seconds)


@shared_task(bind=True)
@singleton_by("{key}", scope="hold", on_conflict="retry")
def hold_or_come_back(self, key, seconds=0.05):
    work(self, key, seconds)
    return self.request.retries


@shared_task(bind=True, max_retries=3)
@singleton_by("{key}", on_conflict="skip")
def retry_three_times(self, key):
    """Comes back at once, each time, and would be skipped if it met its own key."""
    note(self, "start", key=key, retries=self.request.retries)
    if self.request.retries < 3:
        raise self.retry(countdown=0)
    return self.request.retries


@singleton_by("{key}", on_conflict="skip")
@shared_task(bind=True, autoretry_for=(ValueError,), retry_kwargs={"countdown": 0})
def fail_three_times(self, key):
    note(self, "start", key=key, retries=self.request.retries)
    if self.request.retries < 3:
        raise ValueError(key)
    return self.request.retries


@shared_task(bind=True)
@singleton_by("{key}", scope="hold", on_conflict="skip")
def replace_itself(self, key):
    raise self.replace(hold_or_skip.si(key))


@shared_task(bind=True)
@singleton_by("{key}", scope="hold")
def end_by(self, key, how):
    note(self, "start", key=key)
    raise {"ignore": Ignore(), "reject": Reject("no", requeue=False)}[how]


@shared_task(bind=True)
@singleton_by("{key}", scope="hold", ttl=1)
def lose_and_fail(self, key, seconds):
    return work(self, key, seconds)


@shared_task(bind=True)
@singleton_by("{key}", scope="hold", ttl=1, on_lost="log")
def lose_and_log(self, key, seconds):
    note(self, "start", key=key)
    time.sleep(seconds)
    return "done"


@shared_task(bind=True)
@singleton_by("{key}", scope="hold", ttl=1, on_lost="interrupt")
def lose_and_stop(self, key, seconds):
    try:
        return work(self, key, seconds)
    except BaseException as error:
        note(self, "stopped", key=key, error=type(error).__name__)
        raise


@shared_task
def quick():
    return "quick"


@shared_task
def collect(results):
    return results


@shared_task
def fail(message):
    raise ValueError(message)


@shared_task
@singleton_by("errors", scope="hold")
def on_error(request, error, traceback):
    """An error link that Celery calls where the task has failed, and not by a message."""
    note(on_error, "error", of=request.id, fence=current_lease.fence)


@shared_task(bind=True)
@singleton_by("{key}", scope="hold", ttl=1)
def hold_and_look(self, key, seconds):
    """Notes at its end whether it still has its key."""
    note(self, "start", key=key, fence=current_lease.fence)
    time.sleep(seconds)
    note(self, "end", key=key, lost=current_lease.lost)


@shared_task(bind=True)
@singleton_by("{key}", scope="hold", ttl=6)
def hold_until_lost(self, key):
    """Ends a moment after it was told."""
    note(self, "start", key=key, fence=current_lease.fence)
    while not current_lease.lost:
        time.sleep(0.02)
    note(self, "told", key=key)
    time.sleep(1)


@shared_task(bind=True, acks_late=True)
@singleton_by("{key}", scope="hold", ttl=2)
def hold_late(self, key, seconds):
    """Its message comes again while it runs, where the broker thinks it lost."""
    return work(self, key, seconds)


@shared_task(bind=True, acks_late=True)
@singleton_by("{key}", scope="hold", ttl=2, on_conflict="skip")
def hold_late_or_skip(self, key, seconds):
    return work(self, key, seconds)


@shared_task(bind=True, acks_late=True)
@singleton_by("{key}", scope="hold", ttl=2, on_conflict="raise")
def hold_late_or_raise(self, key, seconds):
    return work(self, key, seconds)

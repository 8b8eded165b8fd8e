"""Tasks under limits, for the acceptance tests; each notes in the broker when it starts."""

import json
import os
import time
from functools import cache

from celery import shared_task
from redis import Redis

from celery_atomicity import hold_back, rate_limited, singleton_by

STARTS = "starts"


@cache
def journal(url, _pid):
    return Redis.from_url(url)


def note(task, **facts):
    now = time.time()
    request = task.request
    facts |= {
        "at": now,
        "id": request.id,
        "name": task.name,
        "node": request.hostname,
        "retries": request.retries,
    }
    client = journal(task.app.conf.result_backend, os.getpid())
    client.rpush(STARTS, json.dumps(facts))


@shared_task(bind=True, max_retries=0)
@rate_limited("100/s", scope="fast")
def fast(self, number):
    note(self, number=number)


@shared_task(bind=True, max_retries=0)
@rate_limited("20/s", scope="steady")
def steady(self, number):
    note(self, number=number)


@shared_task(bind=True)
@rate_limited("10/s", key="{tenant}", burst=20, scope="bursting")
def bursting(self, tenant):
    note(self, tenant=tenant)


@shared_task(bind=True, acks_late=True, reject_on_worker_lost=True)
@rate_limited("20/s", scope="late")
def late(self, number):
    note(self, number=number)


@shared_task(bind=True)
@rate_limited("1/m", scope="refusing", on_limit="raise")
def raising(self):
    note(self)


@rate_limited("1/m", scope="skipping", on_limit="skip")
@shared_task(bind=True)
def skipping(self):
    note(self)
    return "ran"


@shared_task(bind=True)
@rate_limited("4/s", scope="waiting", on_limit="wait")
def waiting(self):
    note(self)


@shared_task(bind=True, ignore_result=True)
def unlimited(self, number):
    note(self, number=number)


@shared_task(bind=True, ignore_result=True)
@rate_limited("600/s", burst=20, scope="swift", on_limit="wait")
def swift(self, number):
    note(self, number=number)


@shared_task(bind=True)
@rate_limited("1/m", key="{queue}", scope="patient", on_limit="wait")
def patient(self, queue):
    note(self)


@shared_task(bind=True)
@rate_limited("8/s", scope="chained")
def add(self, left, right):
    note(self)
    return left + right


@shared_task
def total(numbers):
    return sum(numbers)


@shared_task
def gather(results):
    return results


@shared_task(bind=True, max_retries=2)
@rate_limited("8/s", scope="failing")
def failing(self):
    """Fails twice for real."""
    note(self, ticket="atomicity_rate" in (self.request.headers or {}))
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return self.request.retries


@shared_task(bind=True)
@rate_limited("3/s", scope="telling")
def tell(self, *args, **kwargs):
    """Return all that the message brought."""
    note(self)
    request = self.request
    names = (
        *("id", "parent_id", "root_id", "group", "group_index", "chord", "chain", "callbacks"),
        *("errbacks", "retries", "expires", "timelimit", "reply_to", "shadow", "ignore_result"),
        *("args", "kwargs", "origin", "argsrepr", "kwargsrepr", "stamps", "stamped_headers"),
        *("headers", "replaced_task_nesting"),
    )
    told = {name: getattr(request, name, None) for name in names}
    info = request.delivery_info
    told |= {name: info.get(name) for name in ("exchange", "routing_key", "priority")}
    told["headers"] = {k: v for k, v in (request.headers or {}).items() if k != "atomicity_rate"}
    told["delivery_mode"] = request.properties.get("delivery_mode")
    return json.loads(json.dumps(told, default=str))


@shared_task(bind=True)
@rate_limited("20/s", scope="penalised")
def penalised(self, seconds=0):
    note(self)
    if seconds:
        hold_back(seconds)


@shared_task(bind=True)
@singleton_by("{key}", scope="both")
@rate_limited("5/s", scope="both")
def single_and_limited(self, key):
    note(self, key=key, edge="start")
    time.sleep(0.05)
    note(self, key=key, edge="end")


@shared_task(bind=True)
@rate_limited("5/s", scope="both")
@singleton_by("{key}", scope="both")
def limited_and_single(self, key):
    note(self, key=key, edge="start")
    time.sleep(0.05)
    note(self, key=key, edge="end")


@shared_task(bind=True)
@rate_limited("4/s", scope="tenant", key="{tenant}")
@rate_limited("10/s", scope="everybody")
def stacked(self, tenant):
    note(self, tenant=tenant)


@shared_task(bind=True, acks_late=True, reject_on_worker_lost=True)
@rate_limited("600/s", burst=20, scope="furious")
def furious(self, number):
    note(self, number=number)


@shared_task(bind=True, acks_late=True, reject_on_worker_lost=True)
@rate_limited("7/m", scope="minutely")
def minutely(self, number):
    note(self, number=number)


@shared_task(bind=True)
@rate_limited("4/s", scope="slow")
def slow(self, number=0):
    note(self, number=number)


@shared_task(bind=True)
@rate_limited("1/s", scope="crowded")
def crowded(self):
    note(self)


@shared_task(bind=True, track_started=True)
@rate_limited("1/s", scope="started")
def started(self):
    note(self)


@shared_task(bind=True)
@rate_limited("20/s", scope="resting")
def resting(self):
    note(self)


@shared_task(bind=True)
@rate_limited("1000/s", scope="unlimited", when_unavailable="run")
def run_anyway(self):
    note(self)


@shared_task(bind=True)
def unrelated(self):
    note(self)
    return "done"

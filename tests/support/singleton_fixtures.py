"""What the tests of ``singleton_by`` on real workers look at; a plugin of those modules."""

import json

import pytest
from redis import Redis

from celery_atomicity.testing import wait_until
from support.nodes import everything_at_work
from support.singleton_tasks import JOURNAL

pytest_plugins = ["support.fleet"]


@pytest.fixture
def journal(celery_setup):
    """What has happened so far, of one event if one is named."""
    with Redis.from_url(celery_setup.app.conf.result_backend) as client:

        def read(event=None):
            entries = [json.loads(entry) for entry in client.lrange(JOURNAL, 0, -1)]
            return [entry for entry in entries if event in (None, entry["event"])]

        yield read


@pytest.fixture
def taken(celery_setup):
    """Whether a key of the scope ``hold`` is taken now."""
    conf = celery_setup.app.conf
    with Redis.from_url(conf.get("atomicity_redis") or conf.result_backend) as client:

        def look(key, scope="hold"):
            return bool(client.exists(f"atom:celery_test_app:lock:{scope}:{key}"))

        look.client = client
        yield look


@pytest.fixture
def holder(journal):
    """Send a task that takes its key, and wait until it has; its result and its start."""

    def begin(task, *args, **options):
        known = len(journal("start"))
        result = task.apply_async(args, **options)
        wait_until(lambda: len(journal("start")) > known, 30, "the holder runs")
        return result, journal("start")[-1]

    return begin


@pytest.fixture
def idle_fleet(on_fleet):
    """A cluster that tests share: nothing of an earlier one runs, is kept, or holds a key."""
    yield on_fleet
    app = on_fleet.app

    def are_idle():
        left = everything_at_work(app, on_fleet.worker_cluster)
        if left:
            app.control.revoke(list(left), terminate=True, signal="SIGKILL")
        return not left

    wait_until(are_idle, 30, "the workers are idle")
    with Redis.from_url(app.conf.result_backend) as client:
        wait_until(lambda: not client.keys("atom:*:lock:*"), 30, "all keys are free")
        client.delete(JOURNAL)

"""What the tests of ``rate_limited`` on real workers look at; a plugin of those modules."""

import json

import pytest
from redis import Redis

from support.rate_tasks import STARTS

pytest_plugins = ["support.fleet"]


@pytest.fixture
def arbiter(celery_setup):
    url = celery_setup.app.conf.result_backend
    with Redis.from_url(url, decode_responses=True) as client:
        yield client


@pytest.fixture
def starts(arbiter):
    """What has started since the test began, in the order of the clock."""
    arbiter.delete(STARTS)

    def read(task=None):
        entries = [json.loads(entry) for entry in arbiter.lrange(STARTS, 0, -1)]
        mine = [entry for entry in entries if task is None or entry["name"] == task.name]
        return sorted(mine, key=lambda entry: entry["at"])

    return read

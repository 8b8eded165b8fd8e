"""What the tests of ``rate_limited`` on real workers look at; a plugin of those modules."""

import json

import pytest
from redis import Redis

from support.nodes import NODES
from support.rate_tasks import STARTS
from support.shared import current, engine


@pytest.fixture(scope="module")
def shared_engine(docker_client, node_image):
    """What the shared clusters of a module are made by; they end with it."""
    with engine(docker_client, node_image) as made:
        yield made


@pytest.fixture
def on_fleet(request, fleet):
    """In place of ``celery_setup``: the cluster ``fleet`` that the tests around this one share."""
    request.node.stash[NODES] = [node.container for node in fleet.worker_cluster]
    with current(fleet):
        yield fleet


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

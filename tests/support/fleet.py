"""A cluster that the tests of a module or class share; a plugin of those modules."""

import pytest

from support.nodes import NODES
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

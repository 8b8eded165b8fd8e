"""``celery -A proj atomicity status``, as it is typed, of a fleet that runs."""

import json

import pytest
from pytest_celery import RESULT_TIMEOUT
from support.tasks import whoami

from celery_atomicity.testing import wait_until


@pytest.fixture
def default_worker_app(default_worker_app):
    default_worker_app.conf.atomicity_interval = 0.5
    default_worker_app.conf.atomicity_timeout = 0.25
    default_worker_app.conf.beat_schedule = {
        "often": {"task": "support.tasks.whoami", "schedule": 0.5}
    }
    return default_worker_app


@pytest.mark.cluster(workers=2, argv=("-B", "-S", "atomicity"))
def test_the_workers_and_beats_of_a_fleet_are_shown(celery_setup):
    first, second = celery_setup.worker_cluster
    assert whoami.delay().get(timeout=RESULT_TIMEOUT)

    def told():
        code, output = first.container.exec_run(
            "sh -c 'celery -A app atomicity status --json 2>/dev/null'"
        )
        assert code == 0, output
        [group] = json.loads(output)["groups"]
        assigned = all(replica["index"] is not None for replica in group["replicas"])
        sent = any(entry["sent"] for entry in group["entries"])
        return group if assigned and sent and group["beats"] == 2 else None

    group = wait_until(told, 40, "both workers and both beats are assigned")

    assert {replica["worker"] for replica in group["replicas"]} == {
        first.hostname(),
        second.hostname(),
    }
    assert sorted((each["index"], each["total"]) for each in group["replicas"]) == [(0, 2), (1, 2)]
    assert "often" in {entry["name"] for entry in group["entries"]}
    assert group["arbiter"]["registered"] == 2

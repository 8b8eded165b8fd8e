"""``celery -A proj atomicity status``, as it is typed, of a fleet that runs."""

import json
import time

import pytest
from pytest_celery import RESULT_TIMEOUT
from support.tasks import whoami

from celery_atomicity.testing import wait_until


@pytest.fixture
def default_worker_app(default_worker_app):
    default_worker_app.conf.atomicity_interval = 0.5
    default_worker_app.conf.atomicity_timeout = 0.25
    default_worker_app.conf.beat_schedule = {
        f"often {n}": {"task": "support.tasks.whoami", "schedule": 0.5} for n in range(8)
    } | {"seldom": {"task": "support.tasks.whoami", "schedule": 86_400.0}}
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
        sent = sum(bool(entry["sent"]) for entry in group["entries"]) == 8
        return group if assigned and sent and group["beats"] == 2 else None

    group = wait_until(told, 40, "both workers and both beats are assigned")

    assert {replica["worker"] for replica in group["replicas"]} == {
        first.hostname(),
        second.hostname(),
    }
    assert sorted((each["index"], each["total"]) for each in group["replicas"]) == [(0, 2), (1, 2)]
    entries = {entry["name"]: entry for entry in group["entries"]}
    seldom = entries.pop("seldom")
    assert set(entries) == {f"often {n}" for n in range(8)}
    assert len({owner for entry in entries.values() for owner in entry["owners"]}) == 2
    assert all(entry["by"] in entry["owners"] for entry in entries.values())
    assert all(entry["last"] <= entry["sent"] <= entry["coming"] for entry in entries.values())
    assert (seldom["sent"], seldom["last"]) == (None, None)
    assert 86_000 < seldom["coming"] - time.time() < 86_400
    assert group["arbiter"]["registered"] == 2
    code, output = first.container.exec_run(
        "sh -c 'celery -A app atomicity slots 5 --json 2>/dev/null'"
    )
    shares = json.loads(output)
    assert code == 0, output
    assert sorted(slot for share in shares["shares"] for slot in share["slots"]) == list(range(5))

"""The example that Prometheus scrapes, and the dashboard that is to show what it finds there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from celery_atomicity.integration.metrics import METRICS
from celery_atomicity.testing import dies_with_us, free_port, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"

# Tells every event that is listened to, as the exporter serves it.
TELL_ALL = """
import sys
from metrics.exporter import serve
from celery_atomicity.events import EVENTS
serve(int(sys.argv[1]))
NUMBERS = {"waited", "seconds", "late"}
for event in EVENTS.values():
    if event.listeners:
        facts = {fact: 1.0 if fact in NUMBERS else fact for fact in event.facts}
        event.tell(**facts)
print("told", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def started():
    """A factory of processes of the examples' folder; all end with the test."""
    running = []

    def start(*command, **environment):
        process = subprocess.Popen(
            [*dies_with_us(), sys.executable, *command],
            cwd=EXAMPLES,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def scraped(port):
    """The names of our metrics that are served at *port*; none, if nothing is."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except (URLError, ConnectionError):
        return set()
    return set(re.findall(r"^(atomicity_\w+)", text, re.MULTILINE))


def test_the_dashboard_shows_what_there_is_and_all_of_it(started):
    port = free_port()
    process = started("-c", TELL_ALL, str(port))
    assert "told\n" in iter(process.stdout.readline, "")

    served = scraped(port)

    dashboard = json.loads((EXAMPLES / "metrics" / "dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    shown = {
        name
        for query in queries
        for name in re.findall(
            r"\b(atomicity_\w+)(?=[\[{)_]|$)", re.sub(r"by \([^)]*\)", "", query)
        )
    }
    # What is read of locks and slots is there only where a group is.
    read = {"atomicity_lease_count", "atomicity_slot_share", "atomicity_replica_count"}
    assert shown <= served | read
    for name in METRICS:
        stem = name.replace(".", "_")
        assert any(each.startswith(stem) for each in shown), f"{name} is not on the dashboard"


def test_each_process_of_a_worker_serves_what_it_measures(started, server, tmp_path):
    port = free_port()
    celery = ("-m", "celery", "-A", "metrics", "worker", "-B", "-S", "atomicity", "-c", "2")

    started(
        *celery,
        f"--schedule={tmp_path / 'beat'}",
        METRICS_BROKER=server.url,
        METRICS_PORT=str(port),
        METRICS_INTERVAL="0.5",
        ATOMICITY_TIMEOUT="0.2",
        ATOMICITY_RESTART_GRACE="0",
    )

    main = {"atomicity_slot_share", "atomicity_registration_duration_seconds_count"}
    beat = {"atomicity_beat_ticks_total", "atomicity_slot_share"}
    pool = {
        "atomicity_lock_wait_time_seconds_bucket",
        "atomicity_lock_conflicts_total",
        "atomicity_lease_count",
        "atomicity_rate_decisions_total",
        "atomicity_rate_delay_seconds_count",
    }
    wait_until(lambda: main <= scraped(port), 30, "the main process is measured")
    wait_until(lambda: beat <= scraped(port + 1), 30, "its beat is")
    wait_until(
        lambda: pool <= scraped(port + 2) | scraped(port + 3), 30, "the children of its pool are"
    )
    assert "atomicity_slot_share" not in scraped(port + 2)

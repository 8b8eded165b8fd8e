"""What is told becomes metrics, of OpenTelemetry's instruments and by its conventions."""

import os
import re
import subprocess
import sys

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from support.strict import STRICT

from celery_atomicity import Atom, events
from celery_atomicity.events import EVENTS
from celery_atomicity.integration import metrics
from celery_atomicity.integration.metrics import METRICS, measure


@pytest.fixture
def read():
    """What is measured from now on: ``read(name)`` gives it as value, or count, by attributes."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    measure(provider)

    def look(name):
        found = {}
        data = reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        for point in metric.data.data_points:
                            number = getattr(point, "value", getattr(point, "count", None))
                            found[tuple(sorted(point.attributes.items()))] = number
        return {tuple(value for _, value in key): number for key, number in found.items()}

    yield look
    measure()
    provider.shutdown()


def test_locks(read):
    events.lock_acquired.tell(group="g", waited=0.1, contended=False)
    events.lock_acquired.tell(group="g", waited=3.0, contended=True)
    events.lock_timed_out.tell(group="g", waited=1.0, unreachable=False)
    events.lock_timed_out.tell(group="g", waited=1.0, unreachable=True)
    events.conflict.tell(group="g", task="t", policy="skip")

    assert read("atomicity.lock.wait_time") == {
        ("g", "granted"): 2,
        ("g", "taken"): 1,
        ("g", "unreachable"): 1,
    }
    assert read("atomicity.lock.conflicts") == {("g", "wait"): 1, ("g", "skip", "t"): 1}


def test_leases(read):
    events.lease_renewed.tell(group="g")
    events.lease_renewed.tell(group="g")
    events.renewal_failed.tell(group="g", refused=False)
    events.renewal_failed.tell(group="g", refused=True)
    events.lease_lost.tell(group="g", keys=("k",), fence=1, holder="h", reason="r")

    assert read("atomicity.lease.renewals") == {("g",): 2, ("g", "unanswered"): 1, ("g", "gone"): 1}
    assert read("atomicity.lease.losses") == {("g",): 1}


def test_rates(read):
    for decision in ("start", "start", "promise", "refusal", "unanswered"):
        events.rate_decided.tell(group="g", task="t", scope="s", decision=decision)
    events.rate_delayed.tell(group="g", task="t", task_id="1", scope="s", keys=("k",), seconds=2.0)

    assert read("atomicity.rate.decisions") == {
        ("start", "g", "s"): 2,
        ("promise", "g", "s"): 1,
        ("refusal", "g", "s"): 1,
        ("unanswered", "g", "s"): 1,
    }
    assert read("atomicity.rate.delay") == {("g", "s"): 1}


def test_slots(read):
    events.registered.tell(group="g", seconds=0.001)
    events.registration_failed.tell(group="g", seconds=1.0, reason="away")

    assert read("atomicity.registration.duration") == {("g",): 1, ("g", "unavailable"): 1}


def test_beat(read):
    events.tick_sent.tell(entry="e", slot=None, late=0.01)
    events.tick_sent.tell(entry="e", slot=None, late=5.0)
    events.tick_skipped.tell(entry="e", slot=1, due="2026-01-01T00:00:00+00:00")
    events.tick_failed.tell(entry="e", slot=1)

    assert read("atomicity.beat.ticks") == {
        ("sent",): 1,
        ("late",): 1,
        ("skipped",): 1,
        ("failed",): 1,
    }
    assert read("atomicity.beat.lateness") == {(): 2}


def test_outages(read):
    events.arbiter_away.tell(address="redis://one", reason="refused")

    assert read("atomicity.arbiter.outages") == {("redis://one",): 1}


def test_a_replica_that_is_not_open_has_no_share(read):
    atom = Atom("not-open", redis="redis://127.0.0.1:1")

    assert ("not-open",) not in read("atomicity.slot.share")
    assert read("atomicity.lease.count")[("not-open",)] == 0
    del atom


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_names_and_units_are_in_the_style_of_the_conventions(metric):
    assert re.fullmatch(r"atomicity(\.[a-z_]+)+", metric.name)
    assert not metric.name.endswith(("_total", ".total", "_seconds", ".s"))
    assert metric.unit in ("s", "1") or re.fullmatch(r"\{[a-z]+\}", metric.unit)
    assert (metric.kind == "histogram") == bool(metric.bounds)
    for name in metric.attributes:
        assert re.fullmatch(r"(atomicity|celery|error)\.[a-z_]+", name)


def test_only_one_provider_is_fed_at_a_time(read):
    second = InMemoryMetricReader()
    provider = MeterProvider([second])

    measure(provider)
    events.lease_renewed.tell(group="g")

    assert read("atomicity.lease.renewals") == {}
    assert read("atomicity.lease.count") == {}
    assert second.get_metrics_data() is not None
    assert len(events.lease_renewed.listeners) == 1
    provider.shutdown()


def test_an_api_that_takes_no_bounds_will_do(monkeypatch):
    made = []

    class Old:  # before 1.30
        def create_histogram(self, name, unit="", description=""):
            made.append(name)

        def __getattr__(self, name):
            return lambda *_, **__: None

    monkeypatch.setattr("opentelemetry.metrics.get_meter", lambda *_: Old())

    assert measure()

    monkeypatch.undo()
    measure()
    assert made == [metric.name for metric in METRICS.values() if metric.kind == "histogram"]


# What is imported and what is not can only be seen in a process of its own.
def run(code, **environment):
    return subprocess.run(
        [sys.executable, *STRICT, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_opentelemetry_nobody_listens():
    done = run("""
import sys
sys.modules["opentelemetry"] = None
from celery import Celery
from celery_atomicity import Atomicity, events
from celery_atomicity.integration.metrics import measure
Atomicity(Celery("shop"))
assert measure() is False
hot = (events.lock_acquired, events.lease_renewed, events.rate_decided, events.registered)
assert not any(event.listeners for event in hot), hot
""")

    assert done.returncode == 0, done.stderr


def test_with_it_a_child_of_a_fork_measures_into_a_provider_of_its_own():
    done = run("""
import os
from celery import Celery
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from celery_atomicity import Atomicity, events

Atomicity(Celery("shop"))
events.lease_renewed.tell(group="parent")
child = os.fork()
if child == 0:
    status = 1
    try:
        # As a handler of worker_process_init does it: the global one, when the API's own
        # instruments have long been made.
        reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([reader]))
        events.lease_renewed.tell(group="child")
        found = reader.get_metrics_data().to_json()
        assert "atomicity.lease.renewals" in found and '"child"' in found, found
        assert "parent" not in found, found
        status = 0
    finally:
        os._exit(status)
_, status = os.waitpid(child, 0)
assert status == 0
""")

    assert done.returncode == 0, done.stderr


def test_every_metric_is_fed(read):
    facts = {
        "group": "g", "waited": 0.1, "contended": False, "unreachable": False, "task": "t",
        "policy": "skip", "keys": ("k",), "fence": 1, "holder": "h", "reason": "r", "entry": "e",
        "refused": False, "scope": "s", "decision": "start", "task_id": "1", "seconds": 1.0,
        "slot": None, "late": 0.0, "due": "d", "address": "a",
    }  # fmt: skip
    fed = [event for event in EVENTS.values() if event.listeners]
    observed = {metrics.LEASES.name, metrics.SLOT_SHARE.name, metrics.REPLICAS.name}

    for event in fed:
        event.tell(**{name: facts[name] for name in event.facts if name in facts})

    assert {name for name in METRICS if read(name)} | observed == set(METRICS)

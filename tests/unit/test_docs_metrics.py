"""docs/metrics.md lists what there is: no more, no less, and as it is."""

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from celery.utils.dispatch import Signal

import celery_atomicity
from celery_atomicity.events import EVENTS
from celery_atomicity.integration.metrics import METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def table(first):
    """The rows of the table whose first column is headed *first*, a list of cells each."""
    found = re.search(rf"^\| {first} \|.*\n\| ---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    rows = found[1].splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_every_metric_with_its_kind_unit_and_attributes():
    listed = {
        quoted(name)[0]: (kind, quoted(unit)[0], tuple(quoted(attributes)))
        for name, kind, unit, attributes, _ in table("metric")
    }

    assert listed == {
        name: (
            metric.kind.replace("up_down", "up-down").replace("_", " "),
            metric.unit,
            metric.attributes,
        )
        for name, metric in METRICS.items()
    }


def test_what_a_metric_means_begins_as_it_is_described():
    for name, *_, meaning in table("metric"):
        assert meaning.startswith(METRICS[quoted(name)[0]].description), name


@pytest.mark.parametrize("row", table("signal"), ids=lambda row: quoted(row[0])[0])
def test_every_signal_with_its_arguments(row):
    signal = getattr(celery_atomicity, quoted(row[0])[0])
    text = re.sub(r"\([^)]*\)", "", row[2])

    assert set(quoted(text)) == signal.providing_args


def test_all_signals_are_listed():
    signals = {
        name for name in celery_atomicity.__all__ if type(getattr(celery_atomicity, name)) is Signal
    }

    assert {quoted(row[0])[0] for row in table("signal")} == signals


def test_every_line_of_the_log_with_its_logger_and_level():
    listed = {
        name: (area, level) for names, area, level, _ in table("event") for name in quoted(names)
    }

    assert listed == {
        name: (event.area, logging.getLevelName(event.level))
        for name, event in EVENTS.items()
        if event.level is not None
    }


# The exporter of the page is not installed here; whatever exports will do.
STUB = """
import sys, types
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
name = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
sys.modules[name] = types.ModuleType(name)
sys.modules[name].OTLPMetricExporter = ConsoleMetricExporter
"""

USE = """
from celery_atomicity import events
begin_to_measure()
events.lease_renewed.tell(group="of the parent")
child = os.fork()
if child == 0:
    begin_to_measure()
    events.lease_renewed.tell(group="of the child")
    providers[0].shutdown()
    os._exit(0)
os.waitpid(child, 0)
assert page_somebody in [reference() for _, reference in lease_lost.receivers]
"""


def test_the_code_of_the_page_measures_a_worker_and_its_children():
    code = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    done = subprocess.run(
        [sys.executable, "-c", "\n".join([STUB, *code, "import os", USE])],
        env=os.environ | {"PYTHONWARNINGS": "ignore"},  # of Python 3.12: threads and a fork
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "atomicity.lease.renewals" in done.stdout
    assert "of the child" in done.stdout

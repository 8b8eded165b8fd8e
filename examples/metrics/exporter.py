"""
Serves the metrics of each process of a node to Prometheus, each on a port of its own.

They are not to be added up before Prometheus does it: each process has its own locks and limits.
"""

import os

from billiard import current_process
from celery.signals import beat_init, worker_process_init, worker_ready
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, start_http_server

from celery_atomicity.integration.metrics import measure

#: Of the worker's main process; the beat beside it has the next one, and then come the children.
PORT = int(os.environ.get("METRICS_PORT", "9464"))


def serve(port):
    """Measure this process into a provider of its own, and serve what was measured at *port*."""
    registry = CollectorRegistry()
    measure(MeterProvider([PrometheusMetricReader(registry=registry)]))
    start_http_server(port, registry=registry)


# Not before its pool has been forked: a child would be left with half of the server's thread.
@worker_ready.connect
def serve_main_process(**_):
    serve(PORT)


@beat_init.connect
def serve_beat(**_):
    serve(PORT + 1)


@worker_process_init.connect
def serve_child(**_):
    index = getattr(current_process(), "index", None)
    if index is not None:  # the solo pool sends this in the main process, too
        serve(PORT + 2 + index)

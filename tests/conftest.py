import os
import re
import secrets

import pytest
from celery import _state
from hypothesis import HealthCheck, settings
from support import needs, secret
from support.proxy import Proxy
from support.servers import KINDS

from celery_atomicity.testing import Server

# A machine that does other work as well is slow at times, which says nothing of what is tested.
settings.register_profile(
    "shared", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("shared")


def pytest_addoption(parser):
    parser.addoption(
        "--engine",
        choices=("process", "docker"),
        default=os.environ.get("TEST_ENGINE", "process"),
        help="what the clusters of the acceptance tests run on",
    )


@pytest.fixture(autouse=True)
def _keep_tasks_apart():
    """
    What Celery keeps for the whole process does not outlive a test.

    Tasks are shared with every app that is made later; a pool makes its process refuse to wait.
    """
    before = set(_state._on_app_finalizers)
    blocks, current = _state._task_join_will_block, _state._tls.current_app
    yield
    _state._set_task_join_will_block(blocks)
    _state._set_current_app(current)
    _state._on_app_finalizers.intersection_update(before)


def pytest_configure():
    secret.watch_errors()


@pytest.fixture(autouse=True)
def _no_log_and_no_error_tells_a_password(caplog):
    """
    The servers of the tests have a password, which is searched for in all that a test brings forth.

    In what is logged here, in the logs of its nodes, and in each error of ours, caught or not.
    """
    yield
    for when in ("setup", "call"):
        for record in caplog.get_records(when):
            secret.look_at_record(record)
    assert secret.found() == []


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    # Outermost, so that it stands below the list of skipped tests: among the last lines.
    result = yield
    for line in needs.summary(terminalreporter.stats.get("skipped", [])):
        terminalreporter.line(line, yellow=True)
    return result


@pytest.fixture
def servers():
    """A factory of running servers, any number of them, with a password; all end with the test."""
    running = []

    def start(arguments=("--requirepass", secret.PASSWORD), **options):
        options["arguments"] = arguments
        server = Server(**options)
        running.append(server)
        server.start()
        return server

    yield start
    for server in running:
        server.close()


@pytest.fixture
def server(servers):
    """One fresh server."""
    return servers()


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.servers) for kind in KINDS])
def every_server(request, servers):
    """One fresh server of each kind that is installed here."""
    find, remedy = KINDS[request.param]
    binary = find()
    if binary is None:
        needs.missing(request.param, remedy)
    return servers(binary=binary)


@pytest.fixture
def proxy():
    """A factory: ``proxy(server)`` or ``proxy(port)`` gives a proxy in front of it."""
    running = []

    def start(target):
        running.append(Proxy(getattr(target, "port", target), getattr(target, "url", "")))
        return running[-1]

    yield start
    for each in running:
        each.close()


@pytest.fixture
def group(request):
    """A name of a group that no other test uses."""
    name = re.sub(r"\W+", "-", request.node.name)[:60].strip("-")
    return f"{name}-{secrets.token_hex(4)}"

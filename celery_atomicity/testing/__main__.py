"""A server for a developer's afternoon: ``python -m celery_atomicity.testing``, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import socket
import threading
from contextlib import suppress

from celery_atomicity.testing.errors import ServerError
from celery_atomicity.testing.machine import HOST
from celery_atomicity.testing.server import Server


def main() -> None:
    """
    Run a server that keeps nothing, and say where it is, until this is interrupted or terminated.

    Its exit code is 1, after the reason, if the port is taken or the server does not start.
    """
    parser = argparse.ArgumentParser(
        prog="python -m celery_atomicity.testing",
        description="Run a Redis or Valkey server that keeps nothing, until Ctrl-C.",
    )
    parser.add_argument("--port", type=int, default=6379, help="default: 6379")
    port = parser.parse_args().port
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1.0):
        raise SystemExit(f"port {port} is taken; use what runs there, or name another with --port")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        with Server(port=port) as server, suppress(KeyboardInterrupt):
            print(f"{server.binary.name} at {server.url}, until Ctrl-C", flush=True)  # noqa: T201
            ended.wait()
    except ServerError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()

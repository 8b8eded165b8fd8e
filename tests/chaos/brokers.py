"""What carries the fleet's messages, and keeps them through a restart."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path
from shutil import rmtree

from kombu import Connection
from support.services import RABBITMQ_SERVER
from support.services import RabbitMQ as Program

from celery_atomicity.testing import Server, dies_with_us, free_port, wait_until

# Seconds after which what a dead worker had fetched is delivered again.
VISIBILITY = 20


class Redis:
    def __init__(self):
        self.transport = {
            "visibility_timeout": VISIBILITY,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
            "socket_timeout": 5,
        }
        self.server = Server(persistent=True, arguments=("--appendfsync", "everysec"))

    @property
    def url(self):
        return self.server.url

    def start(self):
        self.server.start()

    def kill(self):
        self.server.kill()

    def close(self):
        self.server.close()

    def waiting(self):
        """How many messages wait in the queue."""
        return self.server.cli("LLEN", "celery", timeout=0.5)


class RabbitMQ:
    def __init__(self):
        self.transport = {}
        if not RABBITMQ_SERVER.exists():
            raise SystemExit(f"BROKER=rabbitmq needs {RABBITMQ_SERVER}")
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="atomicity-chaos-rabbitmq-"))
        self.command, self.env = Program.program((), self.port, self.directory)
        self.process = None

    @property
    def url(self):
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def start(self):
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*dies_with_us(), *self.command],
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(self._answers, 90, "RabbitMQ comes up")

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self):
        if self.process is not None:
            self.kill()
        rmtree(self.directory, ignore_errors=True)

    def waiting(self):
        return 0

    def _answers(self):
        try:
            with Connection(self.url, connect_timeout=1) as connection:
                connection.connect()
        except OSError:
            return False
        return True

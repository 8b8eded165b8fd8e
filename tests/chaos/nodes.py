"""The fleet's workers and beats, each in a process group of its own."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from celery_atomicity.testing import dies_with_us

TESTS = Path(__file__).parents[1]

#: What each kind of node adds to its command line.
KINDS = {
    "prefork": ("worker", "-P", "prefork", "-c", "2"),
    "threads": ("worker", "-P", "threads", "-c", "4"),
    "gevent": ("worker", "-P", "gevent", "-c", "8"),
    "solo": ("worker", "-P", "solo"),
    "embedded": ("worker", "-P", "prefork", "-c", "2", "-B", "-S", "atomicity"),
    "beat": ("beat", "-S", "atomicity", "--pidfile=", "--max-interval", "5"),
}
WORKERS = ("prefork", "threads", "gevent", "solo")


class Node:
    """
    A worker or beat.

    Attributes:
        expected: Whether somebody has ended it, or is about to.
        frozen: Whether somebody has stopped it in its tracks.
    """

    def __init__(self, name, kind, told, directory):
        self.name = name
        self.kind = kind
        self.expected = False
        self.frozen = False
        self._ready = False
        self.log = directory / f"{name}.log"
        command = [*dies_with_us(), sys.executable, "-m", "celery", "-A", "chaos.fleetapp"]
        command += [*KINDS[kind], "-l", "INFO"]
        if kind != "beat":
            command += ["-n", f"{name}@chaos", "--without-mingle", "--without-gossip"]
        path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "PYTHONPATH": path, "CHAOS": json.dumps(told | {"replica": name})}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=directory,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __str__(self):
        return f"{self.name} ({self.kind})"

    @property
    def is_beat(self):
        return self.kind == "beat"

    @property
    def runs(self):
        return self.process.poll() is None

    @property
    def ready(self):
        """Whether it has come up."""
        if not self._ready:
            text = self.log.read_text(errors="replace")
            self._ready = ("beat: Starting..." if self.is_beat else " ready.") in text
        return self._ready

    def children(self):
        with suppress(psutil.Error):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def signal(self, number, *, group=True):
        with suppress(ProcessLookupError):
            if group:
                os.killpg(self.process.pid, number)
            else:
                os.kill(self.process.pid, number)

    def kill(self, *, group=True):
        """End it as a power cut would; without *group*, its main process alone."""
        self.expected = True
        self.signal(signal.SIGKILL, group=group)
        self.process.wait()

    def stop(self):
        """Ask it to end when its tasks have; returns at once."""
        self.expected = True
        self.thaw()
        # To the main process alone, as a service manager does.
        self.signal(signal.SIGTERM, group=False)

    def freeze(self, *, group=True):
        self.frozen = True
        self.signal(signal.SIGSTOP, group=group)

    def thaw(self):
        self.frozen = False
        self.signal(signal.SIGCONT)

    def last_words(self):
        """What Celery says when it gives up, with its traceback; else its last lines."""
        text = self.log.read_text(errors="replace")
        at = text.rfind(": CRITICAL/")
        return text[at + 2 :][:6000] if at >= 0 else text[-3000:]

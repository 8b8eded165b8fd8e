"""The workers of the demo: started, killed, and gone in the end."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from celery_atomicity.testing import dies_with_us

EXAMPLES = Path(__file__).parents[1]


class Worker:
    """A prefork worker with a beat inside, in a process group of its own."""

    def __init__(self, name, directory):
        self.name = f"{name}@shop"
        self.state = "starts"
        self.log = directory / f"{name}.log"
        command = [
            *dies_with_us(),
            *(sys.executable, "-m", "celery", "-A", "demo.observed", "worker"),
            *("-B", "-S", "atomicity", "-n", self.name, "-c", "4", "-l", "INFO"),
            *("--without-mingle", "--without-gossip"),
        ]
        path = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=directory,
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def running(self):
        return self.process.poll() is None

    def kill(self):
        """End it with all its children at once, as a power cut would."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.state = "killed"

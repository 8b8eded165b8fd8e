"""Node and the packages of tests/interop, installed once into pytest's cache."""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

from support import needs

INTEROP = Path(__file__).parent.parent / "interop"


def installed(cache):
    """The folder of node_modules under *cache*; skips the test where node or npm is missing."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        remedy = "on Debian and Ubuntu: apt-get install npm"
        needs.missing("node and npm", remedy, is_extra=True)
    folder = Path(cache)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = (INTEROP / "package.json").read_text()
        stamp = folder / "done.json"
        if not stamp.exists() or stamp.read_text() != wanted:
            (folder / "package.json").write_text(wanted)
            options = ("--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")
            done = subprocess.run(
                [npm, "install", *options],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            if done.returncode:
                said = done.stderr.strip()[-200:]
                needs.missing("the npm packages of tests/interop", said, is_extra=True)
            stamp.write_text(wanted)
    return folder / "node_modules"


class Redlock:
    """One process of node with the locks of @sesamecare-oss/redlock on the servers at *urls*."""

    def __init__(self, modules, urls):
        self._process = subprocess.Popen(
            ["node", str(INTEROP / "redlock.cjs"), *urls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # It stands outside the folder that its packages are in.
            env={**os.environ, "NODE_PATH": str(modules)},
        )

    def send(self, do, **command):
        """Begin a command."""
        self._process.stdin.write(json.dumps({"do": do, **command}) + "\n")
        self._process.stdin.flush()

    def answer(self):
        """Wait for the answer to the oldest command that was begun."""
        return json.loads(self._process.stdout.readline())

    def ask(self, do, **command):
        """Begin a command and wait for its answer."""
        self.send(do, **command)
        return self.answer()

    def close(self):
        """End the process."""
        self._process.kill()
        self._process.communicate()

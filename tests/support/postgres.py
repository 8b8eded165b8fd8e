"""A PostgreSQL for one test, on a socket in a directory of its own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from celery_atomicity.testing import dies_with_us, wait_until

# Where Debian and Ubuntu keep what is not on PATH.
INSTALLED = Path("/usr/lib/postgresql")

# Whom it runs as, the first there is, since it refuses to run as root.
ACCOUNTS = ("postgres", "nobody")

USER = "beat"


def find_postgres():
    """The directory of its programs, the newest there is; None: it is not installed."""
    if program := shutil.which("initdb"):
        return Path(program).resolve().parent
    found = [path.parent for path in INSTALLED.glob("*/bin/initdb")]
    return max(found, key=lambda path: int(path.parent.name), default=None)


class Postgres:
    """One server; a context manager."""

    def __init__(self):
        self.programs = find_postgres()
        self.directory = Path(tempfile.mkdtemp(prefix="pg-"))  # a socket's path has to be short
        self._as = []
        if os.geteuid() == 0:
            known = {each.pw_name: each for each in pwd.getpwall()}
            account = next(known[name] for name in ACCOUNTS if name in known)
            user, group = account.pw_uid, account.pw_gid
            self._as = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
            os.chown(self.directory, user, group)

    def __enter__(self):
        data = self.directory / "data"
        options = ["-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        make = [*self._as, self.programs / "initdb", "-D", data, *options]
        subprocess.run(make, check=True, capture_output=True, cwd="/")
        # Nothing has to outlive a crash.
        options = ["-F", "-k", self.directory, "-c", "listen_addresses="]
        self._process = subprocess.Popen(
            [*dies_with_us(), *self._as, self.programs / "postgres", "-D", data, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        wait_until(self._answers, 60, "PostgreSQL answers")
        return self

    def __exit__(self, *_error):
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def create(self, name):
        """A new database, as Django's settings want it."""
        create = [self.programs / "createdb", "-h", self.directory, "-U", USER, name]
        subprocess.run(create, check=True, capture_output=True)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": name,
            "USER": USER,
            "HOST": str(self.directory),
        }

    def _answers(self):
        ready = [self.programs / "pg_isready", "-q", "-h", self.directory]
        return subprocess.run(ready, check=False).returncode == 0

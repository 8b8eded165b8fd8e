"""The examples that end by themselves do what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("where", [(), ("--redis",)], ids=["SQLite", "Redis"])
def test_a_late_write_is_refused(where):  # LOCK-02, F27
    assert run("fence/late.py", *where) == [
        "booking of 100: read 0",
        "booking of 100: stopped, and its lease of one second runs out",
        "booking of 7: read 0",
        "booking of 7: wrote 7",
        "booking of 100: LeaseLost, from TooLate('100 was not written')",
        "the balance is 7",
    ]

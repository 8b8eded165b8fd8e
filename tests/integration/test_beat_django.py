"""django-celery-beat's scheduler, shared by several beats, on a real database."""

import subprocess
import sys
from pathlib import Path

import pytest

SCENARIOS = Path(__file__).parents[1] / "support" / "django_beat.py"


# BEAT-04
@pytest.mark.parametrize(
    "scenario",
    [
        "shared_out",
        "added_changed_disabled_deleted",
        "clocked",
        "one_off",
        "start_time",
        "reenabled",
        "partitioned",
        "pace",
    ],
)
def test_database_scheduler(scenario, server, group, tmp_path):
    # Django is set up once in a process, and not in that of all other tests.
    done = subprocess.run(
        [sys.executable, SCENARIOS, scenario, server.url, group, tmp_path / "beat.sqlite3"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=SCENARIOS.parents[1],
    )

    assert done.returncode == 0, done.stderr[-4000:]
    assert "passed" in done.stdout

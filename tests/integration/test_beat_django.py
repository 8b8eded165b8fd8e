"""django-celery-beat's scheduler, shared by several beats, on real databases."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import needs
from support.postgres import Postgres, find_postgres

PROGRAM = Path(__file__).parents[1] / "support" / "django_beat.py"


@pytest.fixture(scope="module")
def database(request, tmp_path_factory):
    """The settings of an empty database, as Django wants them."""
    if request.param == "sqlite":
        file = tmp_path_factory.mktemp("django") / "template"
        yield {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}
        return
    if find_postgres() is None:
        needs.missing("PostgreSQL", "apt-get install postgresql")
    if find_spec("psycopg") is None:
        needs.missing("psycopg", "pip install 'psycopg[binary]'")
    with Postgres() as postgres:
        yield postgres.create("template")


@pytest.fixture(scope="module")
def django(database):
    """A process with Django set up, which is not done in that of all other tests."""
    process = subprocess.Popen(
        [sys.executable, PROGRAM, json.dumps(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROGRAM.parents[1],
    )
    with process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


@pytest.fixture
def passes(django, server, group, tmp_path):
    """Run a scenario; an error of it is the test's."""

    def run(scenario):
        log = tmp_path / "log"
        print(scenario, server.url, group, log, file=django.stdin, flush=True)
        assert django.stdout.readline() == "0\n", log.read_text()

    return run


# BEAT-04
@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True, scope="module")
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
    ],
)
def test_database_scheduler(passes, scenario):
    passes(scenario)


# BEAT-02, BEAT-04, F88
@pytest.mark.parametrize("database", ["sqlite"], indirect=True, scope="module")
def test_intervals_keep_their_pace_through_restarts(passes):
    # It looks at the database hundreds of times, which PostgreSQL takes long for.
    passes("pace")

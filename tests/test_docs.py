"""
What the pages show is true: their Python runs, and what they have one type can be typed.

A block's language says what becomes of it: ``python`` is run, ``console`` (after ``$ ``) and ``sh``
are commands, whose options have to exist, SQLite understands ``sql`` and a server ``lua``, ``yaml``
is parsed, and a server starts with ``conf``. All else stands in NOT_RUN, with its reason.
"""

import json
import os
import re
import sqlite3
import subprocess
import sys

import pytest
import yaml
from support.commands import commands_in, complaint
from support.pages import PAGES, ROOT, blocks_of
from support.strict import STRICT

from celery_atomicity.testing import Server

CHECKED = {"python", "console", "sh", "sql", "lua", "yaml", "conf"}

# By page, and what the block begins with: why it is not.
OUTPUT, LOG = "what a command prints", "a line of a log"
NOT_RUN = {
    ("README.md", "arbiter  redis://127.0.0.1:6379 (from broker_url)"): OUTPUT,
    ("README.md", "  no slot ever had two owners  "): OUTPUT,
    ("docs/architecture.md", " integration/ "): "a picture, to which test_layers.py holds the code",
    ("docs/locks.md", "The arbiter at "): LOG,
    ("docs/metrics.md", "from os import getpid"): "sends to somebody; see examples/metrics",
    ("docs/operations.md", "arbiter  redis://localhost:6379 (from broker_url)"): OUTPUT,
    ("docs/operations.md", "20:13:45  shop  at redis://localhost:6379"): OUTPUT,
    ("docs/security.md", "ACL SETUSER "): "run by tests/integration/test_rights.py",
    ("docs/start.md", "Group shop: this replica is number "): LOG,
    ("examples/metrics/README.md", "sum by (atomicity_group) "): "for Prometheus",
}

# What the Python of a page finds, beside an app and all that is exported; and what has to be so
# when it has run.
BEFORE = {
    "docs/fences.md": "ledger = None",
    "docs/partitioning.md": "listener = print",
    "docs/security.md": "import ssl",
}
AFTER = {
    "docs/coming-from.md": """
from celery_atomicity.testing import bypass
with bypass():
    assert [task("Sam") for task in (sync, report, fetch)] == [None] * 3
""",
    "docs/rates.md": """
from types import SimpleNamespace as Some
stop = Some(status_code=429, headers={"Retry-After": "30"})
partner = Some(call=lambda payload: stop)
call_partner("acme", {})
assert current_atom.rates.look("page.call_partner:acme").behind > 20
""",
    "README.md": "assert abs(debt - 1000) < 1; assert lease.fence > 0; assert lease.lost is False",
}

BLOCKS = [block for page in PAGES for block in blocks_of(page)]

pytestmark = pytest.mark.timeout(120)


def pages_with(*languages):
    return [page for page in PAGES if {block.language for block in blocks_of(page)} & {*languages}]


@pytest.fixture
def run(servers, tmp_path):
    """Runs Python in a directory of its own, beside a server, with short intervals."""
    server = servers(arguments=["--databases", "64"])
    env = {
        **os.environ,
        "ATOMICITY_REDIS": server.url.removesuffix("/0"),
        "ATOMICITY_INTERVAL": "0.5",
        "ATOMICITY_TIMEOUT": "0.25",
        "ATOMICITY_RESTART_GRACE": "0",
        "PYTHONPATH": str(ROOT / "tests"),
    }

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, *STRICT, *arguments],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def listed(block):
    """What the entry of *block* in NOT_RUN is; None: it has none."""
    return next(
        (
            (page, start)
            for page, start in NOT_RUN
            if (page, block.text[: len(start)]) == (block.page, start)
        ),
        None,
    )


def test_each_block_is_run_or_checked_or_listed_with_a_reason():
    others = [block for block in BLOCKS if block.language not in CHECKED]

    assert [(one.page, one.line, one.language) for one in others if not listed(one)] == []
    assert set(map(listed, BLOCKS)) - {None} == set(NOT_RUN)


def test_the_python_of_each_page_runs(run):
    pages = [
        {
            "page": page,
            "before": BEFORE.get(page, ""),
            "after": AFTER.get(page, ""),
            "leave_out": [start for its, start in NOT_RUN if its == page],
        }
        for page in pages_with("python")
        if page != "docs/testing.md"
    ]

    run("-m", "support.page_run", json.dumps(pages))


def without(*plugins):
    """What keeps pytest from loading what a user may not have, and this test need not wait for."""
    return [word for plugin in plugins for word in ("-p", f"no:{plugin}")]


def test_the_tests_that_are_shown_pass(run, tmp_path):
    files = blocks_of("docs/testing.md", "python")
    for block in files:
        (tmp_path / block.file).write_text(block.text.partition("\n")[2])

    shown = run("-m", "pytest", "-q", *without("cacheprovider", "celery", "docker_tools"), ".")

    assert f"{''.join(block.text for block in files).count('def test_')} passed" in shown


@pytest.mark.parametrize("page", pages_with("console", "sh"))
def test_what_is_typed_can_be_typed(page):
    for block in blocks_of(page):
        if block.language in ("console", "sh"):
            commands = list(commands_in(block))
            assert commands, f"{page}, line {block.line}: no command"
            for words in commands:
                assert complaint(words) is None, f"{page}, line {block.line}: {' '.join(words)}"


def test_the_sql_is_understood():
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE balances (account PRIMARY KEY, balance, fence)")
        for block in BLOCKS:
            if block.language == "sql":
                names = dict.fromkeys(re.findall(r":(\w+)", block.text), 1)
                database.execute(f"EXPLAIN {block.text}", names)
    database.close()


def test_the_lua_is_understood(server):
    for block in BLOCKS:
        if block.language == "lua":
            assert server.cli("SCRIPT", "LOAD", block.text)


def test_the_yaml_can_be_parsed():
    for block in BLOCKS:
        if block.language == "yaml":
            assert list(yaml.safe_load_all(block.text))


def test_a_server_starts_with_what_is_shown_of_its_configuration():
    for block in BLOCKS:
        if block.language == "conf":
            lines = [line.split() for line in block.text.splitlines() if line and line[0] != "#"]
            options = [word for name, *value in lines for word in (f"--{name}", *value)]
            with Server(arguments=options) as server:
                assert server.cli("PING") == "PONG"


def test_every_file_that_a_page_points_to_is_there():
    for page, path in PAGES.items():
        pointed = re.findall(r"\]\((?!https?:)([^)#\s]+)", path.read_text())
        missing = [name for name in pointed if not (path.parent / name).exists()]
        assert missing == [], page


def test_every_make_target_that_a_page_names_is_there():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    for page, path in PAGES.items():
        assert set(re.findall(r"`make (\w+)", path.read_text())) <= targets, page


def test_every_page_is_on_the_site():
    listed = re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1])

    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))

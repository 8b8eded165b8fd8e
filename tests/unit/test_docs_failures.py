"""docs/failures.md names tests that exist, and lines of the log that the package has."""

import ast
import re
from pathlib import Path

import pytest

from celery_atomicity.events import EVENTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "failures.md").read_text()

# What happens, what one sees, in the log, goes on, shown by.
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| what happens"))
]

LINES = [
    re.sub(r"%\\\((\w+)\\\)(s|d|r|g|\\\.\df)", ".+", re.escape(event.text))
    for event in EVENTS.values()
    if event.text
]


def names_in(path):
    """The names of the tests in *path*, also those in classes."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_page_is_read_whole():
    assert len(ROWS) > 25
    assert {len(row) for row in ROWS} == {5}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", row[0])[:40])
def test_a_row_names_tests_that_exist(row):
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[4])

    assert named
    assert [name for path, name in named if name not in names_in(path)] == []


@pytest.mark.parametrize(
    "line",
    sorted({line for row in ROWS for line in re.findall(r"`([^`]+)`", row[2])} - {"shop.beat"}),
)
def test_a_line_of_the_log_is_one_of_the_packages(line):
    assert any(re.fullmatch(pattern, line) for pattern in LINES)


def test_each_row_says_how_long_it_takes():
    assert [row[0] for row in ROWS if not row[3]] == []

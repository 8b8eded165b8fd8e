"""docs/guarantees.md lists every guarantee of the contract, with tests that name it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EXPECTED = [
    f"{kind}-{number:02}"
    for kind, count in (("PART", 10), ("LOCK", 18), ("METER", 5), ("RATE", 8), ("BEAT", 9))
    for number in range(1, count + 1)
]

ROWS = {
    match["id"]: re.findall(r"`(tests/[^`]+)`", match["tests"])
    for match in re.finditer(
        r"^\| (?P<id>[A-Z]+-\d\d) \|.*\| (?P<tests>[^|]*) \|$",
        (ROOT / "docs" / "guarantees.md").read_text(),
        re.MULTILINE,
    )
}


def test_every_guarantee_is_listed():
    assert list(ROWS) == EXPECTED


@pytest.mark.parametrize("name", EXPECTED)
def test_a_guarantee_names_tests_that_name_it(name):
    assert ROWS[name], f"no test is listed for {name}"
    for path in ROWS[name]:
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text()), (
            f"{path} says nothing of {name}"
        )

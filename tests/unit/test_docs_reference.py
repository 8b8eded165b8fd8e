"""The tables and the reference say what the code says: settings, and what is exported."""

import re
from pathlib import Path

import pytest

import celery_atomicity
from celery_atomicity import testing
from celery_atomicity.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"

# The setting, its variable, its default, its range.
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (DOCS / "settings.md").read_text().splitlines()
    if line.startswith("| `atomicity_")
]

# What a default says that is worked out of something else.
DERIVED = {
    "redis": "[see below]",
    "group": "the app",
    "restart_grace": "the lease",
    "beat_grace": "none",
}


def test_every_setting_is_explained():
    assert [row[0] for row in ROWS] == [f"`atomicity_{name}`" for name in Settings.NAMES]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("`"))
def test_a_settings_variable_and_default_are_those_of_the_code(row):
    name = row[0].strip("`").removeprefix("atomicity_")
    default = getattr(Settings(), name, None)

    assert row[1] == f"`ATOMICITY_{name.upper()}`"
    if name in DERIVED:
        assert default in (None, "celery")
        assert row[2].startswith(DERIVED[name])
    else:
        assert row[2].strip("`") == str(default)


@pytest.mark.parametrize(
    ("page", "module"), [("reference.md", celery_atomicity), ("reference-testing.md", testing)]
)
def test_all_that_is_exported_is_in_the_reference(page, module):
    shown = re.findall(r"^::: [\w.]+\.(\w+)$", (DOCS / page).read_text(), re.MULTILINE)

    assert set(module.__all__) <= set(shown)
    assert len(shown) == len(set(shown))

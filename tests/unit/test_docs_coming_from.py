"""docs/coming-from.md: its tasks can be written, and its table is of the rows that are measured."""

import ast
import re
from pathlib import Path

import pytest
from celery import Celery

from celery_atomicity import Atomicity, current_atom, rate_limited, singleton_by
from celery_atomicity.testing import bypass

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coming-from.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("def ")[1].split("(")[0])
def test_its_tasks_can_be_written(block):
    with Celery("page", broker="memory://", set_as_current=False) as app:
        Atomicity(app)
        names = {"app": app, "singleton_by": singleton_by, "rate_limited": rate_limited}
        names |= {"current_atom": current_atom, "__name__": "page"}
        exec(block, names)

        task = names[block.split("def ")[1].split("(")[0]]
        if "singleton_by" in block:
            with bypass():
                assert task("Sam") is None


def test_the_table_has_the_rows_that_are_measured():
    module = ast.parse((ROOT / "benchmarks" / "correctness.py").read_text())
    [rows] = [
        node.value
        for node in module.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "ROWS"
    ]
    measured = [row.elts[0].value for row in rows.elts]

    table = PAGE.split("## What was seen")[1].split("## celery-singleton")[0]
    assert re.findall(r"^\| (\S.*?) \|", table, re.MULTILINE)[-len(measured) :] == measured

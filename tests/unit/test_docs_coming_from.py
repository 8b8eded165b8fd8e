"""The table in docs/coming-from.md is of the rows that are measured."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coming-from.md").read_text()


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

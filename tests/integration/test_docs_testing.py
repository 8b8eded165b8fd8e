"""The project in docs/testing.md, whose tests tests/test_docs.py runs, without pytest."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.strict import STRICT

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()

# Each block of Python begins with the name of its file.
FILES = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))


def run(directory, *arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_all_but_the_fixtures_is_there_without_pytest(project):
    """As in a demo; what is imported for it must not need pytest."""
    script = """
import sys
sys.modules["pytest"] = None
from shop import app, book
from celery_atomicity.testing import Server, bypass, use_arbiter, wait_until
with bypass():
    assert book("sam", 1) == 1
with Server() as server, use_arbiter(app, server):
    assert wait_until(lambda: book("sam", 1)) > 1
"""

    done = run(project, *STRICT, "-c", script)

    assert done.returncode == 0, done.stderr

import ast
import re
from pathlib import Path

import pytest

import celery_atomicity

ROOT = Path(celery_atomicity.__file__).parent

# A module imports only from its own layer and those before it.
LAYERS = ["base", "connection", "primitives", "atom", "integration"]
BASE = {"errors", "clock", "keys", "address", "settings", "events", "threads"}

MODULES = sorted(
    path for path in ROOT.rglob("*.py") if "testing" not in path.relative_to(ROOT).parts
)


def layer(name):
    """The layer of a dotted name inside the package; None for the package itself."""
    parts = name.split(".")[1:]
    if not parts:
        return None
    if parts[0] in LAYERS:
        return LAYERS.index(parts[0])
    if parts[0] in BASE:
        return LAYERS.index("base")
    return None if parts[0] == "scripts" else LAYERS.index("atom")


def imports(path):
    """Every dotted name that a module imports, also for type checking only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def named(path):
    parts = ["celery_atomicity", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(part for part in parts if part != "__init__")


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_data_flows_one_way(path):
    own = layer(named(path))
    for name in imports(path):
        top = name.split(".")[0]
        # What a type checker alone reads may name the layer above: it is how callbacks are typed.
        if top == "celery_atomicity" and own is not None:
            theirs = layer(name)
            assert theirs is None or theirs <= own, f"{named(path)} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_the_outside_is_met_in_one_place_each(path):
    module = named(path)
    for name in imports(path):
        top = name.split(".")[0]
        if top in ("celery", "kombu", "billiard", "vine", "click"):
            assert module.startswith("celery_atomicity.integration"), f"{module} imports {name}"
        if top in ("redis", "hiredis"):
            assert module.startswith("celery_atomicity.connection"), f"{module} imports {name}"
        if top == "time":
            assert module == "celery_atomicity.clock", f"{module} imports {name}"
        assert not name.startswith("celery_atomicity.testing"), f"{module} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_only_the_settings_read_the_environment(path):
    text = path.read_text()
    if named(path) != "celery_atomicity.settings":
        assert "os.environ" not in text
        assert "os.getenv" not in text


def test_the_picture_shows_every_module_in_its_layer():
    page = (ROOT.parent / "docs" / "architecture.md").read_text()
    picture = page.split("```text\n")[1].split("```")[0].partition("\n scripts/")[0]
    *_, base = shown = [set(re.findall(r"\w+", part)) for part in re.split(r"\n ─+\n", picture)]
    assert len(shown) == len(LAYERS)
    assert base >= BASE

    for path in MODULES:
        name = named(path)
        parts = name.split(".")[1:]
        # Of a folder within a layer its name is enough.
        if layer(name) is not None and len(parts) <= 2 and path.parent.name != "scripts":
            row = shown[-1 - layer(name)]
            assert {parts[-1], parts[0]} & row, f"{name} is not shown in its layer"
            if parts[0] in ("connection", "primitives", "integration"):
                assert parts[-1] in row, f"{name} is not shown in its layer"

"""What the README shows is true: its app runs as it is typed, and its Python does what it says."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from celery import _state

import celery_atomicity
from celery_atomicity import Assignment, Atomicity
from celery_atomicity.settings import Settings
from celery_atomicity.testing import dies_with_us, wait_until

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SHOP, *REST = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)

# What the README writes for an arbiter, and stands for one that runs.
LOCALHOST = "redis://localhost:6379/0"

pytestmark = pytest.mark.timeout(180)


class Shop:
    """The app of the first block in a directory of its own."""

    def __init__(self, directory, url):
        self.directory = directory
        # So that the test need not wait for it: the one setting the README has no word about.
        self.env = {**os.environ, "ATOMICITY_INTERVAL": "0.5", "ATOMICITY_TIMEOUT": "0.25"}
        self.env["ATOMICITY_RESTART_GRACE"] = "0"
        (directory / "shop.py").write_text(SHOP.replace(LOCALHOST, url))
        self.log = directory / "worker.log"

    def command(self, line):
        assert line in README
        return [sys.executable, "-m", *line.split()]

    def worker(self, line):
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [*dies_with_us(), *self.command(line), "-c", "2", "-l", "INFO"],
                cwd=self.directory,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def run(self, line):
        return subprocess.run(
            self.command(line),
            cwd=self.directory,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout


@pytest.fixture
def shop(tmp_path, server):
    return Shop(tmp_path, server.url)


@pytest.fixture
def module(shop, monkeypatch):
    """The first block, imported; it is the current app only for the time of the test."""
    before = _state._tls.current_app
    monkeypatch.syspath_prepend(shop.directory)
    for name, value in shop.env.items():
        if name.startswith("ATOMICITY_"):
            monkeypatch.setenv(name, value)
    module = importlib.import_module("shop")
    yield module
    Atomicity.of(module.app).clients.close()
    module.app.close()
    _state._set_current_app(before)
    del sys.modules["shop"]


@pytest.fixture
def worker(shop):
    process = shop.worker("celery -A shop worker -B -S atomicity")
    yield process
    process.terminate()
    process.wait(30)


def test_the_first_block_runs_as_it_is_typed(shop, worker, module):
    wait_until(lambda: "ready." in shop.log.read_text(), 30, "the worker is up")

    module.sync.delay(17)
    module.call_partner.delay("acme", {})
    module.app.send_task("shop.sweep", kwargs={"slot": 3})

    for said in ("syncing 17 under fence ", "calling for acme", "sweeping slot 3"):
        wait_until(lambda said=said: said in shop.log.read_text(), 20, said)

    def settled():
        told = shop.run("celery -A shop atomicity status")
        return told if "0 of 1," in told and "beats: 1" in told else None

    shown = wait_until(settled, 30, "worker and beat own their slots")
    for said in (
        "  workers: 1",
        "  locks held: none",
        "    shop.call_partner:acme  10/s, burst 20",
    ):
        assert said in shown
    assert worker.poll() is None


@pytest.mark.parametrize("number", range(len(REST)))
def test_each_further_block_runs(module, server, number, capsys):
    atom = Atomicity.of(module.app).atom()
    with atom:
        wait_until(lambda: atom.assignment == Assignment(0, 1), 10, "we own every slot")
        block = REST[number].replace(LOCALHOST, server.url)
        scope = {"current_atom": celery_atomicity.current_atom}
        exec(compile(block, f"README, block {number}", "exec"), scope)

    if "debt" in scope:
        assert scope["debt"] == pytest.approx(1000, abs=1)
    if "lease" in scope:
        assert capsys.readouterr().out.strip().isdecimal()


def test_every_setting_is_explained():
    told = set(re.findall(r"^\| `atomicity_(\w+)` ", README, re.MULTILINE))

    assert told == set(Settings.NAMES)


def test_every_file_that_it_points_to_is_there():
    pointed = re.findall(r"\]\((?!https?:)([^)#]+)", README)

    assert pointed
    assert [path for path in pointed if not (ROOT / path).exists()] == []


def test_every_make_target_that_it_names_is_there():
    targets = set(re.findall(r"`make (\w+)`", README))

    assert {"demo", "test", "check"} <= targets
    assert targets <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

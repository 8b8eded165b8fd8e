"""The README's app runs as it is typed, in a worker; tests/test_docs.py has all else of it."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from celery import _state
from support.pages import LOCALHOST, blocks_of

from celery_atomicity import Atomicity
from celery_atomicity.testing import dies_with_us, wait_until

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SHOP = blocks_of("README.md", "python")[0].text

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

"""``celery atomicity watch``, on a terminal of its own."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from contextlib import closing, suppress

import pytest
from support.cli import Apps, run

from celery_atomicity import Atomicity
from celery_atomicity.testing import free_port, wait_until

APP = """
from celery import Celery
from celery_atomicity import Atomicity
app = Celery("shop", broker="memory://")
app.conf.atomicity_redis = {url!r}
app.conf.atomicity_restart_grace = 0
Atomicity(app)
"""

MOVE = re.compile(r"\x1b\[(\d+);1H([^\x1b]*)")


class Terminal:
    """A command on a pseudo terminal of 80 columns and 24 lines; what it wrote, and its keys."""

    def __init__(self, command, directory):
        self.master, slave = pty.openpty()
        self.resize(80, 24)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env=os.environ | {"TERM": "xterm"},
        )
        self.slave = slave
        self.written = b""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        with suppress(OSError):
            while data := os.read(self.master, 65536):
                self.written += data

    @property
    def text(self):
        return self.written.decode("utf-8", "replace")

    @property
    def lines(self):
        """What stands on the screen of one that positions each line that it writes."""
        found = {}
        for at, text in MOVE.findall(self.text):
            found[int(at)] = text
        return [found.get(at, "") for at in range(1, 25)]

    def press(self, keys):
        os.write(self.master, keys)

    def resize(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def restored(self):
        """Whether the terminal behaves as it did before."""
        return termios.tcgetattr(self.slave) == self.before

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.slave)
        self.reader.join(5)
        os.close(self.master)


@pytest.fixture
def watch(tmp_path):
    running = []

    def start(url, *options):
        (tmp_path / "shop.py").write_text(APP.format(url=url))
        command = [sys.executable, "-m", "celery", "-A", "shop", "--no-color"]
        command += ["atomicity", "watch", "--timeout", "0.1", "--every", "0.2", *options]
        running.append(Terminal(command, tmp_path))
        return running[-1]

    yield start
    for terminal in running:
        terminal.close()


@pytest.fixture
def apps():
    with closing(Apps()) as made:
        yield made


def test_it_follows_what_happens_and_quits_on_q(watch, apps, server):
    app = apps(atomicity_redis=server.url, atomicity_restart_grace=0)
    terminal = watch(server.url, "--plain")

    wait_until(lambda: "LOCKS 0" in terminal.text, 30, "the first answer is shown")
    first = terminal.lines
    with Atomicity.of(app).atom().lock("books", holder="the accountant"):
        wait_until(lambda: "the accountant" in terminal.text, 30, "the lock is shown")
    wait_until(lambda: any("LOCKS 0" in line for line in terminal.lines), 30, "it is gone again")

    # The screen was never erased after it was entered: what changes is written over.
    assert terminal.text.count("\x1b[2J") == 1
    assert "shop  at redis://:**@127.0.0.1" in first[0]
    assert first[-1].startswith("q quit  s sort: [name]")
    terminal.press(b"s")
    wait_until(lambda: "[time]" in terminal.lines[-1], 10, "it is sorted otherwise")
    terminal.press(b"q")
    assert terminal.process.wait(10) == 0
    wait_until(lambda: terminal.text.endswith("\x1b[?1049l"), 5, "the other screen is back")
    assert "\x1b[?25h" in terminal.text
    assert terminal.restored


def test_rich_draws_the_same_and_ctrl_c_quits(watch, apps, server):
    pytest.importorskip("rich")
    app = apps(atomicity_redis=server.url, atomicity_restart_grace=0)
    terminal = watch(server.url)

    with Atomicity.of(app).atom().lock("books", holder="the accountant"):
        wait_until(lambda: "the accountant" in terminal.text, 30, "the lock is shown")
    terminal.process.send_signal(signal.SIGINT)

    assert terminal.process.wait(10) == 0
    wait_until(lambda: "\x1b[?1049l" in terminal.text, 5, "the other screen is back")
    assert terminal.restored
    assert "Traceback" not in terminal.text
    assert terminal.text.count("\x1b[2J") <= 1


def test_an_arbiter_that_is_away_is_shown_and_waited_for(watch, servers):
    port = free_port()
    terminal = watch(f"redis://:s3cret@127.0.0.1:{port}", "--plain")

    wait_until(lambda: "did not serve a request" in terminal.text, 30, "its absence is shown")
    servers(port=port, arguments=["--requirepass", "s3cret"])
    wait_until(lambda: "LOCKS 0" in terminal.text, 30, "its return is shown")

    assert "s3cret" not in terminal.text
    terminal.process.terminate()
    assert terminal.process.wait(10) == 0
    wait_until(lambda: terminal.text.endswith("\x1b[?1049l"), 5, "the other screen is back")
    assert terminal.restored


def test_without_a_terminal_it_exits_with_2(apps, server):
    result = run(apps(server.url), "watch")

    assert result.exit_code == 2
    assert "watch needs a terminal" in result.stderr


def test_where_nothing_is_configured_it_exits_with_2(apps):
    result = run(apps(), "watch")

    assert result.exit_code == 2
    assert "set atomicity_redis" in result.stderr

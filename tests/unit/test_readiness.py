"""Waiting for a socket where somebody else waits for it; the rest is in the tests with servers."""

import importlib.util
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from celery_atomicity.connection import readiness

REFUSED_IN_THE_MIDDLE = """
import eventlet
eventlet.monkey_patch()
import socket
from celery_atomicity.connection import readiness
pairs = [socket.socketpair() for _ in range(2)]
first, second = (ours.fileno() for ours, _ in pairs)
eventlet.spawn(readiness.readable, second, 1.0)  # and is late, say
eventlet.sleep(0)
readiness.readable_of([first, second], 0.2)
print(readiness.readable(first, 0.01), eventlet.hubs.get_hub().listeners["read"].keys() == {second})
"""


def test_what_another_greenlet_waits_for_is_looked_at(monkeypatch):
    def refuse(*_):
        raise RuntimeError("Second simultaneous read on fileno 3 detected.")

    naps = []
    monkeypatch.setattr(readiness, "select", SimpleNamespace(select=refuse))
    monkeypatch.setattr(readiness.clock, "sleep", naps.append)

    assert readiness.readable(3, 5.0)
    assert readiness.writable(3, 0.001)
    assert list(readiness.readable_of([3, 4], 5.0)) == [3]
    assert not readiness.readable(3, 0)  # and it is not taken for the end of a connection

    # It is not for the processor to wait in circles.
    assert naps == [readiness.GLANCE, 0.001, readiness.GLANCES, 0.0, 0]


def test_without_poll(monkeypatch):
    # eventlet takes it away
    monkeypatch.delattr(readiness.select, "poll")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not readiness.readable(ours.fileno(), 0)
        assert readiness.writable(ours.fileno(), 0)
        theirs.send(b"x")
        assert readiness.readable(ours.fileno(), 5)
        assert list(readiness.readable_of([ours.fileno(), theirs.fileno()], 0)) == [ours.fileno()]


@pytest.mark.skipif(importlib.util.find_spec("eventlet") is None, reason="needs eventlet")
def test_where_one_of_several_is_refused_the_others_are_not_listened_to_for_ever():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REFUSED_IN_THE_MIDDLE],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.split() == ["False", "True"], done.stdout + done.stderr

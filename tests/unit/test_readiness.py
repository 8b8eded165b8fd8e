"""Waiting for a socket where somebody else waits for it; the rest is in the tests with servers."""

import socket
from types import SimpleNamespace

from celery_atomicity.connection import readiness


def test_what_another_greenlet_waits_for_is_looked_at(monkeypatch):
    def refuse(*_):
        raise RuntimeError("Second simultaneous read on fileno 3 detected.")

    naps = []
    monkeypatch.setattr(readiness, "select", SimpleNamespace(select=refuse))
    monkeypatch.setattr(readiness.clock, "sleep", naps.append)

    assert readiness.readable(3, 5.0)
    assert readiness.writable(3, 0.001)
    assert list(readiness.readable_of([3, 4], 5.0)) == [3, 4]

    # It is not for the processor to wait in circles.
    assert naps == [readiness.GLANCE, 0.001, readiness.GLANCES, 0.0]


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

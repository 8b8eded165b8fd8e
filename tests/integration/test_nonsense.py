"""A server that is none: each call ends in time with an error that says so, and holds nothing."""

import os
import random
import socket
import threading

import psutil
import pytest
from support.liar import Liar

from celery_atomicity import AtomicityError, LockTimeout, Unavailable, clock, overview
from celery_atomicity.atom import Atom
from celery_atomicity.connection import Clients, resp
from celery_atomicity.integration.beat.due import Unit
from celery_atomicity.integration.beat.ledger import Ledger
from celery_atomicity.primitives.limit import Limit
from celery_atomicity.primitives.rate import Question
from celery_atomicity.settings import Settings

TIMEOUT = 0.3

# Connecting takes up to three of them and asking one; the rest is a machine that is busy.
LONGEST = 4 * TIMEOUT + 4

# What memory may grow by: a bound on what is kept of one answer, for several connections.
MOST_MEMORY = 300e6


def forever(data, pause=0.0):
    """Say *data* again and again, until the other end has had enough."""

    def say(connection):
        over = threading.Event()
        while not over.wait(pause):
            connection.sendall(data)

    return say


def once(data, then="silence"):
    def say(connection):
        connection.sendall(data)
        if then == "silence":
            connection.recv(1 << 20)
            threading.Event().wait(5 * TIMEOUT)

    return say


def slowly(data):
    def say(connection):
        for byte in data:
            connection.sendall(bytes([byte]))
            threading.Event().wait(TIMEOUT / 4)

    return say


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


NONSENSE = {
    "random bytes": once(random.Random(7).randbytes(5000)),
    "zeros forever": forever(b"\0" * 65536),
    "a text of 10 GB": once(b"$10000000000\r\nabc"),
    "a text of 10 GB that comes": forever(b"$10000000000\r\n" + b"a" * 65536),
    "a billion items": once(b"*1000000000\r\n:1\r\n"),
    "a billion items within": once(b"*2\r\n*1000000000\r\n:1\r\n"),
    "a billion pushes": once(b">1000000000\r\n:1\r\n"),
    "a line without end": forever(b"+" + b"x" * 65536),
    "lists without end": forever(b"*1\r\n" * 10000),
    "answers to nothing": forever(b":1\r\n" * 10000),
    "half an answer": once(b"*4\r\n:1\r\n:17\r\n"),
    "half an answer and the end": once(b"*4\r\n:1\r\n:17\r\n", then="end"),
    "one byte at a time": slowly(b"*4\r\n:1\r\n:1764\r\n:0\r\n$0\r\n\r\n"),
    "nothing": once(b""),
    "the end": once(b"", then="end"),
    "a reset": reset,
    "a web page": once(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    "an unknown error": once(b"-WHAT s3rver do you mean\r\n"),
    "a simple text": once(b"+OK\r\n"),
    "no list": once(b"*-1\r\n"),
    "an empty list": once(b"*0\r\n"),
    "a list of other things": once(b"*4\r\n$1\r\nx\r\n*1\r\n:1\r\n$-1\r\n+y\r\n"),
    "a number too long": once(b":" + b"9" * 5000 + b"\r\n"),
    "it knows no script": forever(b"-NOSCRIPT No matching script.\r\n", pause=0.02),
}


def asked(url, group):
    """Ask everything at once, each on connections of its own; what came of each, by name."""
    conf = {"atomicity_redis": url, "atomicity_timeout": TIMEOUT, "atomicity_restart_grace": 0}
    settings = Settings.read(conf, {})
    found = {}

    def ask(name, function):
        clients = Clients(settings)
        began = clock.monotonic()
        try:
            found[name] = function(clients)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
            found[name] = error
        found[name] = (found[name], clock.monotonic() - began)
        clients.close()

    atom = Atom(group, settings=settings)
    threads = [
        threading.Thread(target=ask, args=(name, function))
        for name, function in {
            "meter": lambda _: atom.meter(["a", "b", "c"], [1, 1, 1]),
            "rate": lambda _: atom.rates.admit([Question(Limit("a", 1.0, 1.0, 1.0))]),
            "lock": lambda _: atom.lock("a", wait=0).acquire(),
            "ledger": lambda clients: Ledger(clients, group).load({Unit("a"): 1, Unit("b"): 1}),
            "overview": lambda clients: overview.look(clients, group),
        }.items()
    ]
    with atom:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONGEST + 60)
        owned = atom.slots(4)
    assert len(found) == len(threads)
    return found, owned


@pytest.fixture(params=["hiredis", pytest.param("python", marks=pytest.mark.soak)])
def reader(request, monkeypatch):
    """Both readers of answers."""
    if request.param == "python":
        monkeypatch.setattr(resp, "hiredis", None)
    elif resp.hiredis is None:
        pytest.skip("hiredis is not installed")
    return request.param


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_is_an_error_in_time(reader, what, group, caplog):
    before = psutil.Process(os.getpid()).memory_info().rss
    with Liar(NONSENSE[what]) as liar:
        found, owned = asked(liar.url, group)

    for name, (answer, seconds) in found.items():
        assert isinstance(answer, AtomicityError), f"{name} is served with {answer!r}"
        assert seconds < LONGEST, f"{name} takes {seconds:.1f} s"
        if not isinstance(answer, LockTimeout):
            assert str(liar.port) in str(answer) or "Redis or Valkey server" in str(answer)
        assert len(str(answer)) < 1000
        assert "s3cret" not in f"{answer}{answer!r}{answer.__cause__!r}"
    assert owned is None
    assert "s3cret" not in caplog.text
    assert len([one for one in caplog.records if one.levelname == "WARNING"]) < 12
    assert psutil.Process(os.getpid()).memory_info().rss - before < MOST_MEMORY


@pytest.mark.parametrize("what", ["random bytes", "a web page", "nothing", "one byte at a time"])
def test_a_greeting_of_nonsense_is_an_error_in_time(what, group):
    with Liar(NONSENSE[what], polite=False) as liar:
        found, _ = asked(liar.url, group)

    for name, (answer, seconds) in found.items():
        assert isinstance(answer, Unavailable | LockTimeout), f"{name} is served with {answer!r}"
        assert seconds < LONGEST, f"{name} takes {seconds:.1f} s"
        assert "s3cret" not in f"{answer}{answer!r}{answer.__cause__!r}"


def test_one_of_three_that_talks_nonsense_changes_nothing(servers, group):  # LOCK-10
    two = [servers(), servers()]
    for lie in ("a billion items", "a list of other things", "answers to nothing"):
        with Liar(NONSENSE[lie]) as liar:
            urls = [two[0].url, two[1].url, liar.url]
            conf = {"atomicity_redis": urls, "atomicity_restart_grace": 0, "atomicity_timeout": 1}
            atom = Atom(group, settings=Settings.read(conf, {}))
            fences = []
            for _ in range(5):
                with atom.lock("a", wait=10) as lease:
                    fences.append(lease.fence)
            assert fences == sorted(set(fences))

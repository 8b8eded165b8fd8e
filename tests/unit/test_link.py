"""One link, between two ends of a pair of sockets."""

import socket
import threading
from types import SimpleNamespace

import pytest

from celery_atomicity.connection.link import Broken, Link
from celery_atomicity.connection.script import Command, Script

SOON = 10.0


@pytest.fixture
def ends():
    """A link, and the server's end of it."""
    ours, theirs = socket.socketpair()
    connection = SimpleNamespace(_sock=ours, disconnect=ours.close)
    yield Link(connection, "run", tls=False, sits_out=0.0), theirs
    ours.close()
    theirs.close()


def ask(link, *questions):
    """Ask one command a question; whatever tells them apart will do for a question."""
    command = Command.plain("PING")
    link.send(command.data * len(questions), [(one, 0, command) for one in questions], 1.0)


def test_who_gives_a_link_up_does_not_take_the_questions_of_whoever_reads(ends, monkeypatch):
    # LOCK-01: an answer would go to another question, and a grant to whoever was refused.
    link, server = ends
    ask(link, "first", "second", "third")
    server.sendall(b":1\r\n")
    take = link._intake.take
    reads, goes_on = threading.Event(), threading.Event()

    def slowly(data):
        reads.set()
        assert goes_on.wait(SOON)
        return take(data)

    monkeypatch.setattr(link._intake, "take", slowly)
    answers, waiting = [], []
    reader = threading.Thread(target=lambda: answers.extend(link.read()), daemon=True)
    reader.start()
    assert reads.wait(SOON)
    other = threading.Thread(target=lambda: waiting.extend(link.give_up()), daemon=True)
    other.start()
    other.join(0.2)
    goes_on.set()
    for thread in (reader, other):
        thread.join(SOON)

    assert [(question, value) for (question, *_), value in answers] == [("first", 1)]
    assert [question for question, *_ in waiting] == ["second", "third"]


def test_nothing_is_read_from_what_was_given_up(ends):
    link, server = ends
    ask(link, "first")
    server.sendall(b":1\r\n")

    assert len(link.give_up()) == 1

    assert link.read() == link.heard() == link.give_up() == []


@pytest.mark.parametrize("said", [b":1\r\n:2\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", None])
def test_a_server_that_is_none_breaks_it(ends, said):
    link, server = ends
    ask(link, "first")
    if said is None:
        server.close()
    else:
        server.sendall(said)

    with pytest.raises(Broken):
        link.read()


def test_what_somebody_raises_into_it_is_none_of_its_faults(ends, monkeypatch):
    class Alarm(TimeoutError):
        pass

    def strike(_):
        raise Alarm("your time is up")

    link, _ = ends
    deaf = SimpleNamespace(recv=strike, send=strike, fileno=link.socket.fileno)
    monkeypatch.setattr(link, "socket", deaf)

    for use in (link.read, link.heard, lambda: ask(link, "first")):
        with pytest.raises(Alarm):
            use()


def test_what_is_owed_is_sent_in_full_once(ends):
    link, _ = ends
    release, acquire = Script("release", late=True), Script("acquire")

    first, second = (link.worded(release.command(["k"], ["x"])) for _ in range(2))

    assert release.source.encode() in first
    assert second == release.command(["k"], ["x"]).data
    assert release.source.encode() not in second
    assert link.worded(acquire.command(["k"], ["x"])) == acquire.command(["k"], ["x"]).data

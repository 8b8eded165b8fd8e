"""Being rung, over real connections: by turns, through outages, and torn away in the middle."""

import contextlib
import ctypes
import gc
import importlib.util
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from celery_atomicity import clock, threads
from celery_atomicity.connection.mailbox import IDLE, REST, Mailbox
from celery_atomicity.settings import Settings
from celery_atomicity.testing import wait_until

# Longer than any test takes: whoever is not rung is noticed.
LONG = 30.0
SOON = 10.0


@pytest.fixture
def mailbox(server, group):
    settings = Settings.read({"atomicity_redis": server.url}, {})
    return Mailbox(settings, lambda process: f"{group}:{process}")


@pytest.fixture
def pool():
    with ThreadPoolExecutor(64) as pool:
        yield pool


def ring(server, mailbox, ticket):
    assert server.cli("PUBLISH", mailbox.channel, ticket) == 1


def listeners(server):
    return server.cli("CLIENT", "LIST", "TYPE", "pubsub").count("id=")


def expected(mailbox, *tickets):
    bells = [mailbox.expect(ticket) for ticket in tickets]
    for bell in bells:
        bell.muffle()
    return bells


def wait(mailbox, bell, seconds=LONG):
    """Whether it was rung, and the thread that waited."""
    mailbox.wait(bell, seconds)
    return bell.done


def test_who_waits_alone_is_rung_without_another_thread(server, mailbox, pool):
    # LOCK-04
    [bell] = expected(mailbox, "a")
    waiting = pool.submit(wait, mailbox, bell)

    ring(server, mailbox, "a said so")

    assert waiting.result(SOON)
    assert bell.said == "said so"
    assert bell.run == mailbox._link.run


def test_what_was_rung_before_the_wait_is_heard(server, mailbox):
    [bell] = expected(mailbox, "a")
    ring(server, mailbox, "a")

    assert wait(mailbox, bell)


def test_a_wait_ends(server, mailbox):
    [bell] = expected(mailbox, "a")

    assert not wait(mailbox, bell, 0.05)
    assert not wait(mailbox, bell, 0)


@pytest.mark.parametrize("first", ["a", "b", "c"])
def test_those_who_stay_are_rung_whoever_goes_first(server, mailbox, pool, first):
    tickets = ["a", "b", "c"]
    bells = expected(mailbox, *tickets)
    waiting = {}
    for ticket, bell in zip(tickets, bells, strict=True):
        waiting[ticket] = pool.submit(wait, mailbox, bell)
        clock.sleep(0.05)  # the first of them reads

    for ticket in (first, *(one for one in tickets if one != first)):
        ring(server, mailbox, ticket)
        assert waiting[ticket].result(SOON)


def test_those_who_stay_are_rung_after_the_reader_gives_up(server, mailbox, pool):
    bells = expected(mailbox, "short", "long")
    short = pool.submit(wait, mailbox, bells[0], 0.2)
    clock.sleep(0.05)
    long = pool.submit(wait, mailbox, bells[1])
    assert not short.result(SOON)

    ring(server, mailbox, "long")

    assert long.result(SOON)


class Torn(BaseException):
    """What a time limit raises into running code."""


def tear(thread):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Torn))


# Where it strikes in the middle of connecting, redis-py's socket is left to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_those_who_stay_are_rung_after_the_reader_is_torn_away(server, mailbox, pool):
    # LOCK-16: a soft time limit strikes wherever it likes
    bells = expected(mailbox, "torn", "stays")

    def until_torn():
        with contextlib.suppress(Torn):
            while True:
                mailbox.wait(bells[0], 0.01)

    for _ in range(30):
        thread = threading.Thread(target=until_torn)
        thread.start()
        stays = pool.submit(wait, mailbox, bells[1])
        clock.sleep(random.uniform(0.005, 0.03))

        tear(thread)
        thread.join(SOON)
        assert not thread.is_alive()
        # It may have had to listen anew, and rung whoever waits for that.
        if not stays.done():
            server.cli("PUBLISH", mailbox.channel, "stays")

        assert stays.result(SOON)
        bells[1].muffle()
    gc.collect()


def test_who_is_torn_away_while_it_reads_leaves_a_whole_connection(server, mailbox, monkeypatch):
    bells = expected(mailbox, "torn", "stays")
    clock.sleep(REST)
    link = mailbox._link
    heard = link.heard

    def torn():
        assert heard()
        raise Torn

    monkeypatch.setattr(link, "heard", torn)
    ring(server, mailbox, "stays")  # and nobody hears it

    with pytest.raises(Torn):
        mailbox.wait(bells[0], LONG)

    assert wait(mailbox, bells[1])
    assert mailbox._link is not link


def test_a_connection_that_breaks_is_made_anew_by_who_waits(server, mailbox, pool):
    bells = expected(mailbox, "a", "b")
    clock.sleep(REST)  # it rests for a moment where it has only just connected
    waiting = [pool.submit(wait, mailbox, bell) for bell in bells]

    server.cli("CLIENT", "KILL", "TYPE", "pubsub")

    # They may have been rung meanwhile, so they are.
    assert all(one.result(SOON) for one in waiting)
    for bell in bells:
        bell.muffle()
    waiting = [pool.submit(wait, mailbox, bell) for bell in bells]
    ring(server, mailbox, "b")
    ring(server, mailbox, "a")
    assert all(one.result(SOON) for one in waiting)


def test_a_server_that_is_gone_for_a_while_is_waited_for(server, mailbox, pool):
    # F11
    bells = expected(mailbox, "a", "b")
    waiting = [pool.submit(wait, mailbox, bell) for bell in bells]
    server.kill()
    clock.sleep(1.0)
    assert not any(one.done() for one in waiting)
    assert not mailbox.listens

    server.start()

    assert all(one.result(SOON) for one in waiting)
    assert mailbox.listens


def test_nobody_is_expected_where_nobody_can_be_rung(server, mailbox, monkeypatch):
    tries = []
    connect = mailbox._connect
    monkeypatch.setattr(mailbox, "_connect", lambda: tries.append(0) or connect())
    server.kill()

    began = clock.monotonic()
    for _ in range(100):
        assert mailbox.expect("a") is None

    assert len(tries) <= 1 + (clock.monotonic() - began) / REST
    assert not mailbox._waiting


class Ringer(threading.Thread):
    """Rings those who ask for it, some at once, in any order."""

    def __init__(self, server, channel):
        super().__init__(daemon=True)
        self._server, self._channel = server, channel
        self._asked = []
        self._lock = threading.Lock()
        self._over = threading.Event()

    def ask(self, ticket):
        with self._lock:
            self._asked.append(ticket)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()

    def run(self):
        dice = random.Random(0)
        while not self._over.wait(dice.uniform(0, 0.001)):
            with self._lock:
                tickets, self._asked = self._asked, []
            dice.shuffle(tickets)
            for ticket in tickets:
                self._server.cli("PUBLISH", self._channel, ticket)


def test_no_ring_is_lost_among_many_who_come_and_go(server, mailbox, pool):
    # Whoever reads hands it on to one that waits, at whatever moment it stops.
    mailbox.expect("nobody")

    def missed(number):
        dice = random.Random(number)
        found = []
        for turn in range(60):
            ticket = f"{number}-{turn}"
            bell = mailbox.expect(ticket)
            if dice.random() < 0.3:
                mailbox.wait(bell, dice.uniform(0, 0.003))
            ringer.ask(ticket)
            if not wait(mailbox, bell, SOON):
                found.append(ticket)
            mailbox.forget(ticket)
        return found

    with Ringer(server, mailbox.channel) as ringer:
        runs = [pool.submit(missed, number) for number in range(12)]
        assert [run.result(90) for run in runs] == [[]] * 12


def test_nobody_is_expected_where_no_thread_can_be_started(server, mailbox, monkeypatch):
    # F99
    monkeypatch.setattr("celery_atomicity.connection.mailbox.IDLE", 0.2)
    with monkeypatch.context() as patch:

        def refuse(*_):
            raise RuntimeError("can't start new thread")

        patch.setattr(threads, "start", refuse)
        assert mailbox.expect("a") is None

    assert mailbox.expect("b") is not None
    mailbox.forget("b")

    wait_until(lambda: listeners(server) == 0, what="it listens no more")


def test_it_is_watched_over_an_outage(server, mailbox, pool, monkeypatch):
    # F99
    monkeypatch.setattr("celery_atomicity.connection.mailbox.IDLE", 0.2)
    [bell] = expected(mailbox, "a")
    clock.sleep(REST)
    waiting = pool.submit(wait, mailbox, bell)
    server.kill()
    clock.sleep(0.5)
    server.start()
    assert waiting.result(SOON)
    assert listeners(server) == 1

    mailbox.forget("a")

    wait_until(lambda: listeners(server) == 0, what="it listens no more")


@pytest.mark.parametrize("greenlets", ["gevent", "eventlet"])
def test_greenlets_take_turns_too(server, greenlets):
    # eventlet refuses a second one that waits for the same socket
    if importlib.util.find_spec(greenlets) is None:  # importing eventlet has every fork warn
        pytest.skip(f"{greenlets} is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.many_readers", greenlets, server.url],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.splitlines()[-1:] == ["[] 800 0"], done.stdout + done.stderr


def test_it_listens_while_somebody_waits_and_not_for_good(server, mailbox, monkeypatch):
    # F99
    monkeypatch.setattr("celery_atomicity.connection.mailbox.IDLE", 0.2)
    mailbox.expect("a")
    clock.sleep(0.6)
    assert listeners(server) == 1

    mailbox.forget("a")

    wait_until(lambda: listeners(server) == 0, what="it listens no more")
    assert not mailbox.listens
    [bell] = expected(mailbox, "b")
    ring(server, mailbox, "b")
    assert wait(mailbox, bell)
    assert IDLE > 1

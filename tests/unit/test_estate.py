"""What a killed process held is told by what it wrote into memory of its parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_atomicity import keys
from celery_atomicity.primitives.estate import PAGE, PAGES, Estate, Legacy

PLACES = keys.lock_places("g", ["k"])


def child(work):
    """Run *work* in a forked child that then waits to be killed; its pid."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os.write(told, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(told)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    return pid


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def ids(estate):
    return [one.id for one in estate.read()]


def test_a_parent_reads_what_its_killed_child_noted():  # LOCK-18
    estate = Estate(lambda: 5)

    def work():
        estate.note("gone", PLACES, None)
        estate.note("held", PLACES, None)
        estate.strike("gone")

    pid = child(work)
    kill(pid)

    assert estate.read() == [Legacy(pid, "held", PLACES, 0.0)]


def test_nothing_is_noted_where_there_is_no_page():
    for index in (None, -1, PAGES):
        estate = Estate(lambda index=index: index)

        estate.note("a", PLACES, None)
        estate.strike("a")

        assert estate.read() == []


def test_children_write_on_pages_of_their_own():
    pages = iter((1, 2))
    current = [0]
    estate = Estate(lambda: current[0])
    pids = []
    for name in ("one", "two"):
        current[0] = next(pages)
        pids.append(child(lambda name=name: estate.note(name, PLACES, None)))

    try:
        assert ids(estate) == ["one", "two"]
    finally:
        for pid in pids:
            kill(pid)


def test_a_successor_on_the_same_page_leaves_what_was_there_to_be_read():
    estate = Estate(lambda: 7)
    kill(child(lambda: estate.note("old", PLACES, None)))

    successor = child(lambda: estate.note("new", PLACES, None))

    assert sorted(ids(estate)) == ["new", "old"]
    kill(successor)


def test_what_is_struck_out_is_gone():
    estate = Estate(lambda: 0)
    for name in ("a", "b", "c"):
        estate.note(name, PLACES, 5.0)
    assert sorted(ids(estate)) == ["a", "b", "c"]
    assert all(one.until > 0 for one in estate.read())

    for name in ("a", "b", "c", "never"):
        estate.strike(name)

    assert estate.read() == []


def test_more_than_fits_keeps_the_latest_whole():
    estate = Estate(lambda: 0)
    places = keys.lock_places("g", ["k" * keys.LONGEST])
    for number in range(100):
        estate.note(f"{number:032d}", places, None)

    kept = ids(estate)

    assert kept == [f"{99 - index:032d}" for index in range(len(kept))]
    assert len(kept) >= 4


def test_a_half_written_page_is_not_believed():
    estate = Estate(lambda: 0)
    estate.note("a", PLACES, None)
    half = estate._memory[0]
    estate._memory[8 + half * ((PAGE - 8) // 2) + 20] ^= 255

    assert estate.read() == []


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef")), max_size=40),
)
def test_what_stands_there_is_what_was_noted_and_not_struck(steps):
    estate = Estate(lambda: 3)
    expected = set()
    for add, name in steps:
        if add:
            estate.note(name, PLACES, None)
            expected.add(name)
        else:
            estate.strike(name)
            expected.discard(name)

        assert set(ids(estate)) == expected


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_pages_that_are_not_used_cost_no_memory():
    script = (
        "from celery_atomicity.primitives.estate import Estate, PAGES, PAGE\n"
        "def shared():\n"
        "    text = open('/proc/self/status').read()\n"
        "    return int(text.split('RssShmem:')[1].split()[0]) * 1024\n"
        "estate = Estate(lambda: 3)\n"
        "estate.note('a', ('b',) * 3, None); estate.read(); estate.strike('a'); estate.read()\n"
        "assert shared() < PAGES * PAGE / 20, shared()\n"
    )

    subprocess.run([sys.executable, "-c", script], check=True)

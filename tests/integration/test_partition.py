import itertools
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from support import needs

from celery_atomicity import Assignment, Atom, AtomicityError
from celery_atomicity.connection import Clients
from celery_atomicity.primitives.partition import Partition
from celery_atomicity.settings import Settings
from celery_atomicity.testing import wait_until

INTERVAL = 0.4


@pytest.fixture
def replicas(group):
    """A factory of open replicas, each with connections of its own as if it were a process."""
    made = []

    def make(url, count=1, *, interval=INTERVAL, **options):
        settings = Settings.read({"atomicity_redis": url, "atomicity_timeout": 0.2}, {})
        new = [Partition(Clients(settings), group, interval, 0.15) for _ in range(count)]
        for one in new:
            one.open(**options)
        made.extend(new)
        return new

    yield make
    for one in made:
        one.close()


def owned(replicas, total=16):
    """The slots of all replicas, sorted, or None while any of them owns nothing."""
    slots = [one.slots(total) for one in replicas]
    return None if None in slots else sorted(itertools.chain(*slots))


def settles(replicas, total=16):
    wait_until(
        lambda: owned(replicas, total) == list(range(total)),
        timeout=15,
        what="the group is complete",
    )


def test_a_settled_group_is_complete_and_even(replicas, server):  # PART-02
    three = replicas(server.url, 3)

    settles(three)

    sizes = sorted(len(one.slots(16)) for one in three)
    assert sizes == [5, 5, 6]


def test_a_settled_group_stays_as_it_is(replicas, server):  # PART-03
    three = replicas(server.url, 3)
    settles(three)
    before = [one.assignment for one in three]
    changes = []
    for one in three:
        one.onassigned(changes.append)
    changes.clear()

    time.sleep(4 * INTERVAL)

    assert changes == []
    assert [one.assignment for one in three] == before


def test_who_joins_and_who_leaves_is_counted(replicas, server):
    two = replicas(server.url, 2)
    settles(two)

    [third] = replicas(server.url)
    settles([*two, third])
    third.close()

    assert third.slots(16) is None
    settles(two)


def test_nothing_is_owned_before_it_is_certain(replicas, server):  # PART-04
    [one] = replicas(server.url)

    assert one.slots(16) is None
    assert one.assignment is None
    assert not one.owns(3, 16)


def test_a_server_that_stops_and_comes_back_empty(replicas, server, caplog):
    # PART-04
    two = replicas(server.url, 2)
    settles(two)

    server.stop()
    wait_until(
        lambda: [one.slots(16) for one in two] == [None, None],
        timeout=INTERVAL * 1.15 + 5,
        what="both own nothing",
    )
    server.start()

    settles(two)
    warnings = [one for one in caplog.records if "does not answer" in one.message]
    # Of the replicas of one process, as of all processes of a worker, the first to meet it says so.
    assert len(warnings) == 1


def test_an_emptied_server_settles_again(replicas, server):
    two = replicas(server.url, 2)
    settles(two)

    server.cli("FLUSHALL")
    wait_until(lambda: owned(two) is None, what="the loss is noticed")

    settles(two)


def test_a_process_that_was_frozen_owns_nothing_when_it_wakes(server, group):  # PART-05
    program = (
        "import sys, time\n"
        "from celery_atomicity import Atom\n"
        "atom = Atom(sys.argv[2], redis=sys.argv[1])\n"
        "atom.open()\n"
        "while True:\n"
        "    now = time.clock_gettime(time.CLOCK_BOOTTIME)\n"
        "    print(now, atom.slots(4), flush=True)\n"
        "    time.sleep(0.002)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, server.url, group],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ATOMICITY_INTERVAL": "0.4", "ATOMICITY_TIMEOUT": "0.2"},
    )
    try:
        lines = iter(process.stdout.readline, "")
        next(line for line in lines if "[0, 1, 2, 3]" in line)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(3 * INTERVAL)
        thawed = time.clock_gettime(time.CLOCK_BOOTTIME)
        os.kill(process.pid, signal.SIGCONT)

        after = next(line for line in lines if float(line.split()[0]) >= thawed)

        # Its very first answer after it woke.
        assert after.split(maxsplit=1)[1].strip() == "None"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_listener_is_told_at_once_and_then_each_change(replicas, server):  # PART-07
    [one] = replicas(server.url)
    told = []

    off = one.onassigned(told.append)
    assert told == [None]
    wait_until(lambda: told[1:] == [Assignment(0, 1)], what="it is told")

    [other] = replicas(server.url)
    wait_until(lambda: told[-1] in (Assignment(0, 2), Assignment(1, 2)), what="it is told")
    assert told[2] is None
    assert all(a != b for a, b in itertools.pairwise(told))

    off()
    off()
    length = len(told)
    other.close()
    settles([one])
    assert len(told) == length


def test_a_listener_that_raises_ends_the_loop(replicas, server, caplog):  # PART-07
    one, other = replicas(server.url, 2)
    told = []

    def fails(assignment):
        if assignment is not None:
            raise RuntimeError("cannot take it up")

    one.onassigned(fails)
    one.onassigned(told.append)
    wait_until(lambda: "cannot take it up" in one.state().error, what="the loop has ended")

    assert one.slots(16) is None
    assert told[-1] is None
    [record] = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    assert "cannot take it up" in str(record.exc_info[1])
    assert not one.state().open
    # It is not counted any more either.
    settles([other])


def test_what_nobody_foresaw_does_not_end_the_loop(replicas, server, monkeypatch):
    [one] = replicas(server.url)
    settles([one])

    def fails(*_arguments):
        raise LookupError("unknown encoding: idna")

    with monkeypatch.context() as patch:
        patch.setattr(one._clients, "ask", fails)
        wait_until(lambda: "idna" in one.state().error, what="it is seen")
        assert one.state().open

    settles([one])


def test_a_listener_that_raises_as_it_is_added_is_the_callers_error(replicas, server):
    [one] = replicas(server.url)

    def fails(_assignment):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        one.onassigned(fails)

    settles([one])


def test_closing_stands_down_at_once_and_tells_so(replicas, server):  # PART-09
    [one] = replicas(server.url)
    settles([one])
    told = []
    one.onassigned(told.append)

    one.close()

    assert told == [Assignment(0, 1), None]
    assert one.slots(16) is None
    calls = _increments(server)
    time.sleep(2 * INTERVAL)
    assert _increments(server) == calls


def test_a_child_reads_and_does_not_register(replicas, server):  # PART-06
    [one] = replicas(server.url)
    settles([one])
    reader, writer = os.pipe()

    child = os.fork()
    if child == 0:
        try:
            one.onassigned(print)
            refused = "not refused"
        except AtomicityError as error:
            refused = str(error)
        os.write(writer, f"{one.slots(4)} {threading.active_count()} {refused}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    text = os.read(reader, 10_000).decode()

    assert text.startswith("[0, 1, 2, 3] 1 ")
    assert "main process" in text
    os.close(reader)
    os.close(writer)


def test_reading_in_a_child_makes_no_system_call(server, group, tmp_path):  # PART-06
    if shutil.which("strace") is None:
        needs.missing("strace", "apt-get install strace")
    program = (
        "import os, sys, time\n"
        "from celery_atomicity import Atom\n"
        "atom = Atom(sys.argv[2], redis=sys.argv[1])\n"
        "atom.open()\n"
        "while atom.slots(2) is None: time.sleep(0.01)\n"
        "if os.fork() == 0:\n"
        "    os.write(1, b'from here')\n"
        "    for _ in range(1000): atom.slots(128), atom.owns(3, 128), atom.assignment\n"
        "    os.write(1, b'to here')\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    trace = tmp_path / "trace"

    subprocess.run(
        ["strace", "-f", "-o", trace, sys.executable, "-c", program, server.url, group],
        check=True,
        env={**os.environ, "ATOMICITY_INTERVAL": "0.4", "ATOMICITY_TIMEOUT": "0.2"},
    )

    lines = trace.read_text().splitlines()
    child = next(line.split()[0] for line in lines if "from here" in line)
    calls = [line.split(maxsplit=1)[1] for line in lines if line.split()[0] == child]
    first = next(index for index, call in enumerate(calls) if "from here" in call)
    last = next(index for index, call in enumerate(calls) if "to here" in call)
    # The clock is read without one where the kernel offers that.
    assert [call for call in calls[first + 1 : last] if "clock_gettime" not in call] == []


def test_a_child_whose_parent_was_killed_owns_nothing_from_the_deadline_on(server, group):
    # PART-05
    program = (
        "import os, sys, time\n"
        "from celery_atomicity import Atom\n"
        "atom = Atom(sys.argv[2], redis=sys.argv[1])\n"
        "atom.open()\n"
        "while atom.slots(2) is None: time.sleep(0.01)\n"
        "if os.fork():\n"
        "    time.sleep(60)\n"
        "while True:\n"
        "    print(os.getpid(), atom.slots(2), flush=True)\n"
        "    time.sleep(0.01)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, server.url, group],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ATOMICITY_INTERVAL": "0.4", "ATOMICITY_TIMEOUT": "0.2"},
    )
    lines = iter(parent.stdout.readline, "")
    child, slots = next(lines).split(maxsplit=1)
    try:
        assert slots.strip() == "[0, 1]"
        parent.kill()

        assert any("None" in line for _, line in zip(range(500), lines, strict=False))
    finally:
        os.kill(int(child), signal.SIGKILL)
        parent.wait()
        parent.stdout.close()


def test_a_replica_that_speaks_the_wire_format_takes_part(replicas, server, group):
    """One written in another language, played here with raw commands."""
    [one] = replicas(server.url)
    stop = threading.Event()

    def foreign():
        base = f"atom:{group}:slots:{{{group}}}"
        counted = None
        while not stop.is_set():
            seconds, micro = server.cli("TIME")
            now = int(seconds) + int(micro) / 1e6
            number = int(now / INTERVAL)
            if number != counted and now / INTERVAL - number > 0.8:
                counted = number
                server.cli("INCR", f"{base}:{number}")
                server.cli("PEXPIRE", f"{base}:{number}", str(int(3000 * INTERVAL)))
            stop.wait(0.01)

    other = threading.Thread(target=foreign)
    other.start()
    try:
        wait_until(lambda: one.assignment == Assignment(0, 2), what="it is counted", timeout=15)
    finally:
        stop.set()
        other.join()
    wait_until(lambda: one.assignment == Assignment(0, 1), what="it is not counted any more")


def test_a_process_that_has_stalled_stands_down(replicas, server):  # BEAT-07
    alive = threading.Event()
    alive.set()
    [one] = replicas(server.url, alive=alive.is_set)
    settles([one])

    alive.clear()
    wait_until(lambda: one.slots(16) is None, what="it stands down")
    assert "stalled" in one.state().error

    alive.set()
    settles([one])


def test_there_is_one_atom_per_group_and_process(server, group):  # PART-08
    settings = Settings.read(
        {
            "atomicity_redis": server.url,
            "atomicity_interval": INTERVAL,
            "atomicity_timeout": 0.2,
        },
        {},
    )
    one, other = (Atom(group, settings=settings) for _ in range(2))
    with one, other:
        wait_until(lambda: one.assignment == Assignment(0, 1), what="it is settled")

    assert one is other


def test_counters_do_not_stay_behind(replicas, server, group):
    [one] = replicas(server.url)
    settles([one])
    one.close()

    wait_until(
        lambda: not [key for key in server.cli("KEYS", "*") if ":slots:" in key],
        what="the counters are gone",
    )


def _increments(server):
    text = server.cli("INFO", "commandstats")
    line = next(line for line in text.splitlines() if line.startswith("cmdstat_incr:"))
    return int(line.split("calls=")[1].split(",")[0])

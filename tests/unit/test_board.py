import os
import threading

from celery_atomicity import clock
from celery_atomicity.primitives.board import Board
from celery_atomicity.primitives.membership import Assignment


def in_child(function):
    """What *function* answers in a forked child, as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, repr(function()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def test_a_child_reads_what_its_parent_writes_before_and_after_the_fork():  # PART-06
    board = Board()
    board.write(Assignment(1, 3), clock.monotonic() + 60)

    assert in_child(board.read) == "(1, 3)"

    asked, answered = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.read(asked[0], 1)
        os.write(answered[1], repr(board.read()).encode())
        os._exit(0)
    board.write(Assignment(0, 2), clock.monotonic() + 60)
    os.write(asked[1], b"x")

    assert os.read(answered[0], 100) == b"(0, 2)"
    os.waitpid(child, 0)
    for descriptor in (*asked, *answered):
        os.close(descriptor)


def test_from_the_deadline_on_nothing_is_owned():  # PART-05
    board = Board()
    board.write(Assignment(0, 1), clock.monotonic() - 0.001)

    assert board.read() is None


def test_nothing_is_owned_at_first_and_after_standing_down():
    board = Board()
    assert board.read() is None

    board.write(Assignment(0, 1), clock.monotonic() + 60)
    assert board.read() == (0, 1)

    board.write(None, 0.0)
    assert board.read() is None


def test_a_writer_that_died_in_the_middle_leaves_nothing_owned():
    board = Board()
    board.write(Assignment(0, 1), clock.monotonic() + 60)

    board._words[1] = 5  # the index changed, and the checksum did not

    assert board.read() is None


def test_a_reader_never_sees_half_of_a_change():  # PART-06
    board = Board()
    until = clock.monotonic() + 60
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            board.write(Assignment(number % 1000, number % 1000 + 1), until)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20_000):
            found = board.read()
            assert found is None or found[1] == found[0] + 1
    finally:
        stop.set()
        writer.join()

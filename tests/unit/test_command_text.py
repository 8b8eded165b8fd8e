"""What locks, shares and findings look like to a person."""

import pytest

from celery_atomicity.checkup import Finding, Level
from celery_atomicity.custody import Custody, Held, Waiter
from celery_atomicity.integration.command.doctor_text import finding_lines
from celery_atomicity.integration.command.shares import share_lines, shares_of
from celery_atomicity.integration.command.status import Replica
from celery_atomicity.integration.command.text import (
    MOST,
    WIDTH,
    custody_lines,
    lock_lines,
    printable,
)

NOW = 1_700_000_000.0
SINCE = "2023-11-14T22:13:18+00:00"  # two seconds before
HELD = Held("sync:17", "task sync[7]", SINCE, 8.0, 1)


def custody(*held, waiters=(), fence=1700, silent=()):
    return Custody("shop", "sync:17", held, waiters, fence, silent, (None,))


def test_a_key_that_is_held_is_told_in_full():
    waiters = (Waiter("c0ffee", 3.5, 0.4, False), Waiter("dead", 60.0, 9.0, True))

    assert custody_lines(custody(HELD, waiters=waiters), NOW) == [
        "sync:17: held",
        "  holder   task sync[7]",
        "  since    2023-11-14 22:13:18 UTC, for 2.0 s",
        "  free     in 8.0 s at the latest, unless it is renewed",
        "  fence    1700 or less: the last that the group was given",
        "  waiting  1. for 3.5 s, process c0ffee",
        "           2. for 1.0 min, process dead, gone: it is passed over",
    ]


def test_a_free_key_says_so():
    assert custody_lines(custody(), NOW) == ["sync:17: free", "  waiting  nobody"]


def test_another_client_s_lock_says_what_is_not_known():
    shown = custody_lines(custody(Held("sync:17", "", "", None, 0), fence=0), NOW)

    assert shown[1:5] == [
        "  holder   another client, which does not say who it is",
        "  since    not said",
        "  free     never, unless its holder lets it go",
        "  fence    not known",
    ]


def test_on_how_many_addresses_it_is_held_is_said_where_there_are_several():
    most = Held("sync:17", "a", SINCE, 8.0, 0, at=2, of=3)
    one = Held("sync:17", "b", SINCE, 8.0, 0, at=1, of=3)

    shown = custody_lines(custody(most, one), NOW)

    assert "  held on  2 of 3 addresses" in shown
    assert "  held on  1 of 3 addresses, no majority: being taken, let go, or left behind" in shown


def test_a_line_that_nobody_knows_is_no_empty_line():
    [_, waiting] = custody_lines(custody(waiters=None), NOW)

    assert "not known: the first address" in waiting


def test_of_a_very_long_line_only_its_head_is_shown():
    waiters = tuple(Waiter(f"p{n}", 1.0, 0.1, False) for n in range(MOST + 3))

    shown = custody_lines(custody(HELD, waiters=waiters), NOW)

    assert shown[-1].strip() == "and 3 more; --json shows all"


def test_a_list_of_locks_points_out_what_has_no_majority():
    lines = lock_lines([HELD, Held("b", "x", "", 1.0, 0, at=1, of=3)], NOW)

    assert lines == [
        "locks held: 2",
        "  sync:17  task sync[7], for 2.0 s, free in 8.0 s at the latest, 1 waiting",
        "  b        x, free in 1.0 s at the latest, on 1 of 3 addresses only",
    ]


def test_what_would_move_the_cursor_is_not_printed():
    assert printable("a\x1b[2Jb\r\nc") == "a?[2Jb??c"


class TestShares:
    def test_every_worker_is_shown_with_its_slots(self):
        found = shares_of("shop", [Replica("b", 1, 2, 4.0), Replica("a", 0, 2, 4.0)], 6)

        assert found.settled
        assert share_lines(found) == [
            "group shop: 6 slots, 2 of 2 workers own some",
            "  a  3: 0, 2, 4",
            "  b  3: 1, 3, 5",
        ]

    def test_slots_without_an_owner_are_shown(self):
        found = shares_of("shop", [Replica("a", 0, 2, 4.0), Replica("new")], 4)

        assert not found.settled
        assert found.unowned == (1, 3)
        assert share_lines(found)[1:] == [
            "  a       2: 0, 2",
            "  new     nothing",
            "  nobody  2: 1, 3",
        ]

    def test_answers_of_two_moments_are_pointed_out(self):
        found = shares_of("shop", [Replica("a", 0, 1, 4.0), Replica("b", 1, 2, 4.0)], 4)

        assert not found.settled
        assert found.doubled == (1, 3)
        assert "ask again" in share_lines(found)[-1]

    def test_of_many_slots_the_first_and_the_last_are_named(self):
        shown = share_lines(shares_of("shop", [Replica("a", 0, 1, 4.0)], 100_000))

        assert shown[1] == "  a  100,000: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 ... 99999"

    def test_without_an_answer_nobody_owns_anything(self):
        found = shares_of("shop", [], 2)

        assert share_lines(found) == [
            "group shop: 2 slots, no worker answered",
            "  nobody  2: 0, 1",
        ]

    @pytest.mark.parametrize("length", [10, 60, 100])
    def test_no_line_is_wider_than_a_terminal(self, length):
        replicas = [Replica("w" * length, 3, 7, 4.0), Replica("x", 0, 7, 4.0)]

        assert max(map(len, share_lines(shares_of("shop", replicas, 10_000)))) <= WIDTH


class TestFindings:
    def test_they_stand_by_where_they_are_with_their_remedies(self):
        found = [
            Finding("settings", Level.OK, "a", "all is well"),
            Finding("redis://one", Level.FAULT, "b", "it is down", "start it"),
            Finding("settings", Level.NOTE, "c", "by the way"),
        ]

        assert list(finding_lines(found)) == [
            ("settings", None),
            ("  ok       all is well", Level.OK),
            ("  note     by the way", Level.NOTE),
            ("redis://one", None),
            ("  fault    it is down", Level.FAULT),
            ("           -> start it", None),
        ]

    def test_long_ones_are_wrapped_and_numbers_keep_their_units(self):
        said = " ".join(["atomicity_lock_ttl (10 s) is long"] * 20)

        lines = [line for line, _ in finding_lines([Finding("x", Level.WARNING, "a", said)])]

        assert max(map(len, lines)) <= WIDTH
        assert all(line.startswith(" " * 11) for line in lines[2:])
        assert not any(line.strip().startswith("s)") for line in lines)
        assert " ".join(" ".join(lines[1:]).split()) == f"warning {said}"

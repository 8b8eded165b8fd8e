"""What is on the screen of ``watch``, apart from the terminal."""

import pytest

from celery_atomicity.custody import Held
from celery_atomicity.integration.command.entries import Entry
from celery_atomicity.integration.command.status import Group, Replica, Status
from celery_atomicity.integration.command.watch.frame import cut, frame_of, short
from celery_atomicity.integration.command.watch.layout import columns, fit, lines_of
from celery_atomicity.integration.command.watch.loop import View
from celery_atomicity.integration.command.watch.terminal import names_of
from celery_atomicity.overview import Limited, Overview, Owed
from celery_atomicity.primitives.rates import Standing

NOW = 1_700_000_000.0
SINCE = "2023-11-14T22:13:18+00:00"  # two seconds before
EARLIER = "2023-11-14T22:12:20+00:00"  # a minute before
HOLDER = "task shop.sync[ffc38bf2-5b38-4bc2-9987-02f38e806a8e] on three@web-three"


def status(*locks, limits=(), debts=(), replicas=(), sits_out=0.0, **parts):
    arbiter = Overview("shop", 0, sits_out, locks, limits, debts)
    group = Group("shop", replicas, arbiter, parts.pop("beats", None), parts.pop("entries", ()))
    return Status(("redis://one:6379", "redis://two:6379"), "broker_url", (group,), **parts)


FULL = status(
    Held("shop.sync:17", HOLDER, SINCE, 8.0, 2),
    Held("shop.sync:4", "", "", None, 0),
    limits=(Limited("shop.call:acme", Standing(10.0, 20.0, 1.7, 12.0)),),
    debts=(Owed("sam", 61_500.0),),
    replicas=(Replica("w2@b", 1, 2, 4.0), Replica("w1@a")),
    beats=1,
    entries=(Entry("sweep", 128, NOW - 5, "b:1", 0, {"b:1": 128}, coming=NOW + 55),),
)


def shown(found, size=(80, 24), skip=0, **options):
    return [line.text for line in lines_of(frame_of(found, NOW, **options), "q quit", size, skip)]


def test_all_there_is_fits_on_a_small_terminal():
    assert [line.rstrip() for line in shown(FULL, (80, 20))] == [
        "shop  at redis://one:6379 and 1 more",
        "",
        "WORKERS 2  OWNS     FOR",
        "w2@b       1 of 2   4.0 s",
        "w1@a       nothing",
        "",
        "LOCKS 2       HOLDER                                  HELD   FREE IN  WAIT",
        "shop.sync:17  shop.sync[ffc38bf2] on three@web-three  2.0 s  8.0 s    2",
        "shop.sync:4   another client                                 never",
        "",
        "LIMITS 1        RATE  BURST  BEHIND  WAIT",
        "shop.call:acme  10/s  20     1.7 s   12",
        "",
        "DEBTS 1  OWES",
        "sam      1.0 min",
        "",
        "ENTRIES 1, BEATS 1  BY   SLOTS  SENT   NEXT    OPEN",
        "sweep               b:1  128    5.0 s  55.0 s",
        "",
        "q quit",
    ]


@pytest.mark.parametrize("size", [(80, 24), (60, 12), (40, 6), (132, 50), (20, 3)])
@pytest.mark.parametrize("skip", [0, 3, 1000])
def test_the_screen_is_filled_and_never_overfilled(size, skip):
    for found in (FULL, status(*[Held(f"key {n}", HOLDER, SINCE, 8.0, 2) for n in range(100)])):
        lines = shown(found, size, skip)

        assert len(lines) == size[1]
        assert {columns(line) for line in lines} == {size[0]}
        assert lines[-1].startswith("q quit")


def test_where_there_is_no_room_it_is_said_how_many_more_there_are():
    found = status(*[Held(f"key {n:02}", "x", SINCE, 8.0, 0) for n in range(30)])

    lines = shown(found, (80, 12))

    # The title, no workers, the titles of the locks, seven of these, this line, and the keys.
    assert lines[2].startswith("LOCKS 30")
    assert lines[3].startswith("key 00")
    assert lines[-2].startswith("23 more rows")


def test_scrolling_leaves_out_rows_from_the_top():
    found = status(*[Held(f"key {n:02}", "x", SINCE, 8.0, 0) for n in range(30)])

    lines = shown(found, (80, 12), skip=25)

    keys = [line.split("  ")[0] for line in lines if line.startswith("key")]
    assert keys == [f"key {n}" for n in range(25, 30)]
    assert any(line.startswith("25 more rows") for line in lines)


def test_what_fits_is_not_scrolled():
    assert shown(FULL, skip=3) == shown(FULL)


@pytest.mark.parametrize(
    ("sort", "keys"),
    [("name", ["a", "b", "c"]), ("time", ["b", "a", "c"]), ("waiting", ["c", "a", "b"])],
)
def test_rows_are_sorted_as_is_wanted(sort, keys):
    found = status(
        Held("c", "x", SINCE, 8.0, 9), Held("a", "x", SINCE, 8.0, 0), Held("b", "x", EARLIER, 1, 0)
    )

    frame = frame_of(found, NOW, sort=sort)

    assert [row.cells[0] for row in frame.tables[1].rows] == keys


def test_what_runs_out_goes_on_doing_so_between_two_answers():
    later = shown(FULL, old=3.0)

    assert any(line.startswith("shop.sync:17") and " 5.0 s " in line for line in later)
    assert any(line.startswith("w2@b") and "1.0 s" in line for line in later)


def test_what_does_not_answer_is_shown():
    found = status(workers_error="refused", arbiter_error="The arbiter did not serve.")

    lines = lines_of(frame_of(found, NOW), "q", (80, 24))

    assert [line.text.rstrip() for line in lines if line.look == "problem"] == [
        "The broker does not answer: refused",
        "The arbiter did not serve.",
    ]


def test_a_restart_that_is_sat_out_is_shown():
    frame = frame_of(status(sits_out=5.0), NOW, old=2.0)

    assert frame.problems == ("The arbiter has restarted: for 3.0 s more it grants no lock.",)
    assert frame_of(status(sits_out=5.0), NOW, old=6.0).problems == ()


def test_a_lock_without_a_majority_stands_out():
    [_, locks] = frame_of(status(Held("a", "x", SINCE, 8.0, 0, at=1, of=3)), NOW).tables

    [row] = locks.rows
    assert row.odd
    assert row.cells[-1] == "1/3"


def test_a_holder_is_shortened_to_what_tells_it_from_others():
    assert short(HOLDER) == "shop.sync[ffc38bf2] on three@web-three"


def test_wide_characters_count_twice_and_control_characters_not_at_all():
    assert fit("鍵鍵鍵鍵", 5) == "鍵鍵…"
    assert fit("a\x1b[2Jb", 8) == "a?[2Jb  "
    assert columns("e\N{COMBINING ACUTE ACCENT}") == 1


def test_a_table_whose_rows_are_scrolled_away_is_left_out():
    frame = frame_of(FULL, NOW)

    some = cut(frame, 6, skip=3)

    assert next(table.columns[0] for table in some.tables) == "LOCKS 2"
    assert some.more == 7 - sum(len(table.rows) for table in some.tables)


class TestKeys:
    def test_they_sort_scroll_pause_and_quit(self):
        view = View()

        assert view.press("s")
        assert view.sort == "time"
        assert view.press("w")
        assert view.sort == "waiting"
        assert view.press("s")
        assert view.sort == "name"
        assert [view.press(key) for key in ("down", "j", "page down", "up", "k")] == [True] * 5
        assert view.skip == 10
        assert view.press("page up")
        assert view.press("up")
        assert view.skip == 0
        assert view.press("p")
        assert view.paused
        assert "go on" in view.foot
        assert not view.over
        assert view.press("q")
        assert view.over

    def test_several_that_come_at_once_are_told_apart(self):
        sent = b"\x1b[B\x1b[B\x1b[6~s\x1bOA\x1b[1;5Cx\xff\x1b"

        names = ["down", "down", "page down", "s", "up", "\x1b[1;5C", "x", "\ufffd", "q"]
        assert names_of(sent) == names

    def test_others_do_nothing(self):
        view = View()

        assert not any(view.press(key) for key in ("", "x", "\x00", "7"))
        assert view == View()

    def test_the_foot_fits_on_a_small_terminal(self):
        assert max(len(View(sort=sort).foot) for sort in ("name", "time", "waiting")) < 80

"""A status as a person reads it."""

import pytest

from celery_atomicity.custody import Held
from celery_atomicity.integration.command.entries import Entry
from celery_atomicity.integration.command.status import Group, Replica, Status
from celery_atomicity.integration.command.text import (
    MOST,
    WIDTH,
    account_lines,
    duration,
    lines_of,
    per_time,
)
from celery_atomicity.overview import Account, Limited, Overview, Owed
from celery_atomicity.primitives.rates import Standing

NOW = 1_700_000_000.0
SINCE = "2023-11-14T22:13:18+00:00"  # two seconds before


def overview(**parts):
    given = {"registered": 0, "sits_out": 0.0, "locks": (), "limits": (), "debts": ()}
    return Overview("shop", **(given | parts))


def lines(*replicas, beats=None, entries=(), **parts):
    group = Group("shop", replicas, overview(**parts), beats, entries)
    return lines_of(Status(("redis://localhost:6379/0",), "broker_url", (group,)), NOW)


def test_a_quiet_fleet_takes_four_lines():
    assert lines() == [
        "arbiter  redis://localhost:6379/0 (from broker_url)",
        "",
        "group    shop",
        "  workers: none",
        "  locks held: none",
    ]


def test_workers_are_shown_with_what_they_own():
    shown = lines(Replica("w1@a", 0, 2, 4.26), Replica("w2@a"), registered=1)

    assert shown[3:6] == [
        "  workers: 2",
        "    w1@a  0 of 2, for 4.3 s unless renewed",
        "    w2@a  owns nothing",
    ]


def test_why_a_worker_owns_nothing_is_said():
    assert "    w1@a  owns nothing: refused" in lines(Replica("w1@a", error="refused"))


def test_those_that_registered_and_did_not_answer_are_counted():
    shown = lines(Replica("w1@a", 0, 3, 4.0), registered=3)

    assert "  2 more registered in the last interval and did not answer here" in shown


def test_a_lock_is_shown_with_its_holder():
    shown = lines(locks=(Held("sync:17", "task sync[7]", SINCE, 8.0, 3),))

    assert shown[4:] == [
        "  locks held: 1",
        "    sync:17  task sync[7], for 2.0 s, free in 8.0 s at the latest, 3 waiting",
    ]


def test_a_lock_of_another_client_says_so():
    shown = lines(locks=(Held("books", "", "", None, 0),))

    assert shown[-1] == "    books  another client, never free"


def test_limits_and_debts_are_shown_where_there_are_any():
    shown = lines(
        limits=(
            Limited("acme", Standing(rate=10.0, burst=20.0, behind=1.25, waiting=12.4)),
            Limited("busy", Standing(rate=1 / 60, burst=1.0, behind=0.0, waiting=0.0)),
        ),
        debts=(Owed("sam", 61_500.0),),
    )

    assert shown[5:] == [
        "  limits in use: 2",
        "    acme  10/s, burst 20, 1.2 s behind, 12 waiting",
        "    busy  1/m, room now",
        "  debts: 1",
        "    sam  1.0 min (61,500 ms)",
    ]


def test_beats_and_what_they_sent_are_shown():
    shown = lines(
        beats=2,
        entries=(
            Entry("sweep", 128, NOW - 0.5, "a:12", 1, {"a:12": 64, "b:7": 64}, coming=NOW - 1),
            Entry("nightly", None, None, "", 0, {"b:7": 1}, coming=NOW + 3600 * 5),
            Entry("late", None, NOW - 60, "b:7", 0, dropped=0.0, dropped_at=NOW - 60),
        ),
    )

    assert shown[5:] == [
        "  beats: 2",
        "  entries: 3",
        "    sweep",
        "      128 slots, owned by a:12 (64) and b:7 (64), last sent 0.5 s ago by a:12,",
        "      due for 1.0 s, 1 being sent",
        "    nightly  owned by b:7, not sent yet, next in 5.0 h",
        "    late",
        "      last sent 1.0 min ago by b:7, skipped as too late what was due from",
        "      1970-01-01T00:00:00+00:00 on",
    ]


def test_a_restarted_arbiter_is_pointed_out():
    [said] = [line for line in lines(sits_out=3.21) if "restarted" in line]

    assert "3.2 s" in said


def test_of_very_many_only_the_first_are_shown():
    shown = lines(locks=tuple(Held(f"{n:04}", "x", "", 1.0, 0) for n in range(MOST + 7)))

    assert shown[4] == f"  locks held: {MOST + 7}"
    assert shown[-2].startswith(f"    {MOST - 1:04} ")
    assert shown[-1] == "    and 7 more; --json shows all"


@pytest.mark.parametrize("length", [1, 30, 36, 70, 76, 200])
def test_no_line_is_wider_than_a_terminal(length):
    name, holder = "k" * length, "task shop.accounts.sync[0b4e] on celery@a.long.name.example"
    shown = lines(
        Replica(name, 1, 128, 4.0, error="The arbiter at redis://localhost did not serve."),
        registered=100,
        sits_out=12.0,
        locks=(Held(name, holder, SINCE, 9.9, 100), Held("short", holder, SINCE, 9.9, 0)),
        limits=(Limited(name, Standing(1e6, 1e6, 1e6, 1e6)),),
        debts=(Owed(name, 1e12),),
        beats=3,
        entries=(
            Entry(
                name, 65_536, NOW - 1e6, "a.long.name.example:123456", 1000, dict.fromkeys("ab", 9)
            ),
        ),
    )

    assert max(map(len, shown)) <= WIDTH
    assert name in "".join(line.strip() for line in shown)


def test_what_is_above_the_first_group_names_every_address():
    addresses = tuple(f"redis://arbiter-{n}.example:6379/0" for n in range(5))

    shown = lines_of(Status(addresses, "atomicity_redis", ()), NOW)

    assert max(map(len, shown)) <= WIDTH
    assert all(any(address in line for line in shown) for address in addresses)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0, "0.0 s"), (59.9, "59.9 s"), (90, "1.5 min"), (5400, "1.5 h"), (129_600, "1.5 d")],
)
def test_durations_are_said_in_one_unit(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("per_second", "said"),
    [
        (10.0, "10/s"),
        (1e6, "1,000,000/s"),
        (7 / 60, "7/m"),
        (100 / 60, "100/m"),
        (5 / 3600, "5/h"),
        (1 / 86400, "1/d"),
        (0.123, "7.38/m"),
        (2.5, "150/m"),
        (3.1415926, "3.142/s"),
        (1e-9, "8.64e-05/d"),
    ],
)
def test_rates_are_said_as_they_are_written(per_second, said):
    assert per_time(per_second) == said


def test_an_account_is_said_in_a_line_for_each_of_its_parts():
    standing = Standing(rate=10.0, burst=1.0, behind=3.2, waiting=32.0)

    said = account_lines(Account("shop", "acme", 1500.0, (Limited("acme", standing),)))

    assert said == ["acme: owes 1.5 s (1,500 ms)", "acme: 10/s, 3.2 s behind, 32 waiting"]


def test_an_account_that_owes_nothing_says_so():
    [said] = account_lines(Account("shop", "acme", 0.0, ()))

    assert said == "acme: owes nothing, and no limit of that name was used lately"


def test_of_very_many_limits_of_a_scope_only_the_first_are_shown():
    standing = Standing(rate=10.0, burst=1.0, behind=3.2, waiting=32.0)
    limits = tuple(Limited(f"partner:{n:04}", standing) for n in range(MOST + 2))

    said = account_lines(Account("shop", "partner", 0.0, limits))

    assert len(said) == MOST + 1
    assert said[-1] == "and 2 more limits; --json shows all"

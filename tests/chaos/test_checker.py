"""The checker convicts what violates a guarantee, by records written by hand, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.checker import Evidence, judge
from chaos.checker.rates import worst_excess
from chaos.plot import draw
from chaos.report import text

PLAN = {
    "what": "plan",
    "t": 0.0,
    "by": "stage",
    "pid": 1,
    "ttl": 2.0,
    "servers": 1,
    "schedule": {"one": [1.0, 0], "swept": [2.0, 2]},
    "limits": {"pace": [10, 5]},
}


def record(what, t, by="w1", pid=7, **facts):
    return {"what": what, "t": t, "by": by, "pid": pid, **facts}


def lease(number, *lives, key="a", fence=None, asked=None, lost=None, by="w1"):
    """The records of one lease, given at the first of the moments at which it lives."""
    identity = f"lease-{number}"
    given = lives[0]
    yield record(
        "given",
        given,
        by,
        lease=identity,
        fence=number if fence is None else fence,
        keys=[key],
        asked=given if asked is None else asked,
    )
    for at in lives:
        yield record("lives", at, by, lease=identity, at=at)
    if lost is not None:
        yield record("lost", lost, by, lease=identity)


def tick(what, t, due, *, identity=None, copy="c1", entry="one", slot=None, sent=None):
    """What was sent or ran at *t*; on the wall clock it is 1000 s later."""
    stamp = f"1970-01-01T00:{16 + int(due + 40) // 60:02}:{(due + 40) % 60:09.6f}+00:00"
    return record(
        what,
        t,
        id=identity or f"{entry}-{slot}-{due}",
        copy=copy,
        entry=entry,
        slot=slot,
        due=stamp,
        sent=1000.0 + (t if sent is None else sent),
    )


def fault(n, begin, end, kind="freeze server", **facts):
    return [
        record("fault", begin, n=n, kind=kind, target="server 0", **facts),
        record("healed", end, n=n),
    ]


def owns(first, last, i, n, by):
    return record("owns", last, by, i=i, n=n, first=first, last=last)


def convicted(*records, writes=()):
    flat = [each for one in records for each in ([one] if isinstance(one, dict) else one)]
    evidence = Evidence([PLAN, *flat], writes)
    violations = judge(evidence)
    # Whatever it is, it can be printed and drawn.
    assert text(evidence, violations, 1.0)
    assert draw(evidence, violations).endswith("</svg>\n")
    return [violation.guarantee for violation in violations]


def test_it_imports_nothing_of_what_it_judges():
    code = "import chaos.checker, chaos.journal, sys; print('celery_atomicity' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "False\n"


def test_a_run_in_which_all_is_well_is_not_convicted():
    assert (
        convicted(
            lease(1, 1.0, 1.5),
            lease(2, 1.6, 1.9, asked=1.1, by="w2"),
            lease(3, 1.2, 1.7, key="b", asked=0.9, by="w2"),
            [owns(1.0, 3.0, 0, 2, "w1"), owns(1.0, 3.0, 1, 2, "w2"), owns(3.4, 5.0, 1, 2, "w1")],
            [record("start", 1 + n / 10, limit="pace") for n in range(20)],
            [tick("sent", 1 + n, due=1 + n) for n in range(5)],
            [tick("ran", 1.1 + n, due=1 + n, sent=1 + n) for n in range(5)],
            record("look", 3.0, server=0, endless=[], count=3),
            writes=[("a", 1, 1.0, "w1"), ("a", 2, 1.6, "w2"), ("b", 3, 1.2, "w2")],
        )
        == []
    )


class TestLocks:
    # LOCK-01
    def test_two_live_holders(self):
        assert convicted(lease(1, 1.0, 2.0), lease(2, 1.9, 2.5, by="w2")) == ["LOCK-01"]

    # LOCK-01
    def test_two_live_holders_with_another_between_them(self):
        assert convicted(lease(1, 1.0, 5.0), lease(2, 2.0, 2.1), lease(3, 3.0, 3.1)) == [
            "LOCK-01",
            "LOCK-01",
        ]

    # LOCK-01
    def test_a_living_holder_whom_the_table_refuses(self):
        refused = record("refused", 1.5, lease="lease-1", key="a", lost=False)

        assert convicted(lease(1, 1.0, 2.0), refused) == ["LOCK-01"]
        assert convicted(lease(1, 1.0, 2.0), refused | {"lost": True}) == []

    # LOCK-02
    @pytest.mark.parametrize("key", ["a", "b"])
    def test_a_fence_that_is_not_larger(self, key):
        found = convicted(lease(1, 1.0, 2.0, fence=9), lease(2, 3.0, 4.0, fence=9, key=key))

        assert set(found) == {"LOCK-02"}

    # LOCK-02
    def test_a_fence_of_one_who_was_asking_already(self):
        assert (
            convicted(lease(1, 1.0, 2.0, fence=9), lease(2, 3.0, 4.0, fence=8, asked=0.5, key="b"))
            == []
        )

    def test_a_late_write_that_was_taken(self):
        assert convicted(
            writes=[("a", 2, 1.0, "w2"), ("b", 1, 1.1, "w1"), ("a", 1, 1.2, "w1")]
        ) == ["FENCE"]

    # LOCK-06
    def test_a_lease_that_was_lost_for_nothing(self):
        lost = list(lease(1, 20.0, 22.0, lost=22.1))

        assert convicted(lost) == ["LOCK-06"]
        assert convicted(lost, fault(1, 10.0, 16.0)) == []
        assert convicted(lost, record("stall", 21.0, since=20.5, until=21.0)) == []


class TestSlots:
    # PART-01
    @pytest.mark.parametrize(
        ("one", "other", "conflict"),
        [
            ((1, 10, 0, 2, "w1"), (5, 6, 0, 2, "w2"), True),
            # Slot 2 of 4 is among the even ones.
            ((1, 10, 0, 2, "w1"), (5, 6, 2, 4, "w2"), True),
            ((1, 10, 1, 2, "w1"), (5, 6, 0, 3, "w2"), True),
            ((1, 10, 0, 2, "w1"), (5, 6, 1, 2, "w2"), False),
            ((1, 10, 0, 2, "w1"), (10, 16, 0, 2, "w2"), False),
            ((1, 10, 0, 2, "w1"), (5, 6, 0, 2, "w1"), False),
        ],
    )
    def test_one_slot_of_two_replicas(self, one, other, conflict):
        assert convicted(owns(*one), owns(*other)) == ["PART-01"] * conflict

    # PART-01
    def test_one_replica_in_two_processes(self):
        child = owns(1.0, 2.0, 0, 2, "w1") | {"pid": 8}

        assert convicted(owns(1.0, 2.0, 0, 2, "w1"), child) == []

    # PART-02, PART-03
    def test_slots_that_nobody_owns(self):
        calm = record("calm", 10.0, limit=20.0, ticks=False)
        half = owns(12.0, 60.0, 0, 2, "w1")

        assert convicted(calm, half, record("stirred", 40.0)) == ["PART-02"]
        assert convicted(calm, half, record("stirred", 20.0)) == []
        assert convicted(calm, half, owns(13.0, 14.0, 1, 2, "w2"), record("stirred", 40.0)) == []


class TestRates:
    # RATE-01
    def test_one_start_too_many(self):
        at_once = [record("start", 1.0, limit="pace") for _ in range(6)]

        assert convicted(at_once[:5]) == []
        assert convicted(at_once, at_once[:1]) == ["RATE-01"]

    # RATE-01
    def test_a_long_window(self):
        times = [n / 11 for n in range(100)]

        assert worst_excess(times[:40], 10, 5) < 0
        assert worst_excess(times, 10, 5) > 0

    # RATE-01
    def test_lost_data_forgive_one_burst(self):
        starts = [record("start", t, limit="pace") for t in (*[1.0] * 5, *[1.1] * 6)]
        lost = fault(1, 1.02, 1.04, kind="flush server", server=0, lost=1.02)

        assert convicted(starts) == ["RATE-01"]
        assert convicted(starts, lost) == []
        assert convicted(starts, starts[:1] * 3, lost) == ["RATE-01"]
        assert convicted(starts, fault(1, 3.0, 3.1, server=0, lost=3.0)) == ["RATE-01"]
        assert convicted(starts, fault(1, 1.02, 1.04, server=1, lost=1.02)) == ["RATE-01"]


class TestTicks:
    # BEAT-03
    def test_two_copies_of_a_tick_that_ran(self):
        one = tick("ran", 1.0, due=1.0)
        other = tick("ran", 1.5, due=1.0, copy="c2")

        assert convicted(one, other) == ["BEAT-03"]
        assert convicted(one, tick("ran", 1.5, due=1.0)) == []  # delivered again
        assert convicted(one, other, fault(1, 0.5, 4.0, server=0)) == []
        assert convicted(one, other, fault(1, 0.5, 1.0, server=0)) == ["BEAT-03"]
        assert convicted(one, other, fault(1, 1.2, 1.2, server=0, lost=1.2)) == []

    # BEAT-01
    def test_one_instant_of_two_ticks(self):
        one, other = (tick("sent", 1.0, due=1.0, identity=name) for name in "ab")

        assert convicted(one, other) == ["BEAT-01"]

    # BEAT-02
    def test_an_instant_that_was_left_out(self):
        sent = [tick("sent", 1.0 + n, due=1.0 + n) for n in (0, 1, 3, 4)]

        assert convicted(sent) == ["BEAT-02"]
        assert convicted(sent, fault(1, 2.5, 2.5, server=0, lost=2.5)) == []

    # BEAT-02
    def test_instants_that_came_due_meanwhile_are_one_late_tick(self):
        sent = [tick("sent", 1.0, due=1.0), tick("sent", 5.5, due=2.0), tick("sent", 6.0, due=6.0)]

        assert convicted(sent) == []

    # BEAT-02
    def test_a_pace_that_is_not_kept(self):
        assert convicted(tick("sent", 1.0, due=1.0), tick("sent", 1.5, due=1.5)) == ["BEAT-02"]

    # BEAT-02
    def test_an_entry_that_is_never_sent_again(self):
        calm = record("calm", 10.0, limit=20.0, ticks=True)
        sent = [tick("sent", 12.0, due=12.0)]
        slots = [tick("sent", 12.0, due=12.0, entry="swept", slot=slot) for slot in (0, 1)]
        all_owned = owns(10.0, 40.0, 0, 1, "w1")

        assert convicted(calm, sent, all_owned, record("stirred", 40.0)) == ["BEAT-02"]
        assert convicted(calm, sent, slots, all_owned, record("stirred", 40.0)) == []


class TestFleet:
    def test_a_key_that_never_runs_out(self):
        assert convicted(record("look", 1.0, server=0, endless=["atom:g:line:a"])) == ["KEYS"]

    def test_a_lock_that_nobody_holds_any_more(self):
        left = record("look", 1.0, server=0, endless=[], left=["atom:g:lock:a"], after=3.0)

        assert convicted(left) == ["KEYS"]

    def test_a_worker_that_ended_by_itself(self):
        ours = record("ended", 1.0, node="w1", code=1, log="", ours=True)

        assert convicted(ours) == ["ALIVE"]
        assert convicted(ours | {"ours": False}) == []

"""The shared record of what beat has sent, on a real server."""

from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from celery_atomicity import keys
from celery_atomicity.connection import Clients
from celery_atomicity.errors import Unavailable
from celery_atomicity.integration.beat.copies import admits
from celery_atomicity.integration.beat.due import Unit
from celery_atomicity.integration.beat.ledger import (
    DOUBT_LIFE,
    RECORD_LIFE,
    Claim,
    Ledger,
    Outcome,
    Record,
)
from celery_atomicity.settings import Settings
from celery_atomicity.testing import Server

A, B = Unit("a"), Unit("b")
SWEEPS = [Unit("sweep", slot, 4) for slot in range(4)]
NOW = 1_700_000_000_000_000


def clients_of(url, **values):
    return Clients(Settings.read({"atomicity_redis": url, **values}, {}))


@pytest.fixture
def clients(every_server):
    clients = clients_of(every_server.url)
    yield clients
    clients.close()


@pytest.fixture
def ledger(clients, group):
    return Ledger(clients, group, "beat@here:1")


def tick_of(group, claim):
    return {
        "group": group,
        "entry": claim.unit.entry,
        "slot": claim.unit.slot,
        "last": str(claim.last),
        "copy": claim.copy,
    }


def test_without_a_record_counting_starts_where_it_is_told(ledger):
    first = ledger.load({A: NOW, SWEEPS[2]: NOW + 1})
    again = ledger.load({A: NOW + 9, SWEEPS[2]: NOW + 9, SWEEPS[3]: NOW + 9})

    assert first == {A: NOW, SWEEPS[2]: NOW + 1}
    assert again == first | {SWEEPS[3]: NOW + 9}


def test_thousands_are_loaded_in_a_few_round_trips(ledger):
    starts = {Unit(f"entry {n}"): NOW + n for n in range(12_000)}

    assert ledger.load(starts) == starts
    assert ledger.entries() == sorted(unit.entry for unit in starts)


def test_what_is_settled_is_the_new_last_run(ledger):
    ledger.load({A: NOW})
    [begun] = ledger.claim([Claim(A, NOW, "one")])

    assert begun.alone
    assert ledger.settle([Outcome(begun, NOW + 5, coming=NOW + 9)], NOW + 6) == [True]
    assert ledger.load({A: 0}) == {A: NOW + 5}
    assert ledger.record("a") == Record(
        "a",
        {None: NOW + 5},
        by="beat@here:1",
        at=NOW + 6,
        coming=NOW + 9,
        owners={None: "beat@here:1"},
    )


def test_whoever_loaded_last_is_on_record_as_the_owner(ledger, clients, group):
    ledger.load(dict.fromkeys(SWEEPS, NOW))

    Ledger(clients, group, "beat@there:2").load({SWEEPS[1]: NOW})

    owners = ledger.record(SWEEPS[1].entry).owners
    assert owners[SWEEPS[1].slot] == "beat@there:2"
    assert set(owners.values()) == {"beat@here:1", "beat@there:2"}


# BEAT-08
def test_a_tick_is_begun_only_for_the_last_run_that_stands(ledger):
    ledger.load({A: NOW, B: NOW})

    [stale, good, unknown] = ledger.claim(
        [Claim(A, NOW - 1, "one"), Claim(B, NOW, "two"), Claim(Unit("c"), NOW, "three")]
    )

    assert (stale, unknown) == (None, None)
    assert good.alone
    assert ledger.record("c") is None


# BEAT-03
def test_what_was_begun_and_not_settled_is_begun_again_by_the_next(ledger):
    ledger.load({A: NOW})
    [first] = ledger.claim([Claim(A, NOW, "one")])
    [second] = ledger.claim([Claim(A, NOW, "two")])

    assert not second.alone
    assert ledger.record("a").open == (None,)
    assert ledger.settle([Outcome(first, NOW + 5)], NOW) == [False]
    assert ledger.settle([Outcome(second, NOW + 5)], NOW) == [True]
    assert ledger.settle([Outcome(second, NOW + 5)], NOW) == [False]


def test_what_is_given_back_is_as_if_it_had_not_been_begun(ledger):
    ledger.load({A: NOW})
    [begun] = ledger.claim([Claim(A, NOW, "one")])

    assert ledger.settle([Outcome(begun, None)], NOW) == [True]

    [begun] = ledger.claim([Claim(A, NOW, "two")])
    assert begun.alone
    assert ledger.load({A: 0}) == {A: NOW}


def test_what_was_dropped_is_on_record(ledger):
    ledger.load({A: NOW})
    [begun] = ledger.claim([Claim(A, NOW, "one")])

    ledger.settle([Outcome(begun, NOW + 9, dropped=NOW + 2)], NOW + 10)

    record = ledger.record("a")
    assert (record.dropped, record.dropped_at) == (NOW + 2, NOW + 10)
    assert record.last == {None: NOW + 9}


def test_many_slots_of_an_entry_are_settled_apart(ledger):
    ledger.load(dict.fromkeys(SWEEPS, NOW))
    begun = ledger.claim([Claim(unit, NOW, f"copy {unit.slot}") for unit in SWEEPS])

    ledger.settle([Outcome(begun[1], NOW + 5), Outcome(begun[3], NOW + 6)], NOW)

    assert ledger.record("sweep").last == {0: NOW, 1: NOW + 5, 2: NOW, 3: NOW + 6}
    assert sorted(ledger.record("sweep").open) == [0, 2]


def test_all_it_keeps_expires(ledger, clients, group):
    ledger.load({A: NOW})
    ledger.claim([Claim(A, NOW, "one")])
    [begun] = ledger.claim([Claim(A, NOW, "two")])
    admits(clients, tick_of(group, begun.claim))

    lives = {
        key: clients.command("PTTL", key) for key in clients.command("KEYS", f"atom:{group}:*")
    }

    assert len(lives) == 3
    assert all(0 < life <= RECORD_LIFE for life in lives.values())
    assert min(lives.values()) <= DOUBT_LIFE


def test_entries_that_no_beat_asks_for_leave_the_index(ledger, clients, group):
    clients.command("ZADD", keys.beat_key(group), 1, "gone")

    ledger.load({A: NOW})

    assert ledger.entries() == ["a"]


def test_names_of_any_kind_are_kept_apart(ledger):
    names = ["", "a:b", "a", "ä \n", "x" * 500, "x" * 501, "copy", "entry"]

    starts = {Unit(name): NOW + n for n, name in enumerate(names)}

    assert ledger.load(starts) == starts
    assert ledger.load(dict.fromkeys(starts, 0)) == starts
    assert ledger.entries() == sorted(names)


def test_the_first_copy_runs_and_no_other(ledger, clients, group):
    ledger.load({A: NOW})
    [first] = ledger.claim([Claim(A, NOW, "one")])
    [second] = ledger.claim([Claim(A, NOW, "two")])
    ledger.settle([Outcome(second, NOW + 5)], NOW)
    one, two = tick_of(group, first.claim), tick_of(group, second.claim)

    # The redelivery of a copy, and its retry, are the same copy.
    assert [admits(clients, tick) for tick in (two, one, two, one)] == [True, False, True, False]


def test_a_copy_that_ran_before_it_was_in_doubt_stays_the_one(ledger, clients, group):
    ledger.load({A: NOW})
    [first] = ledger.claim([Claim(A, NOW, "one")])
    assert admits(clients, tick_of(group, first.claim))

    [second] = ledger.claim([Claim(A, NOW, "two")])
    ledger.settle([Outcome(second, NOW + 5)], NOW)

    assert not admits(clients, tick_of(group, second.claim))
    assert admits(clients, tick_of(group, first.claim))


def test_an_ordinary_tick_leaves_nothing_but_its_record(ledger, clients, group):
    ledger.load({A: NOW})
    [begun] = ledger.claim([Claim(A, NOW, "one")])
    before = admits(clients, tick_of(group, begun.claim))
    ledger.settle([Outcome(begun, NOW + 5)], NOW)
    after = admits(clients, tick_of(group, begun.claim))

    assert (before, after) == (True, True)
    assert clients.command("KEYS", "*:copy:*") == []


def test_a_lost_store_lets_messages_run(clients, group):
    tick = tick_of(group, Claim(A, NOW, "one"))

    assert admits(clients, tick)
    assert admits(clients, tick)
    assert not admits(clients, tick | {"copy": "two"})


def test_an_arbiter_that_is_away_is_said_to_be(servers, group):
    server = servers()
    clients = clients_of(server.url, atomicity_timeout=0.2)
    ledger = Ledger(clients, group)
    ledger.load({A: NOW})
    server.kill()

    with pytest.raises(Unavailable):
        ledger.claim([Claim(A, NOW, "one")])

    clients.close()


def test_a_record_of_a_wrong_type_is_an_outage_and_no_crash(ledger, clients, group):
    clients.command("SET", keys.beat_key(group, "entry", "a"), "nonsense")

    with pytest.raises(Unavailable, match="WRONGTYPE"):
        ledger.load({A: NOW})


class Beats(RuleBasedStateMachine):
    """
    Three beats and some workers, and all that can happen to one entry's ticks between them.

    Each beat stops at any step, for ever or for a while, and each believes to own the entry.
    """

    server = None
    groups = count()

    def __init__(self):
        super().__init__()
        self.group = f"machine-{next(self.groups)}"
        self.clients = clients_of(self.server.url)
        self.copies = count()
        self.queue = []  # messages, each deliverable any number of times
        self.ran = {}  # tick -> the copies that ran
        self.settled = []  # last runs
        self.beats = []

    def teardown(self):
        for tick in self.queue:
            self.run(tick)
        for last in self.settled:
            # Once: that it is not more is checked after each step.
            assert str(last) in self.ran
        self.one_copy_of_each_tick_runs()
        self.clients.close()

    def run(self, tick):
        if admits(self.clients, tick):
            self.ran.setdefault(tick["last"], set()).add(tick["copy"])

    @initialize()
    def start(self):
        self.beats = [
            SimpleNamespace(ledger=Ledger(self.clients, self.group, f"{n}"), last=0, begun=None)
            for n in range(3)
        ]
        for beat in self.beats:
            [beat.last] = beat.ledger.load({A: 1}).values()

    beat = st.integers(0, 2)

    @rule(n=beat)
    def go_on(self, n):
        beat = self.beats[n]
        if beat.begun is None:
            self.begin(beat)
        elif not beat.published:
            self.publish(beat)
        else:
            self.settle(beat)

    @rule(n=beat)
    def go_through(self, n):
        for _ in range(3):
            self.go_on(n)

    def begin(self, beat):
        beat.published = False
        [beat.begun] = beat.ledger.claim([Claim(A, beat.last, f"copy {next(self.copies)}")])
        if beat.begun is None:
            [beat.last] = beat.ledger.load({A: 0}).values()

    def publish(self, beat):
        beat.published = True
        self.queue.append(tick_of(self.group, beat.begun.claim))

    def settle(self, beat):
        [done] = beat.ledger.settle([Outcome(beat.begun, beat.last + 10)], 0)
        if done:
            self.settled.append(beat.last)
        [beat.last] = beat.ledger.load({A: 0}).values()
        beat.begun = None

    @rule(n=beat)
    def publish_and_raise(self, n):
        """The message went out, and the beat does not know."""
        beat = self.beats[n]
        if beat.begun and not beat.published:
            self.publish(beat)
            beat.begun = None

    @rule(n=beat)
    def give_back(self, n):
        beat = self.beats[n]
        if beat.begun and not beat.published and beat.begun.alone:
            beat.ledger.settle([Outcome(beat.begun, None)], 0)
            beat.begun = None

    @rule(n=beat)
    def die(self, n):
        self.beats[n].begun = None
        [self.beats[n].last] = self.beats[n].ledger.load({A: 0}).values()

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def deliver(self, data):
        self.run(data.draw(st.sampled_from(self.queue)))

    @invariant()
    def no_tick_is_settled_twice(self):
        assert len(set(self.settled)) == len(self.settled)

    @invariant()
    def one_copy_of_each_tick_runs(self):
        assert all(len(copies) == 1 for copies in self.ran.values())


# BEAT-03
def test_whatever_happens_to_beats_and_messages_one_copy_runs():
    with Server() as server:
        Beats.server = server
        run_state_machine_as_test(
            Beats,
            settings=settings(
                max_examples=60,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )

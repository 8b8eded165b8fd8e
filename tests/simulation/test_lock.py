"""
Locks in virtual time, by the code that runs in production: whatever happens, one holder, and fences
that grow. ``LOCK_HISTORIES`` sets how many random histories there are, ``LOCK_SEED`` where they
begin; a history that fails is run again by its seed.
"""

import os
from copy import copy
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from celery_atomicity import clock
from celery_atomicity.primitives import acquisition, holding, quorum, votes
from celery_atomicity.primitives.acquisition import Acquisition
from celery_atomicity.primitives.holding import CONFIRM, Holding, release_call
from simulation import lock_store
from simulation.lock_histories import crowded, random_history
from simulation.lock_world import History, Use, World

HISTORIES = int(os.environ.get("LOCK_HISTORIES", "20000"))
SEED = int(os.environ.get("LOCK_SEED", "0"))
CHUNKS = 10


def smallest(history, is_bad):
    """*history* without what it is as bad without."""
    parts = ["events", "uses", "faults", "stutter", "drift", "skew"]
    again = True
    while again:
        again = False
        for part in parts:
            value = getattr(history, part)
            for at in range(len(value)):
                less = list(value)
                if part in ("faults", "stutter", "drift", "skew"):
                    if not less[at]:
                        continue
                    less[at] = 0.0
                elif part == "uses" and len(less[at]) > 0:
                    less[at] = less[at][:-1]
                elif part == "events":
                    del less[at]
                else:
                    continue
                shorter = replace(history, **{part: less})
                if is_bad(shorter):
                    history, again = shorter, True
                    break
    return history


@pytest.mark.timeout(max(120, HISTORIES // 20))
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_one_holder_and_growing_fences(chunk):
    # LOCK-01, LOCK-02, LOCK-05
    share = HISTORIES // CHUNKS
    first = SEED + chunk * share
    grants = 0
    for seed in range(first, first + share):
        make = crowded if seed % 8 == 0 else random_history
        world = World(make(seed)).run()
        grants += len(world.grants)

        if world.complaints:
            found = smallest(world.history, lambda history: World(history).run().complaints)
            pytest.fail(f"seed {seed}: {World(found).run().complaints}\n{found}")
    # So that nobody breaks the world and finds everything in order.
    assert grants > 2 * share


def solo(seed):
    """One process, messages that are lost, and leases that would be waited for very long."""
    random = Random(seed)
    uses = [Use(at, ("a",), None, 0.05, ttl=60.0) for at in (0.0, 4.0, 8.0)]
    return History(
        random.choice((1, 3, 5)),
        [uses],
        faults=(0.0, random.choice((0.05, 0.2)), 0.0, 0.0),
        until=40.0,
        seed=seed,
    )


def waits(history):
    world = World(history).run()
    assert not world.complaints
    return [waited for waited, _ in world.waited], world


@pytest.mark.parametrize("chunk", range(4))
def test_nobody_waits_for_itself(chunk):
    # LOCK-08
    for seed in range(chunk * 150, (chunk + 1) * 150):
        waited, _ = waits(solo(seed))

        assert len(waited) == 3, f"seed {seed}"
        assert max(waited) < 15, f"seed {seed}"


def calm(seed, servers):
    """Many who want the same, and no trouble; nobody holds for long, and the ttl is long."""
    random = Random(seed)
    names = (("a",), ("b",), ("a", "b"), ("b", "a"))
    uses = [
        [
            Use(random.random(), random.choice(names), random.choice((None, None, 0.0)), hold, 30.0)
            for hold in (0.01, 0.05)
        ]
        for _ in range(random.choice((2, 4, 8)))
    ]
    return History(servers, uses, latency=random.choice((0.0005, 0.01)), until=12.0, seed=seed)


@pytest.mark.parametrize("servers", [1, 3, 5])
def test_nothing_is_left_when_all_have_let_go(servers):
    # LOCK-10, LOCK-13: what failed attempts took went back, or somebody would have waited for it
    for seed in range(150):
        history = calm(seed, servers)
        waited, world = waits(history)

        expected = sum(use.wait is None for uses in history.uses for use in uses)
        assert len(waited) + world.timeouts == sum(map(len, history.uses)), f"seed {seed}"
        assert len(waited) >= expected, f"seed {seed}"
        assert max(waited) < 8, f"seed {seed}"
        assert world.leftovers() == [], f"seed {seed}"


def at_once(seed):
    """Who ask at the same instant, so that each gets some of the addresses."""
    uses = [[Use(0.0, ("a",), None, 0.01, 30.0)] for _ in range(8)]
    return History((3, 5)[seed % 2], uses, until=12.0, seed=seed)


def test_those_who_ask_at_once_are_served_one_by_one():
    # LOCK-10, F43
    for seed in range(100):
        waited, _ = waits(at_once(seed))

        assert len(waited) == 8, f"seed {seed}"
        assert max(waited) < 3, f"seed {seed}"


def in_turn(seed, servers):
    """One holds, others come one by one, and newcomers try all the time."""
    random = Random(seed)
    latency = random.choice((0.0005, 0.002))
    uses = [[Use(0.0, ("a",), None, 1.0, 30.0)]]
    at = 0.1
    for _ in range(random.randint(2, 4)):
        uses.append([Use(at, ("a",), None, random.choice((0.0, 0.1)), 30.0)])
        at += random.uniform(0.05, 0.2)
    for _ in range(2):
        start = 0.9 + random.random() * 0.01
        uses.append([Use(start + 0.004 * n, ("a",), 0.0, 0.0, 30.0) for n in range(60)])
    return History(servers, uses, latency=latency, until=8.0, seed=seed)


def overtaken(history):
    """How many newcomers were served before somebody who stood in line."""
    world = World(history).run()
    assert not world.complaints
    turns = [use for _, use in world.waited]
    last = max(turns.index(use) for uses in history.uses for use in uses if use.wait is None)
    line = [use for use in turns if use.wait is None]
    assert line == sorted(line, key=lambda use: use.at)
    return sum(use.wait == 0.0 for use in turns[1:last])


@pytest.mark.parametrize("servers", [1, 3, 5])
def test_the_line_is_served_in_order_and_newcomers_wait(servers):
    # LOCK-04
    for seed in range(60):
        assert overtaken(in_turn(seed, servers)) == 0, f"seed {seed}"


def several_lines(seed):
    """Who want the same two keys, and lose their places in one line or the other."""
    random = Random(seed)
    uses = [[Use(0.0, ("a",), None, 3.0, 30.0)], [Use(0.0, ("b",), None, 2.0, 30.0)]]
    for _ in range(3):
        names = random.choice((("a", "b"), ("b", "a"), ("b",)))
        uses.append([Use(0.1 + random.random(), names, None, 0.1, 30.0)])
    events = []
    for _ in range(3):
        events.append((1 + random.random() * 3, "blip", random.randrange(2, 5), 1.5))
        events.append((random.random() * 4, "freeze", random.randrange(2, 5), 5.5))
    return History(random.choice((1, 3)), uses, events=sorted(events), until=60.0, seed=seed)


def test_nobody_waits_for_each_other():
    # LOCK-13
    for seed in range(300):
        history = several_lines(seed)
        waited, _ = waits(history)

        assert len(waited) == len(history.uses), f"seed {seed}"


# -- what the simulation sees -------------------------------------------------------------------


def a_renewal_revives(monkeypatch):
    real = Holding.renewed

    def renewed(self, sent, standing):
        self._failure = ""
        self.deadline = sent + quorum.lasts(self.terms.ttl)
        real(self, sent, standing)

    monkeypatch.setattr(Holding, "renewed", renewed)


def a_loss_is_not_noted(monkeypatch):
    def lost(self):
        return bool(self._failure) or clock.monotonic() >= self.deadline

    monkeypatch.setattr(Holding, "lost", lost)


def one_counter_makes_the_fence(monkeypatch):
    def first(clients, group, votes, fence):
        return next(vote.fence for vote in votes if vote is not None and vote.fence)

    monkeypatch.setattr(acquisition, "agree", first)


def a_late_release_undoes_a_later_grant(monkeypatch):
    monkeypatch.setattr(acquisition, "release_call", lambda terms, it, **_: release_call(terms, it))


def no_grace(monkeypatch):
    monkeypatch.setattr(holding.Terms, "grace_ms", 0)


def no_margin(monkeypatch):
    monkeypatch.setattr(quorum, "lasts", lambda ttl: 1.01 * ttl)


def half_is_enough(monkeypatch):
    monkeypatch.setattr(quorum, "majority", lambda total: (total + 1) // 2 - (total > 1))


def time_is_counted_from_the_answer(monkeypatch):
    real = Holding.__init__

    def init(self, *args, sent, **more):
        real(self, *args, sent=clock.monotonic(), **more)

    monkeypatch.setattr(Holding, "__init__", init)


def what_is_handed_over_lasts_in_full(monkeypatch):
    real = Holding.__init__

    def init(self, *args, handed_over=False, **more):
        real(self, *args, **more)

    monkeypatch.setattr(Holding, "__init__", init)


def what_is_handed_over_counts_from_the_ring(monkeypatch):
    real = Acquisition._handed_over

    def handed_over(self, stood):
        later = copy(stood)
        later.sent = clock.monotonic()
        return real(self, later)

    monkeypatch.setattr(Acquisition, "_handed_over", handed_over)


def any_ring_hands_over(monkeypatch):
    real = Acquisition._handed_over

    def handed_over(self, stood):
        self._value = self._ring.said.rpartition(f"{self._ring.run} ")[2] or self._value
        return real(self, stood)

    monkeypatch.setattr(Acquisition, "_handed_over", handed_over)


def another_server_hands_over(monkeypatch):
    real = Acquisition._handed_over

    def handed_over(self, stood):
        self._ring.run = self._ring.said.split(" ")[1] if self._ring.said else ""
        return real(self, stood)

    monkeypatch.setattr(Acquisition, "_handed_over", handed_over)


def handed_over_in_the_grace(monkeypatch):
    real = lock_store.grant

    def grant(store, now, keys, lock, asks, at):
        ttl, _, value = asks.split(" ", 2)
        return real(store, now, keys, lock, f"{ttl} 0 {value}", at)

    monkeypatch.setattr(lock_store, "grant", grant)


@pytest.mark.parametrize(
    ("mutation", "troubles", "says"),
    [
        (a_renewal_revives, ("messages", "frozen"), "LOCK-05"),
        (a_loss_is_not_noted, ("messages", "stutter"), "LOCK-05"),
        (one_counter_makes_the_fence, ("messages",), "LOCK-02"),
        (a_late_release_undoes_a_later_grant, ("messages",), "LOCK-01"),
        (no_grace, ("wipe", "cut"), "LOCK-01"),
        (no_margin, ("cut",), "LOCK-01"),
        (half_is_enough, ("cut",), "LOCK-01"),
        (time_is_counted_from_the_answer, ("messages", "cut"), "LOCK-01"),
    ],
)
def test_the_simulation_sees_what_is_broken(monkeypatch, mutation, troubles, says):
    mutation(monkeypatch)

    def complaints():
        for seed in range(2500):
            yield from World(random_history(seed, list(troubles))).run().complaints

    assert any(each.startswith(says) for each in complaints())


def busy(seed):
    """A key that is always waited for, frozen processes, messages lost and late."""
    return crowded(seed, ["messages", "frozen"])


def cut_off(seed):
    """Who is handed the key is cut off at once, for longer than it was granted for."""
    random = Random(seed)
    uses = [Use(0.0, ("a",), None, 1.0, 10.0), Use(0.5, ("a",), None, 12.0, 10.0)]
    uses.append(Use(0.6, ("a",), None, 0.1, 10.0))
    at = 1.0 + random.random() * CONFIRM
    return History(1, [[use] for use in uses], events=[(at, "cut", 1, 9.0)], until=16.0, seed=seed)


def emptied(seed):
    """
    A server is emptied and its holder cut off; some give up waiting and others do not.

    Leases of another key are shorter, so that those are granted again sooner.
    """
    random = Random(seed)
    uses = [[Use(0.0, ("a",), None, 8.0, 4.0)], [Use(0.2, ("a",), None, 1.0, 4.0)]]
    uses += [[Use(1 + at / 5, ("a",), random.random(), 0.1, 4.0)] for at in range(15)]
    uses.append([Use(at / 2, ("b",), None, 0.01, 1.0) for at in range(10)])
    emptied = 1.0 + random.random()
    events = [(emptied - 0.01, "cut", 0, 5.0), (emptied, "wipe", 0, 0.0)]
    return History(1, uses, events=events, lock_ttl=1.0, until=8.0, seed=seed)


def promoted(seed):
    """A replica takes over and nobody is cut off, so that pushes still come, by the old master."""
    history = crowded(seed, ["frozen"])
    history.events.append((0.2 + Random(seed).random(), "promote", 0, 0.0))
    history.uses = [
        [replace(use, at=use.at + at) for at in (0, 2, 3) for use in uses] for uses in history.uses
    ]
    history.events.sort()
    return replace(history, until=9.0)


@pytest.mark.parametrize(
    ("mutation", "histories"),
    [
        (what_is_handed_over_lasts_in_full, cut_off),
        (what_is_handed_over_counts_from_the_ring, busy),
        (any_ring_hands_over, busy),
        (handed_over_in_the_grace, emptied),
        (another_server_hands_over, promoted),
    ],
)
def test_the_simulation_sees_what_is_wrongly_handed_over(monkeypatch, mutation, histories):
    def complaints():
        for seed in range(2500):
            yield from World(histories(seed)).run().complaints

    assert not any(World(histories(seed)).run().complaints for seed in range(100))
    mutation(monkeypatch)

    assert any(each.startswith("LOCK-01") for each in complaints())


def test_the_simulation_sees_requests_without_an_id(monkeypatch):
    real, ids = Acquisition._call, count()

    def call(self, ring, **how):
        self.id = f"{next(ids):032x}"
        return real(self, ring, **how)

    monkeypatch.setattr(Acquisition, "_call", call)

    waited = [World(solo(seed)).run().waited for seed in range(20)]
    assert any(len(each) < 3 or max(each)[0] > 15 for each in waited)


def test_the_simulation_sees_that_nothing_is_given_back(monkeypatch):
    monkeypatch.setattr(Acquisition, "_give_back", lambda self, *, stay: None)

    assert any(len(World(at_once(seed)).run().waited) < 8 for seed in range(50))


def test_the_simulation_sees_newcomers_that_overtake(monkeypatch):
    real = quorum.judge

    def judge(votes, yielded=""):
        others = [
            vote._replace(verdict=quorum.Verdict.SITTING_OUT)
            if vote is not None and vote.verdict is quorum.Verdict.TAKEN
            else vote
            for vote in votes
        ]
        return real(others, yielded)

    monkeypatch.setattr(quorum, "judge", judge)

    assert any(overtaken(in_turn(seed, 3)) for seed in range(60))


def test_the_simulation_sees_newcomers_that_do_not_hear_the_first(monkeypatch):
    def is_decided(replies):
        verdicts = [votes._verdict(reply) for reply in replies]
        return quorum.is_decided(verdicts, replies.count(None), hears_first=True)

    monkeypatch.setattr(acquisition, "is_decided", is_decided)

    assert any(overtaken(in_turn(seed, 3)) for seed in range(60))


def test_the_simulation_sees_places_that_differ_from_line_to_line(monkeypatch):
    real = lock_store.acquire

    def acquire(store, now, names, arguments, publish=None):
        lines = names[3::3]
        before = {line: dict(store.data.get(line, {})) for line in lines}
        answer = real(store, now, names, arguments, publish)
        for line, places in before.items():
            if arguments[0] in places and arguments[0] in store.data.get(line, {}):
                store.data[line][arguments[0]] = places[arguments[0]]
        return answer

    monkeypatch.setitem(lock_store.SCRIPTS, "acquire", acquire)

    assert any(
        len(World(several_lines(seed)).run().waited) < len(several_lines(seed).uses)
        for seed in range(300)
    )


def test_every_kind_of_trouble_comes_up():
    # Or a history of that kind would never have been run.
    kinds = {event[1] for seed in range(400) for event in random_history(seed).events}

    assert kinds == {
        *("freeze", "die", "cut", "blip", "wipe", "restart", "copy", "failover", "stall", "step")
    }

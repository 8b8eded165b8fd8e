"""The rate script on a real server: held to the pure rules, and what only a server can show."""

import random
import threading
from dataclasses import replace

import pytest

from celery_atomicity import clock
from celery_atomicity.connection import Clients, Script
from celery_atomicity.errors import NotConfigured, Unavailable
from celery_atomicity.primitives.debts import Debts, held_back
from celery_atomicity.primitives.limit import Limit
from celery_atomicity.primitives.rate import SLEEP, Kind, Question, judge
from celery_atomicity.primitives.rates import Rates
from celery_atomicity.settings import Settings

SLOW = 1 / 3600  # a unit an hour: nothing drains while a test runs


def clients_of(server, **settings):
    return Clients(Settings.read({"atomicity_redis": server.url, **settings}, {}))


@pytest.fixture
def clients(server):
    clients = clients_of(server)
    yield clients
    clients.close()


@pytest.fixture
def rates(clients, group):
    return Rates(clients, group)


@pytest.fixture
def name(group):
    return lambda key: f"atom:{group}:rate:{key}"


def ask(rates, limit, promises=None, **options):
    return rates.admit([Question(limit, **options)], promises)


class Twin:
    """The script and the rules, asked the same at the same moments."""

    FIELDS = ("s", "e", "p", "a", "r", "o")

    def __init__(self, server, clients, names):
        self.server, self.clients, self.names = server, clients, names
        self.script = Script("rate")
        self.states = dict.fromkeys(names)

    def ask(self, questions, promises, held=0.0, seen=()):
        arguments = [held, SLEEP]
        for question in questions:
            limit = question.limit
            arguments += [limit.rate / 1000.0, limit.burst, limit.cost]
            arguments += [promises.get(limit.key, ""), question.patience, question.longest]
            arguments += [dict(seen).get(limit.key, "")]
        keys = [self.names[question.limit.key] for question in questions]
        value = self.clients.ask(self.script, keys, arguments).value
        after = {question.limit.key: self.read(question.limit.key) for question in questions}
        return value, after

    def read(self, key):
        values = self.server.cli("HMGET", self.names[key], *self.FIELDS)
        return None if None in values else Debts(*map(float, values[:5]), values[5])

    def shift(self, key, ms):
        """Move the clock of one state: *ms* pass for it, or are taken back."""
        state = self.states[key]
        if state is not None:
            at = f"{state.at - ms:.17g}"
            self.server.cli("HSET", self.names[key], "a", at)
            self.states[key] = replace(state, at=float(at))


def same(left, right):
    if left is None or right is None:
        return left is right
    pairs = zip(
        (left.started, left.ahead, left.promised, left.at, left.rate),
        (right.started, right.ahead, right.promised, right.at, right.rate),
        strict=True,
    )
    return left.born == right.born and all(a == pytest.approx(b, abs=1e-6) for a, b in pairs)


@pytest.mark.parametrize("seed", range(8))
def test_script_and_rules_answer_alike(server, clients, name, seed):
    chance = random.Random(seed)
    names = {key: name(key) for key in "abc"}
    twin = Twin(server, clients, names)
    tokens = [{}]
    kinds = set()

    for _ in range(400):
        keys = chance.sample("abc", chance.randint(1, 3))
        questions = []
        for key in keys:
            burst = chance.choice([1.0, 2.5, 20.0])
            cost = burst * chance.choice([0.1, 0.5, 1.0])
            limit = Limit(key, chance.choice([0.1, 7 / 60, 10.0, 600.0]), burst, cost)
            longest = chance.choice([-1.0, 2_000.0, 900_000.0])
            questions.append(Question(limit, chance.choice([0.0, 20.0, 500.0]), longest))
            if chance.random() < 0.5:
                twin.shift(key, chance.choice([-5_000.0, 3.0, 100.0, 1_500.0, 60_000.0]))
            if chance.random() < 0.03:
                server.cli("DEL", names[key])
                twin.states[key] = None
        held = chance.choice([0.0] * 9 + [1_500.0])
        promises = chance.choice([{}, tokens[-1], chance.choice(tokens)])

        seen = chance.choice([{}, tokens[-1], chance.choice(tokens)])
        seen = {key: born.rstrip("*") for key, born in seen.items()}

        value, after = twin.ask(questions, promises, held, seen)

        # The moment that the script read shows in what it wrote; without writing it shows nothing.
        kind, wait, which = Kind(value[0]), float(value[1]), value[2] - 1
        born = tuple(each.decode() for each in value[3:])
        written = [state.at for state in after.values() if state is not None]
        now = max(written) if kind or written else float(born[0])
        states = [twin.states[key] for key in keys]
        if held:
            limits = [question.limit for question in questions]
            expected = [
                held_back(state, limit, held, now)
                for state, limit in zip(states, limits, strict=True)
            ]
        else:
            answer, expected = judge(states, questions, promises, now, seen)
            assert (kind, which, born) == (answer.kind, answer.which, answer.born)
            assert wait == pytest.approx(answer.wait, abs=1e-6)
            kinds.add(kind)
            tokens.append(answer.promises(questions, promises))
        for key, state in zip(keys, expected, strict=True):
            assert same(after[key], state), (after[key], state)
            twin.states[key] = after[key]
    assert kinds == set(Kind)


def test_a_burst_starts_and_the_next_is_given_its_place(rates):
    # RATE-01
    limit = Limit("acme", 0.1, burst=3)

    answers = [ask(rates, limit) for _ in range(6)]

    assert [answer.kind for answer in answers] == [Kind.START] * 3 + [Kind.PLACE] * 3
    first, second, third = (answer.wait for answer in answers[3:])
    assert 9_000 < first <= 10_000 < second <= 20_000 < third <= 30_000


def test_two_hundred_at_once_are_let_through_exactly_to_the_burst(server, group):
    # F61
    limit, answers = Limit("acme", SLOW, burst=30), []
    barrier = threading.Barrier(20)

    def run():
        clients = clients_of(server, atomicity_timeout=20)  # twenty threads may be a crowd
        rates = Rates(clients, group)
        barrier.wait()
        answers.extend([ask(rates, limit).kind for _ in range(10)])
        clients.close()

    threads = [threading.Thread(target=run) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers.count(Kind.START) == 30
    assert len(answers) == 200


def test_of_limits_the_last_used_ones_are_remembered(rates, monkeypatch):
    # RATE-06: to look for what may be forgotten takes no longer the more there are
    monkeypatch.setattr("celery_atomicity.primitives.rates._MEMORY", 3)

    for key in "abcad":
        ask(rates, Limit(key, SLOW, burst=9))

    assert list(rates._seen) == ["c", "a", "d"]


def test_who_is_refused_is_neither_charged_nor_remembered(server, rates, name):
    # F51
    limit = Limit("acme", SLOW)
    ask(rates, limit)
    before = server.cli("HMGET", name("acme"), "s", "p")

    refused = [ask(rates, limit, patience=0.0, longest=-1) for _ in range(20)]

    assert {answer.kind for answer in refused} == {Kind.REFUSED}
    after = server.cli("HMGET", name("acme"), "s", "p")
    assert [float(value) for value in after] == pytest.approx([float(v) for v in before], abs=1e-3)
    full = rates.admit([Question(Limit("acme", SLOW), 0, -1), Question(Limit("new", SLOW), 0, -1)])
    assert full.kind is Kind.REFUSED
    assert server.cli("EXISTS", name("new")) == 0


def test_a_place_beyond_the_longest_delay_is_not_promised(rates):
    limit = Limit("acme", 1.0)
    ask(rates, limit)

    answers = [ask(rates, limit, longest=2_500.0) for _ in range(5)]

    assert [answer.kind for answer in answers] == [Kind.PLACE] * 2 + [Kind.REFUSED] * 3


def test_several_limits_are_charged_all_or_none(server, rates, name):
    # RATE-04
    tenant, everybody = Limit("acme", SLOW), Limit("all", SLOW, burst=5)
    both = [Question(tenant), Question(everybody)]

    first, second = rates.admit(both), rates.admit(both)

    assert (first.kind, second.kind, second.which) == (Kind.START, Kind.PLACE, 0)
    assert float(server.cli("HGET", name("all"), "s")) == pytest.approx(1, abs=1e-3)
    assert float(server.cli("HGET", name("all"), "p")) == pytest.approx(1, abs=1e-3)


def test_one_who_waits_for_one_limit_keeps_no_place_in_another(rates):
    tenant, everybody = Limit("acme", SLOW), Limit("all", SLOW, burst=5)

    for _ in range(10):
        rates.admit([Question(tenant), Question(everybody)])

    assert [ask(rates, everybody).kind for _ in range(5)] == [Kind.START] * 4 + [Kind.PLACE]


def test_who_comes_back_sleeps_a_short_wait_out(rates):
    # RATE-02
    limit = Limit("acme", 4.0)
    ask(rates, limit)
    place = ask(rates, limit)
    began = clock.monotonic()

    answer = ask(rates, limit, {"acme": place.born[0]}, patience=SLEEP)

    assert place.kind is Kind.PLACE
    assert answer.kind is Kind.START
    assert clock.monotonic() - began >= answer.wait / 1000
    assert ask(rates, limit).wait > 200


@pytest.mark.parametrize(("overslept", "asked"), [(0.2, 2), (0.0, 1)])
def test_who_could_not_start_in_time_is_judged_again(rates, monkeypatch, overslept, asked):
    # RATE-02: a process that was frozen while it slept
    limit, real, questions = Limit("acme", 4.0), clock.wait, []
    ask(rates, limit)
    place = ask(rates, limit)

    def frozen(event, seconds):
        return real(event, seconds + (overslept if len(questions) == 1 else 0))

    def counted(*arguments):
        questions.append(arguments)
        return Rates._ask(rates, *arguments)

    monkeypatch.setattr(clock, "wait", frozen)
    monkeypatch.setattr(rates, "_ask", counted)
    answer = ask(rates, limit, {"acme": place.born[0]}, patience=SLEEP)

    assert answer.kind is Kind.START
    assert len(questions) == asked


def test_a_rate_that_is_held_back_lets_nothing_start_and_then_one_by_one(rates):
    # RATE-08
    limit = Limit("acme", 10.0, burst=5)

    rates.hold_back([limit], 60)

    waits = [ask(rates, limit).wait for _ in range(3)]
    assert 59_000 < waits[0] <= 60_000
    assert waits[1] - waits[0] == pytest.approx(100, abs=50)
    assert waits[2] - waits[1] == pytest.approx(100, abs=50)
    assert rates.look("acme").behind == pytest.approx(60.3, abs=1)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_rate_is_held_back_for_a_positive_time_only(group, seconds):
    with pytest.raises(ValueError, match="positive"):
        Rates(None, group).hold_back([Limit("acme", 1.0)], seconds)


def test_a_changed_rate_counts_from_the_next_call(rates):
    # RATE-06
    ask(rates, Limit("acme", 0.1))

    slow, fast = ask(rates, Limit("acme", 0.1)), ask(rates, Limit("acme", 10.0))

    assert slow.wait > 9_000
    assert fast.wait <= 200


def test_a_hold_is_as_long_when_the_rate_changes_meanwhile(rates):
    rates.hold_back([Limit("acme", 100.0)], 60)

    slow, fast = ask(rates, Limit("acme", 1.0)), ask(rates, Limit("acme", 1000.0))

    assert slow.wait == pytest.approx(60_000, abs=1_000)
    assert fast.wait == pytest.approx(60_000, abs=1_000)


def test_state_is_gone_ten_seconds_after_the_debt(server, rates, name):
    # F54
    ask(rates, Limit("acme", 0.1))

    assert 19_000 < server.cli("PTTL", name("acme")) <= 20_000


@pytest.mark.parametrize("rate", [1e-9, 1.0, 1e6])
def test_a_call_costs_the_same_whatever_rate_and_history(server, rates, name, rate):
    # RATE-06
    limit = Limit("acme", rate, burst=1e6)
    for _ in range(50):
        ask(rates, limit)

    assert server.cli("HLEN", name("acme")) == 7
    assert server.cli("MEMORY", "USAGE", name("acme")) < 500


@pytest.mark.parametrize("field", ["s", "e", "p", "a", "r", "o"])
@pytest.mark.parametrize("value", ["nan", "inf", "many", None])
def test_a_broken_field_is_no_debt_and_heals(server, clients, group, rates, name, field, value):
    # F54
    limit = Limit("acme", SLOW)
    ask(rates, limit)
    command = (
        ("HDEL", name("acme"), field) if value is None else ("HSET", name("acme"), field, value)
    )
    server.cli(*command)

    # One of another process: this one knows that there was something, and takes it for lost.
    others = Rates(clients, group)
    assert ask(others, limit).kind is Kind.START
    assert ask(others, limit).kind is Kind.PLACE


def test_another_type_under_the_key_heals(server, rates, name):
    server.cli("SET", name("acme"), "what is this")

    assert ask(rates, Limit("acme", SLOW)).kind is Kind.START
    assert ask(rates, Limit("acme", SLOW)).kind is Kind.PLACE


def test_lost_data_forgive_one_burst_and_no_more(server, rates):
    # RATE-01: those who were charged before the loss may still be asleep
    limit = Limit("acme", 10.0, burst=3)
    for _ in range(3):
        ask(rates, limit)
    place = ask(rates, limit)
    server.cli("FLUSHALL")

    back = rates._judge([Question(limit, SLEEP)], {"acme": place.born[0]})[0]

    assert back.kind is Kind.START
    assert back.wait == pytest.approx(SLEEP, abs=50)


def test_a_process_that_saw_the_limit_notices_the_loss_by_itself(server, rates):
    # RATE-01
    limit = Limit("acme", 10.0, burst=3)
    ask(rates, limit)
    server.cli("FLUSHALL")

    assert ask(rates, limit).wait == pytest.approx(SLEEP, abs=50)


def test_a_server_that_forgot_its_scripts_charges_once(server, rates):
    # F58
    limit = Limit("acme", SLOW, burst=5)
    ask(rates, limit)
    server.cli("SCRIPT", "FLUSH")

    ask(rates, limit)

    assert rates.look("acme").behind == 0
    assert [ask(rates, limit).kind for _ in range(4)] == [Kind.START] * 3 + [Kind.PLACE]


def test_where_a_limit_stands(rates):
    limit = Limit("acme", 10.0)
    assert rates.look("acme") is None

    for _ in range(33):
        ask(rates, limit, patience=0)

    standing = rates.look("acme")
    assert (standing.rate, standing.burst) == (pytest.approx(10), 1)
    assert standing.waiting == pytest.approx(32, abs=1)
    assert standing.behind == pytest.approx(3.3, abs=0.2)


def test_without_a_server_there_is_no_answer(server, rates, group):
    server.kill()

    with pytest.raises(Unavailable):
        ask(rates, Limit("acme", 1.0))
    with pytest.raises(NotConfigured):
        ask(Rates(Clients(Settings()), group), Limit("acme", 1.0))


def test_every_server_runs_the_script(every_server, group):
    clients = clients_of(every_server)
    rates = Rates(clients, group)
    limits = [Question(Limit("acme", SLOW)), Question(Limit("all", SLOW, burst=2))]

    kinds = [rates.admit(limits).kind for _ in range(2)]
    every_server.cli("DEL", f"atom:{group}:rate:all")
    every_server.cli("SET", f"atom:{group}:rate:acme", "what is this")

    assert kinds == [Kind.START, Kind.PLACE]
    assert Rates(clients, group).admit(limits).kind is Kind.START
    assert rates.look("acme").waiting == 0
    clients.close()

"""The meter on a real server: debts that add up, drain, and heal."""

import math
import threading
from decimal import Decimal
from fractions import Fraction

import pytest

from celery_atomicity.connection import Clients
from celery_atomicity.primitives.meter import CHUNK, Meter
from celery_atomicity.settings import Settings
from celery_atomicity.testing import wait_until

HOUR = 3_600_000


@pytest.fixture
def clients(server):
    clients = Clients(Settings.read({"atomicity_redis": server.url}, {}))
    yield clients
    clients.close()


@pytest.fixture
def meter(clients, group):
    return Meter(clients, group)


@pytest.fixture
def hash_of(group):
    return lambda key: f"atom:{group}:meter:{key}"


def fields(server, key):
    answer = server.cli("HGETALL", key)
    return dict(zip(answer[::2], answer[1::2], strict=True))


def server_now(server):
    seconds, micros = server.cli("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


# METER-01


def test_debts_add_up(meter):
    first, second = meter(["sam"], [HOUR]), meter(["sam"], [HOUR])

    assert first == [HOUR]
    assert HOUR < second[0] <= 2 * HOUR


def test_a_debt_drains_a_millisecond_a_millisecond(server, meter, hash_of):
    meter(["sam"], [5_000])
    at = int(fields(server, hash_of("sam"))["a"])

    wait_until(lambda: server_now(server) >= at + 50)
    before = server_now(server) - at
    [debt] = meter(["sam"], [0])
    after = server_now(server) - at

    assert 5_000 - after <= debt <= 5_000 - before


def test_concurrent_callers_lose_nothing(server, group):
    settings = Settings.read({"atomicity_redis": server.url}, {})

    def add():
        clients = Clients(settings)
        for _ in range(50):
            Meter(clients, group)(["sam"], [HOUR])
        clients.close()

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    clients = Clients(settings)
    [debt] = Meter(clients, group)(["sam"], [0])
    clients.close()
    assert 199 * HOUR < debt <= 200 * HOUR


# METER-02


def test_any_number_of_keys_in_the_order_asked(meter):
    count = 2 * CHUNK + 7
    deltas = [HOUR + index for index in range(count)]

    debts = meter([f"key-{index}" for index in range(count)], deltas)

    assert debts == deltas


def test_a_key_named_twice_counts_twice(meter):
    debts = meter(["sam", "ann", "sam"], [HOUR, 5, HOUR])

    assert debts == [HOUR, 5, 2 * HOUR]


def test_no_keys_is_no_question(group):
    assert Meter(None, group)([], []) == []


def test_a_batch_is_one_script_for_every_two_thousand_keys(server, meter):
    meter(["warm"], [1])

    def calls():
        stats = server.cli("INFO", "commandstats")
        return int(stats.split("cmdstat_evalsha:calls=")[1].split(",")[0])

    before = calls()

    meter([f"key-{index}" for index in range(2 * CHUNK)], [1] * (2 * CHUNK))

    assert calls() - before == 2


# METER-03


def test_a_key_is_gone_ten_seconds_after_its_debt(server, meter, hash_of):
    meter(["sam"], [1_000.5])

    left = server.cli("PTTL", hash_of("sam"))
    assert 10_000 < left <= 11_001
    meter(["sam"], [0])
    assert server.cli("PTTL", hash_of("sam")) <= left


# METER-04


@pytest.mark.parametrize("ahead", [1_000, 3_600_000])
def test_a_clock_that_stepped_back_gives_nothing_and_takes_nothing(server, meter, hash_of, ahead):
    meter(["sam"], [5_000])
    server.cli("HSET", hash_of("sam"), "a", server_now(server) + ahead)  # we are now behind

    [debt] = meter(["sam"], [0])

    assert debt == 5_000
    assert int(fields(server, hash_of("sam"))["a"]) <= server_now(server)


def test_a_clock_that_stepped_forward_forgives_what_it_says_has_passed(server, meter, hash_of):
    meter(["sam"], [HOUR])
    server.cli("HSET", hash_of("sam"), "a", server_now(server) - 1_000_000)

    [debt] = meter(["sam"], [0])

    assert HOUR - 1_005_000 < debt <= HOUR - 1_000_000


@pytest.mark.parametrize(
    "broken",
    [
        ("d", "many"),
        ("d", "nan"),
        ("d", "-nan"),
        ("d", ""),
        ("a", "nan"),
        ("a", "then"),
        ("d", "-5000"),
        ("a", None),
        ("d", None),
    ],
)
def test_a_broken_field_is_no_debt_and_heals(server, meter, hash_of, broken):
    # F54
    meter(["sam"], [HOUR])
    field, value = broken
    if value is None:
        server.cli("HDEL", hash_of("sam"), field)
    else:
        server.cli("HSET", hash_of("sam"), field, value)

    debts = meter(["sam"], [7]) + meter(["sam"], [HOUR])

    assert debts[0] == 7
    assert HOUR <= debts[1] <= HOUR + 7
    assert fields(server, hash_of("sam"))["d"] == str(int(debts[1]))


@pytest.mark.parametrize("value", ["inf", "1e300", "9007199254740992"])
def test_no_debt_is_too_large_to_be_kept(server, meter, hash_of, value):
    meter(["sam"], [1])
    server.cli("HSET", hash_of("sam"), "d", value)

    [debt] = meter(["sam"], [1e308])

    assert debt == 2**53
    assert server.cli("PTTL", hash_of("sam")) > 2**53


def test_another_type_under_the_key_heals(server, meter, hash_of):
    server.cli("SET", hash_of("sam"), "what is this")

    assert meter(["ann", "sam"], [3, 7]) == [3, 7]
    assert fields(server, hash_of("sam"))["d"] == "7"


def test_fractions_are_kept_and_whole_numbers_stay_whole(server, meter, hash_of):
    [third] = meter(["sam"], [HOUR + 1 / 3])
    meter(["ann"], [2_000_000_000.0])

    assert third == HOUR + 1 / 3
    assert float(fields(server, hash_of("sam"))["d"]) == HOUR + 1 / 3
    assert fields(server, hash_of("ann"))["d"] == "2000000000"
    assert fields(server, hash_of("ann"))["a"].isdigit()


# METER-05


@pytest.mark.parametrize(
    ("keys", "deltas", "error"),
    [
        (["a", "b"], [1], ValueError),
        (["a"], [], ValueError),
        ([""], [1], ValueError),
        (["a"], [math.nan], ValueError),
        (["a"], [math.inf], ValueError),
        (["a"], [-math.inf], ValueError),
        (["a"], [10**400], ValueError),
        (["a"], ["1"], TypeError),
        (["a"], [None], TypeError),
        (["a"], [True], TypeError),
        (["a"], [1j], TypeError),
        ([b"a"], [1], TypeError),
        ([7], [1], TypeError),
        ("a", [1], TypeError),
    ],
)
def test_bad_input_is_refused_before_anything_is_sent(group, keys, deltas, error):
    with pytest.raises(error):
        Meter(None, group)(keys, deltas)


def test_numbers_of_any_make_are_taken(meter):
    debts = meter(["a", "b", "c"], [Fraction(1, 4), Decimal("2.5"), 3])

    assert debts == [0.25, 2.5, 3]


def test_what_is_paid_back_never_goes_below_zero(meter):
    meter(["sam"], [HOUR])

    assert meter(["sam"], [-HOUR / 2])[0] <= HOUR / 2
    assert meter(["sam"], [-2 * HOUR]) == [0]
    assert meter(["sam"], [5]) == [5]


def test_every_server_runs_the_script(every_server, group):
    clients = Clients(Settings.read({"atomicity_redis": every_server.url}, {}))
    meter = Meter(clients, group)

    debts = meter(["sam", "sam"], [HOUR, 0.5])
    every_server.cli("SET", f"atom:{group}:meter:ann", "what is this")

    assert debts == [HOUR, HOUR + 0.5]
    assert meter(["ann"], [2]) == [2]
    clients.close()

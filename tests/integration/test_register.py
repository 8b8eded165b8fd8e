"""The registration script on a real server, and that the simulation's server does the same."""

from random import Random

import pytest
from simulation.membership_world import SimServer

from celery_atomicity import keys
from celery_atomicity.connection import Clients, Script
from celery_atomicity.settings import Settings

# Some 31 years, so that no test meets the end of an interval: it is number 1 until 2033.
INTERVAL_MS = 10**12
LIFE_MS = 3 * INTERVAL_MS


@pytest.fixture
def clients(server):
    clients = Clients(Settings.read({"atomicity_redis": server.url}, {}))
    yield clients
    clients.close()


@pytest.fixture
def base(group):
    return keys.slots_base(group)


@pytest.fixture
def register(clients, base):
    script = Script("register")
    return lambda: clients.ask(script, [base], [INTERVAL_MS, LIFE_MS]).value


def current(server):
    return int(server.cli("TIME")[0]) * 1000 // INTERVAL_MS


def test_counts_the_caller_in_the_interval_of_the_servers_clock(server, register):
    number = current(server)

    assert [register()[:3] for _ in range(3)] == [[number, place, -1] for place in (1, 2, 3)]


def test_tells_the_servers_clock_in_milliseconds(server, register):
    before = int(server.cli("TIME")[0]) * 1000
    now = register()[3]

    assert before <= now <= int(server.cli("TIME")[0]) * 1000 + 1000


def test_tells_what_the_interval_before_closed_on(server, register, base):
    number = current(server)
    server.cli("SET", f"{base}:{number - 1}", "7")

    assert register()[:3] == [number, 1, 7]


def test_a_counter_outlives_three_intervals_from_its_last_call(server, register, base):
    register()

    assert LIFE_MS - 60_000 < int(server.cli("PTTL", f"{base}:{current(server)}")) <= LIFE_MS


# PART-01
def test_an_interval_is_closed_once_the_next_has_begun(server, register, base):
    """As after a step back of the clock: its count may have been read, and grows no more."""
    number = current(server)
    register()
    server.cli("SET", f"{base}:{number + 1}", "4")
    server.cli("SET", f"{base}:{number + 2}", "2")

    assert register()[:3] == [number + 2, 3, 4]
    assert server.cli("GET", f"{base}:{number}") == "1"


# PART-01
@pytest.mark.parametrize("seed", range(10))
def test_the_simulations_server_does_the_same(server, register, base, seed):
    random = Random(seed)
    number = current(server)
    simulated = SimServer(INTERVAL_MS / 1000)
    simulated.offset = (number + 0.5) * INTERVAL_MS / 1000
    for near in range(number - 2, number + 4):
        if random.random() < 0.5:
            count = random.randint(1, 9)
            server.cli("SET", f"{base}:{near}", str(count))
            simulated._counters[near] = (count, (near + 9) * INTERVAL_MS)

    for _ in range(3):
        number, place, previous, _ = register()
        assert simulated.register(0.0)[:3] == (number, place - 1, previous)

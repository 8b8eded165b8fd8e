"""Beats whose broker hangs or is away, RabbitMQ as well as Redis: what is due is sent, and once."""

import pytest
from pytest_celery import CeleryBrokerCluster
from redis import Redis
from support import beat_tasks
from support.beat_record import check, complete_again, quiet
from support.nodes import BeatContainer

from celery_atomicity import clock
from celery_atomicity.testing import wait_until

INTERVAL = 0.5
SETTLED = 5 * INTERVAL  # PART-03
STALLED = 2 * INTERVAL  # BEAT-07
# Beyond what is promised, for two cores that everything shares.
SLACK = 4.0
SCHEDULE = {f"second {n}": 1 for n in range(8)}

pytestmark = [pytest.mark.cluster(workers=1, concurrency=2)]


@pytest.fixture
def default_worker_tasks(default_worker_tasks):
    return default_worker_tasks | {beat_tasks}


@pytest.fixture
def default_worker_env(default_worker_env, notes_server):
    return default_worker_env | {beat_tasks.NOTES: notes_server.url}


@pytest.fixture
def default_worker_app(default_worker_app):
    task = f"{beat_tasks.__name__}.tick"
    default_worker_app.conf.update(
        atomicity_interval=INTERVAL,
        atomicity_timeout=0.2,
        beat_schedule={
            name: {"task": task, "schedule": float(every)} for name, every in SCHEDULE.items()
        },
    )
    return default_worker_app


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.soak), "rabbitmq"])
def celery_broker_cluster(request):
    return CeleryBrokerCluster(request.getfixturevalue(f"celery_{request.param}_broker"))


@pytest.fixture
def beat(request, celery_setup, spawn, proxy):
    """A factory: a beat, and the way on which it reaches its broker."""
    if request.config.getoption("--engine") == "docker":
        pytest.skip("the proxy is on this machine, which containers do not reach")

    broker = celery_setup.broker_cluster[0].container

    def start():
        way = proxy(broker.port)
        url = f"{broker.prefix()}127.0.0.1:{way.port}/{broker.vhost}"
        [node] = spawn(BeatContainer, 1, "-S", "atomicity", env={"CELERY_BROKER_URL": url})
        return node, way

    return start


@pytest.fixture
def beats(celery_setup):
    """How many beats registered in the last whole interval."""
    url = celery_setup.backend_cluster[0].config()["host_url"]
    with Redis.from_url(url) as arbiter:

        def count():
            seconds, micros = arbiter.time()
            number = int((seconds + micros / 1e6) / INTERVAL) - 1
            return int(arbiter.get(f"{base}:{number}") or 0)

        base = "atom:celery_test_app.beat:slots:{celery_test_app.beat}"
        yield count


# BEAT-07, BEAT-08, F94
def test_nothing_is_lost_to_a_broker_that_hangs_or_is_away(beat, beats, ticks, capsys):
    _, first = beat()
    _, second = beat()
    complete_again(ticks, SCHEDULE, {})
    wait_until(lambda: beats() == 2, 10, "both take part")
    period = max(SCHEDULE.values())

    first.hang()
    begin = clock.monotonic()
    wait_until(lambda: beats() == 1, 10, "the one whose broker hangs stands down")
    stood_down = clock.monotonic() - begin
    complete_again(ticks, SCHEDULE, {})
    taken_over = clock.monotonic() - begin
    quiet(ticks, 2)
    first.heal()
    wait_until(lambda: beats() == 2, 30, "it takes part again")
    complete_again(ticks, SCHEDULE, {})
    for way in (first, second):
        way.cut()
    quiet(ticks, 4)
    for way in (first, second):
        way.heal()
    complete_again(ticks, SCHEDULE, {})

    with capsys.disabled():
        print(f"\nstood down after {stood_down:.1f} s, all taken over after {taken_over:.1f} s")
    # Told by the count of an interval that is over.
    assert stood_down <= period + STALLED + 2 * INTERVAL + SLACK
    assert taken_over <= 2 * period + STALLED + SETTLED + SLACK
    check(ticks, SCHEDULE, longest=STALLED + 2 * SETTLED + period + 2 * SLACK, slots={})

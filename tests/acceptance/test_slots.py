"""Slots on real workers, in every pool and through what happens to them."""

import time

import pytest
from pytest_celery import RESULT_TIMEOUT
from redis.exceptions import ConnectionError as RedisConnectionError
from support import slot_tasks
from support.nodes import NodeContainer
from support.slot_tasks import listen, slots, watch

from celery_atomicity.testing import wait_until

INTERVAL = 0.6

pytestmark = [pytest.mark.cluster(workers=2), pytest.mark.timeout(180)]


@pytest.fixture
def arbiter(server):
    """The server that arbitrates; not the broker, so that each can fail by itself."""
    return server


@pytest.fixture
def default_worker_tasks(default_worker_tasks):
    return default_worker_tasks | {slot_tasks}


@pytest.fixture
def default_worker_app(default_worker_app, arbiter):
    default_worker_app.conf.atomicity_redis = arbiter.url
    default_worker_app.conf.atomicity_interval = INTERVAL
    default_worker_app.conf.atomicity_timeout = 0.3
    default_worker_app.conf.atomicity_restart_grace = 0
    return default_worker_app


def states(app, count):
    """How each worker says that it stands, by its name; asks until *count* have answered."""
    found = {}
    for answer in app.control.broadcast("atomicity", reply=True, timeout=2, limit=count):
        for name, groups in answer.items():
            found[name] = groups[0]
    return found


def assignments(app, count):
    """The assignments of so many workers, sorted; None stands for a worker that has none."""
    found = [state["assignment"] for state in states(app, count).values()]
    return sorted((one["i"], one["n"]) if one else (-1, -1) for one in found)


def settled(app, count):
    wait_until(
        lambda: assignments(app, count) == [(i, count) for i in range(count)],
        timeout=30,
        what=f"{count} workers are settled",
    )


def asked(app, count=1):
    """What so many tasks answer: node, process, slots."""
    sent = [slots.apply_async() for _ in range(count)]
    return [result.get(timeout=RESULT_TIMEOUT) for result in sent]


def in_pool(pool, concurrency=2):
    marks = pytest.mark.cluster(workers=2, pool=pool, concurrency=concurrency)
    return pytest.param(pool, marks=marks)


@pytest.mark.parametrize(
    "pool",
    [
        in_pool("prefork"),
        in_pool("threads"),
        in_pool("gevent"),
        in_pool("eventlet"),
        in_pool("solo", 1),
    ],
)
def test_tasks_of_every_pool_own_what_their_worker_owns(celery_setup, pool):
    app = celery_setup.app
    settled(app, 2)

    answers = asked(app, 24)

    by_node = {node: owned for node, _, owned in answers}
    assert sorted(by_node.values()) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    for node, _, owned in answers:
        assert owned == by_node[node]


@pytest.mark.cluster(workers=1, concurrency=2, argv=("--max-tasks-per-child", "1"))
def test_children_that_are_forked_later_see_it_too(celery_setup):  # PART-06
    app = celery_setup.app
    settled(app, 1)

    owners = set()

    def three_own_all():
        for _, process, owned in asked(app, 2):
            # Where the machine stalls for an interval, nothing is owned until the next.
            assert owned in (None, list(range(8)))
            owners.update([process] if owned else [])
        return len(owners) > 2

    wait_until(three_own_all, timeout=20, what="children forked later own all slots")


def test_a_killed_worker_is_missed_by_the_others(celery_setup):  # PART-03
    app = celery_setup.app
    first, _second = celery_setup.worker_cluster
    settled(app, 2)

    first.kill()

    settled(app, 1)


def test_workers_survive_the_loss_of_the_arbiter(celery_setup, arbiter):
    # PART-04
    app = celery_setup.app
    settled(app, 2)

    arbiter.stop()
    wait_until(lambda: assignments(app, 2) == [(-1, -1)] * 2, timeout=15, what="nobody owns")
    assert [owned for _, _, owned in asked(app, 2)] == [None, None]
    arbiter.start()

    settled(app, 2)
    for worker in celery_setup.worker_cluster:
        logs = worker.logs()
        assert logs.count("does not answer") == 1
        assert logs.count("answers again") == 1
        assert "Traceback" not in logs


@pytest.mark.cluster(workers=1)
def test_a_worker_starts_without_an_arbiter_and_takes_part_when_it_comes(
    celery_setup, spawn, arbiter
):
    # PART-04
    app = celery_setup.app
    arbiter.stop()

    [worker] = spawn(NodeContainer)
    wait_until(lambda: "does not answer" in worker.logs(), what="it warns")
    assert {tuple(owned or ()) for _, _, owned in asked(app, 8)} == {()}
    arbiter.start()

    settled(app, 2)
    assert worker.logs().count("does not answer") == 1


@pytest.mark.cluster(workers=2, concurrency=2)
def test_a_worker_that_leaves_stands_down_before_its_tasks_have_ended(celery_setup):
    # PART-09
    app = celery_setup.app
    leaving, staying = celery_setup.worker_cluster
    settled(app, 2)
    results = [watch.apply_async((12,)) for _ in range(4)]
    wait_until(
        lambda: all("watch[" in worker.logs() for worker in (leaving, staying)),
        what="both workers have tasks",
    )

    leaving.container._container.kill("TERM")

    watched = dict(result.get(timeout=60) for result in results)
    # It owned nothing while its task still ran, and the other everything.
    assert watched[leaving.hostname()][-1] is None
    assert watched[staying.hostname()][-1] == list(range(8))


@pytest.mark.cluster(workers=1)
def test_registering_goes_on_while_the_broker_is_away(celery_setup, arbiter):
    app = celery_setup.app
    settled(app, 1)
    [broker] = celery_setup.broker_cluster
    counted = _registrations(arbiter)

    broker.container._container.kill("STOP")
    try:
        wait_until(lambda: _registrations(arbiter) > counted + 3, what="it goes on registering")
    finally:
        broker.container._container.kill("CONT")
    broker.restart()
    # Our own connections have to find out as well.
    wait_until(lambda: _is_back(app), timeout=30, what="the broker is back")

    settled(app, 1)
    assert asked(app)[0][2] == list(range(8))


@pytest.mark.cluster(workers=1)
def test_a_child_is_refused_a_listener(celery_setup):  # PART-07
    settled(celery_setup.app, 1)

    assert "main process" in listen.delay().get(timeout=RESULT_TIMEOUT)


@pytest.mark.cluster(workers=1, env={"BREAK_LISTENER": "1"})
def test_a_listener_that_raises_takes_its_worker_out(celery_setup, spawn):  # PART-07
    app = celery_setup.app
    [broken] = celery_setup.worker_cluster
    wait_until(lambda: "CRITICAL" in broken.logs(), what="it is logged as critical", timeout=30)

    [state] = states(app, 1).values()
    assert "cannot take it up" in state["error"]
    assert not state["open"]
    assert "cannot take it up" in broken.logs()
    assert asked(app)[0][2] is None

    spawn(NodeContainer)
    wait_until(
        lambda: assignments(app, 2) == [(-1, -1), (0, 1)], timeout=30, what="the other has all"
    )


@pytest.mark.cluster(workers=1, concurrency=1)
def test_a_frozen_worker_and_child_own_nothing_when_they_wake(celery_setup):  # PART-05
    app = celery_setup.app
    [worker] = celery_setup.worker_cluster
    settled(app, 1)
    result = watch.apply_async((6 * INTERVAL + 2,))
    wait_until(lambda: "watch[" in worker.logs(), what="the task is there")
    time.sleep(INTERVAL / 2)

    worker.freeze()
    time.sleep(3 * INTERVAL)
    worker.thaw()

    _, seen = result.get(timeout=60)
    assert seen[:2] == [list(range(8)), None]
    settled(app, 1)


@pytest.mark.cluster(workers=1)
def test_a_worker_shows_how_it_stands(celery_setup):
    app = celery_setup.app
    settled(app, 1)

    [state] = states(app, 1).values()

    assert state["group"] == "celery_test_app"
    assert state["assignment"] == {"i": 0, "n": 1}
    assert 0 < state["until"] <= 1.15 * INTERVAL
    assert 0 <= state["registered"] <= 1.15 * INTERVAL
    assert state["round_trip"] > 0
    assert state["error"] == ""


@pytest.mark.cluster(workers=2, argv=("-n", "twin@same"))
def test_workers_of_one_name_are_two_replicas(celery_setup):  # F76
    both = list(celery_setup.worker_cluster)

    wait_until(
        lambda: {_last_number(node) for node in both} == {"0 of 2", "1 of 2"},
        timeout=30,
        what="one is number 0 of 2, the other number 1 of 2",
    )


def _last_number(node):
    """What the node has last said that it is."""
    found = [line for line in node.logs().splitlines() if "this replica is number" in line]
    return found[-1].rpartition("number ")[2].strip() if found else None


def _is_back(app):
    try:
        return app.control.ping(timeout=1)
    except (ConnectionError, RedisConnectionError):
        return False


def _registrations(server):
    for line in server.cli("INFO", "commandstats").splitlines():
        if line.startswith("cmdstat_incr:"):
            return int(line.split("calls=")[1].split(",")[0])
    return 0

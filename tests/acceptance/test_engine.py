"""The engine that the acceptance tests run on: real nodes, killed, frozen and restarted."""

import inspect

import psutil
import pytest
from docker.models.containers import Container, _create_container_args
from pytest_celery import RESULT_TIMEOUT, CeleryBrokerCluster
from pytest_celery.vendors.worker.content import app as plain_app
from support.nodes import NodeContainer, answering
from support.proccontainer import ProcessContainer
from support.tasks import doze, pids, whoami

from celery_atomicity.testing import wait_until


@pytest.fixture
def default_worker_app_module():
    """A plain Celery app: the engine is judged without what runs on it."""
    return plain_app


def test_containers_have_nothing_that_docker_has_not():
    ours = inspect.getmembers(ProcessContainer, inspect.isfunction)

    for name, method in ours:
        if not name.startswith("_"):
            known = inspect.signature(getattr(Container, name)).parameters
            takes_any = any(each.kind is each.VAR_KEYWORD for each in known.values())
            assert takes_any or set(inspect.signature(method).parameters) <= set(known), name


def test_what_nodes_are_started_with_is_what_docker_accepts():
    arguments = _create_container_args(
        {
            "version": "1.41",
            "image": "image",
            "command": NodeContainer.command("-B", "-S", "atomicity"),
            "environment": {"KEY": "value"},
            "detach": True,
            "network": "network",
            "volumes": {"volume": {"bind": "/app", "mode": "rw"}},
        }
    )

    assert arguments["command"][:5] == ["celery", "-A", "app", "worker", "--loglevel=INFO"]


STUBBORN = """
import faulthandler, signal, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
faulthandler.register(signal.SIGUSR2)
print("deaf", flush=True)
threading.Event().wait()
"""


def test_what_does_not_end_when_stopped_says_what_it_is_doing(tmp_path):
    container = ProcessContainer(
        tmp_path,
        "scratch",
        command=["python", "-c", STUBBORN],
        volumes={str(tmp_path): {"bind": "/app", "mode": "rw"}},
    )
    container.start()
    wait_until(lambda: b"deaf" in container.logs(), 30, "it does not listen")

    container.stop(timeout=0.1)

    assert container.status == "exited"
    assert b"most recent call first" in container.logs()
    container.remove()


def test_send_and_read(celery_setup):
    served = {whoami.delay().get(timeout=RESULT_TIMEOUT) for _ in range(20)}

    assert served <= {node.hostname() for node in celery_setup.worker_cluster}
    assert answering(celery_setup.app, celery_setup.worker_cluster)


@pytest.mark.cluster(workers=1, pool="prefork", concurrency=2)
def test_a_prefork_node_runs_tasks_in_children(celery_setup):
    [node] = celery_setup.worker_cluster

    child, parent = pids.delay().get(timeout=RESULT_TIMEOUT)

    assert parent == node.container.attrs["State"]["Pid"]
    assert child != parent


@pytest.mark.parametrize(
    "pool",
    [
        pytest.param(pool, marks=pytest.mark.cluster(workers=1, pool=pool, concurrency=2))
        for pool in ("threads", "gevent", "eventlet", "solo")
    ],
)
def test_a_node_may_have_another_pool(celery_setup, pool):
    [node] = celery_setup.worker_cluster

    process, _ = pids.delay().get(timeout=RESULT_TIMEOUT)

    assert process == node.container.attrs["State"]["Pid"]


def test_kill_and_restart(celery_setup):
    first, second = celery_setup.worker_cluster

    first.kill()
    assert first.container.status == "exited"
    served = whoami.delay()
    assert served.get(timeout=RESULT_TIMEOUT) == second.hostname()
    second.assert_log_exists(served.id)
    first.restart()

    assert first.container.status == "running"
    assert answering(celery_setup.app, celery_setup.worker_cluster)


@pytest.mark.cluster(workers=1)
def test_a_killed_node_leaves_no_child_behind(celery_setup):
    [node] = celery_setup.worker_cluster
    child, _ = pids.delay().get(timeout=RESULT_TIMEOUT)
    dozing = doze.delay(60)
    node.wait_for_log(dozing.id)

    node.kill()

    # One that nobody has collected yet still has its number.
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_frozen_node_does_nothing_until_the_thaw(celery_setup):
    first, second = celery_setup.worker_cluster
    first.freeze()

    assert first.container.status == "paused"
    assert not celery_setup.app.control.ping(destination=[first.hostname()], timeout=0.5)
    assert answering(celery_setup.app, [second])
    first.thaw()

    wait_until(lambda: answering(celery_setup.app, [first, second]), 20, "both answer")


@pytest.mark.cluster(workers=1)
def test_a_frozen_node_can_be_killed(celery_setup):
    [node] = celery_setup.worker_cluster
    node.freeze()

    node.kill()
    assert node.container.status == "exited"
    node.restart()

    assert answering(celery_setup.app, [node])


class TestBeats:
    @pytest.fixture
    def default_worker_app(self, default_worker_app):
        default_worker_app.conf.beat_schedule = {
            "often": {"task": "support.tasks.whoami", "schedule": 0.3}
        }
        return default_worker_app

    @pytest.mark.cluster(workers=1, beats=2)
    def test_a_beat_goes_on_when_the_other_is_killed(self, celery_setup):
        worker, first, second = celery_setup.worker_cluster
        for beat in (first, second):
            beat.wait_for_log("Sending due task often")

        first.kill()
        sent, done = (each.logs().count("often") for each in (second, worker))

        wait_until(lambda: second.logs().count("often") > sent, what="the other beat sends")
        wait_until(lambda: worker.logs().count("whoami") > done, what="the worker runs it")
        assert first.container.status == "exited"

    def test_beats_may_be_embedded_in_workers(self, spawn):
        nodes = spawn(NodeContainer, 2, "-B")

        for node in nodes:
            node.wait_for_log("Sending due task often")
        # Each remembers its ticks for itself, not in the directory that nodes share.
        assert b"celerybeat-schedule" not in nodes[0].container.exec_run("ls")[1]


def test_nodes_may_join_later_with_an_environment_of_their_own(celery_setup, spawn):
    [late] = spawn(NodeContainer, 1, env={"CELERY_TEST_MARK": "seen"})

    code, output = late.container.exec_run(
        "python -c \"import os; print(os.environ['CELERY_TEST_MARK'])\""
    )

    assert (code, output.strip()) == (0, b"seen")
    assert answering(celery_setup.app, [*celery_setup.worker_cluster, late])


class TestRabbitMQ:
    @pytest.fixture
    def celery_broker_cluster(self, celery_rabbitmq_broker):
        return CeleryBrokerCluster(celery_rabbitmq_broker)

    def test_nodes_outlive_a_restart_of_the_broker(self, celery_setup):
        assert whoami.delay().get(timeout=RESULT_TIMEOUT)

        celery_setup.broker.kill()
        celery_setup.broker.restart()

        assert whoami.delay().get(timeout=RESULT_TIMEOUT)


def test_nodes_outlive_a_restart_of_a_redis_broker(celery_setup):
    assert whoami.delay().get(timeout=RESULT_TIMEOUT)

    celery_setup.broker.kill()
    celery_setup.broker.restart()

    assert whoami.delay().get(timeout=RESULT_TIMEOUT)

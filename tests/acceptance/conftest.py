"""
Clusters of real Celery nodes: pytest-celery on processes, or with ``--engine docker`` on Docker.

A test that asks for ``celery_setup`` gets a Redis broker and backend and the nodes that its
marker ``cluster`` tells of. The module or class that defines ``celery_broker_cluster`` anew gets
another broker; one that defines ``default_worker_tasks`` or ``default_worker_app`` anew changes
tasks or settings.
"""

import gc
from pathlib import Path
from types import ModuleType

import pytest
import support
from celery import _state
from pytest_celery import (
    DEFAULT_WORKER_VOLUME,
    CeleryBackendCluster,
    CeleryBrokerCluster,
    CeleryWorkerCluster,
)
from pytest_celery.vendors.redis.container import RedisContainer
from pytest_celery.vendors.redis.defaults import REDIS_CONTAINER_TIMEOUT
from pytest_docker_tools import build, container, fxtr
from pytest_docker_tools.wrappers import Container
from support import needs, tasks
from support.beat_record import Ticks
from support.nodes import NODES, BeatContainer, Node, NodeContainer, poll
from support.procengine import ProcessDockerClient
from support.services import RABBITMQ_SERVER

node_image = build(
    path=str(Path(__file__).parents[2]),
    dockerfile="tests/node.Dockerfile",
    tag="celery-atomicity/node",
)


@pytest.fixture(scope="session")
def docker_client(request, tmp_path_factory):
    """What everything of pytest-celery's runs on; the one switch between its two engines."""
    if request.config.getoption("--engine") == "docker":
        import docker

        client = docker.from_env()
        yield client
        client.close()
    else:
        with pytest.MonkeyPatch.context() as patch:
            # In a container of their own, the tests would look for services at its address.
            patch.setattr(
                "pytest_docker_tools.wrappers.container.tests_inside_container", lambda: False
            )
            yield ProcessDockerClient(tmp_path_factory.mktemp("engine"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.failed and report.when != "teardown":
        for box in item.stash.get(NODES, []):
            # Docker's is not asked: what a node is about is told where its processes are at hand.
            getattr(box._container, "_tell", lambda: None)()
            report.sections.append((f"{box.name} ({type(box).__name__})", box.logs()))
    return report


@pytest.fixture
def default_redis_broker_image():
    return "redis:7.0"


@pytest.fixture
def default_redis_backend_image():
    return "redis:7.0"


@pytest.fixture
def default_rabbitmq_broker_image(request):
    if request.config.getoption("--engine") == "process" and not RABBITMQ_SERVER.exists():
        needs.missing("RabbitMQ", "apt-get install rabbitmq-server")
    return "rabbitmq:3.10"


# Upstream's are parametrized from sets, whose order differs between the processes of xdist.
@pytest.fixture
def celery_broker_cluster(celery_redis_broker):
    return CeleryBrokerCluster(celery_redis_broker)


@pytest.fixture
def celery_backend_cluster(celery_redis_backend):
    return CeleryBackendCluster(celery_redis_backend)


@pytest.fixture
def default_worker_app_module():
    # Only its source is of use here: run, it would make one more app the current one.
    module = ModuleType("nodeapp")
    module.__file__ = str(Path(support.__file__).with_name("nodeapp.py"))
    return module


@pytest.fixture
def default_worker_tasks(default_worker_tasks):
    return default_worker_tasks | {tasks}


@pytest.fixture
def notes_command():
    return RedisContainer.command()


# What tasks note, on a server that no test takes away.
notes_server = container(
    image="{default_redis_broker_image}",
    ports=RedisContainer.ports(),
    network="{default_pytest_celery_network.name}",
    wrapper_class=RedisContainer,
    timeout=REDIS_CONTAINER_TIMEOUT,
    command=fxtr("notes_command"),
)


@pytest.fixture
def ticks(celery_setup, notes_server):
    ticks = Ticks(notes_server.host_url)
    yield ticks
    ticks.close()


@pytest.fixture
def celery_setup_app(celery_setup_app):
    before = _state._tls.current_app
    # In the end, pytest-celery looks at every object there is. One that stands for a task of an
    # earlier test, and is garbage not collected yet, would ask for that task.
    gc.collect()
    yield celery_setup_app
    # Upstream leaves its sockets open, and itself behind as the current app.
    celery_setup_app.close()
    _state._set_current_app(before)


@pytest.fixture
def spawn(
    request,
    docker_client,
    node_image,
    default_pytest_celery_network,
    default_worker_volume,
    default_worker_env,
    celery_setup_app,
):
    """
    A factory of running nodes: ``spawn(NodeContainer, 2, "-B", pool="threads", concurrency=4)``.

    They start side by side, and all are up when it returns. More of the command line goes in
    place, *env* is added to their environment; a beat has no pool.
    """
    boxes = request.node.stash.setdefault(NODES, [])

    def start(cls, count=1, *arguments, env=None, **options):
        new = []
        for _ in range(count):
            raw = docker_client.containers.run(
                image=node_image.id,
                command=cls.command(*arguments, **options),
                environment=default_worker_env | (env or {}),
                detach=True,
                network=default_pytest_celery_network.name,
                volumes={default_worker_volume.name: DEFAULT_WORKER_VOLUME},
            )
            request.addfinalizer(lambda raw=raw: raw.remove(force=True))
            new.append(cls(raw))
        boxes.extend(new)
        for box in new:
            # Raises at once if the node has already ended.
            poll(lambda box=box: Container.ready(box) and box.boots() > 0, 60, f"{box.name} is up")
        return [Node(box, app=celery_setup_app) for box in new]

    return start


@pytest.fixture
def celery_worker_cluster(request, spawn):
    """
    The nodes of the marker ``cluster(workers=2, beats=0, argv=(), **options)``.

    *argv* and the options (``pool``, ``concurrency``, ``env``) are those of the workers.
    """
    marker = request.node.get_closest_marker("cluster")
    asked = dict(marker.kwargs) if marker else {}
    workers, beats, argv = asked.pop("workers", 2), asked.pop("beats", 0), asked.pop("argv", ())
    nodes = spawn(NodeContainer, workers, *argv, **asked)
    return CeleryWorkerCluster(*nodes, *spawn(BeatContainer, beats))

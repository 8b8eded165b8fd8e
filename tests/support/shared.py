"""A cluster that several tests share: what pytest-celery makes for each test, made once."""

import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType

from celery import _state
from pytest_celery import (
    DEFAULT_WORKER_VOLUME,
    CeleryBackendCluster,
    CeleryBrokerCluster,
    CeleryTestSetup,
    CeleryWorkerCluster,
    RabbitMQContainer,
    RabbitMQTestBroker,
    RedisContainer,
    RedisTestBackend,
    RedisTestBroker,
)
from pytest_docker_tools.factories.volume import _populate_volume
from pytest_docker_tools.wrappers import Container

import support
from support import needs
from support.nodes import Node, NodeContainer, poll
from support.services import RABBITMQ_SERVER


class Engine:
    """What makes containers, and removes them when it is left."""

    def __init__(self, docker_client, node_image, stack):
        self.client, self.image, self._stack = docker_client, node_image, stack
        self.network = docker_client.networks.create(f"shared-{uuid.uuid4()}")
        stack.callback(self.network.remove)

    def run(self, wrapper, image, **options):
        raw = self.client.containers.run(
            image=image, detach=True, network=self.network.name, **options
        )
        self._stack.callback(raw.remove, force=True)
        return wrapper(raw)

    def service(self, wrapper, image, **options):
        box = self.run(
            wrapper, image, ports=wrapper.ports(), environment=wrapper.initial_env(), **options
        )
        poll(box.ready, 60, f"{box.name} is up")
        return box

    def redis(self):
        return self.service(RedisContainer, "redis:7.0", command=RedisContainer.command())

    def rabbitmq(self):
        if not RABBITMQ_SERVER.exists():
            needs.missing("RabbitMQ", "apt-get install rabbitmq-server")
        return self.service(RabbitMQContainer, "rabbitmq:3.10")

    def volume(self, content):
        volume = self.client.volumes.create(f"shared-{uuid.uuid4()}")
        self._stack.callback(volume.remove, True)
        _populate_volume(self.client, volume, content)
        return volume


@contextmanager
def engine(docker_client, node_image):
    with ExitStack() as stack:
        yield Engine(docker_client, node_image, stack)


@contextmanager
def cluster(engine, tasks, *, workers, conf=None, broker=None, queue=None):
    """
    A running cluster in the form that ``celery_setup`` has; its *spawn* starts further workers.

    Args:
        engine: What its containers are made by.
        tasks: The module with the tasks.
        workers: The options of each worker (``pool``, ``concurrency``).
        conf: Settings of the app.
        broker: A RabbitMQ that runs; None: a Redis of its own.
        queue: The default queue, for those who share a broker.
    """
    brokers = CeleryBrokerCluster(
        RedisTestBroker(engine.redis()) if broker is None else RabbitMQTestBroker(broker)
    )
    backends = CeleryBackendCluster(RedisTestBackend(engine.redis()))
    config = {
        "celery_broker_cluster_config": brokers.config(),
        "celery_backend_cluster_config": backends.config(),
    }
    before = _state._tls.current_app
    app = CeleryTestSetup.create_setup_app(CeleryTestSetup.config(config), CeleryTestSetup.name())
    app.conf.update(conf or {})
    kind = NodeContainer
    if queue is not None:
        app.conf.task_default_queue = queue
        kind = type(
            "NodeContainer", (NodeContainer,), {"worker_queue": staticmethod(lambda: queue)}
        )
    module = ModuleType("nodeapp")
    module.__file__ = str(Path(support.__file__).with_name("nodeapp.py"))
    volume = engine.volume(
        kind.initial_content(
            worker_tasks={tasks, *kind.tasks_modules()}, worker_app=app, app_module=module
        )
    )

    def spawn(*workers):
        boxes = [
            engine.run(
                kind,
                engine.image.id,
                command=kind.command(**options),
                environment=kind.initial_env(config),
                volumes={volume.name: DEFAULT_WORKER_VOLUME},
            )
            for options in workers
        ]
        for box in boxes:
            poll(lambda box=box: Container.ready(box) and box.boots() > 0, 60, f"{box.name} is up")
        return [Node(box, app=app) for box in boxes]

    setup = CeleryTestSetup(CeleryWorkerCluster(*spawn(*workers)), brokers, backends, app)
    setup.spawn = spawn
    _state._set_current_app(before)
    yield setup
    app.close()


@contextmanager
def current(setup):
    """The app of *setup* is the current one."""
    before = _state._tls.current_app
    setup.app.set_current()
    yield setup
    _state._set_current_app(before)

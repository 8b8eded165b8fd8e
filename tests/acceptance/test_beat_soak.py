"""
Beats through minutes of faults: every tick of every entry is sent, and none runs twice.

    pytest -m soak tests/acceptance/test_beat_soak.py

SOAK_MINUTES (10) and SOAK_SEED (0) change how long, and which faults.
"""

import os
import random
import time

import pytest
from pytest_celery import CeleryBrokerCluster
from support import beat_tasks
from support.beat_record import check, complete_again, quiet
from support.beat_tasks import MANY_SLOTS
from support.nodes import BeatContainer, NodeContainer, ended

from celery_atomicity import clock
from celery_atomicity.testing import wait_until

MINUTES = float(os.environ.get("SOAK_MINUTES", "10"))
SEED = int(os.environ.get("SOAK_SEED", "0"))

FAN = {"first sweep": MANY_SLOTS, "second sweep": MANY_SLOTS}
SCHEDULE = {f"entry {n}": 1 + n % 5 for n in range(200)} | {"first sweep": 3, "second sweep": 5}

# The longest that anything may be late: two faults in a row, each to be noticed and settled.
LONGEST = 60.0

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(MINUTES * 60 + 600),
    pytest.mark.cluster(workers=2, concurrency=3),
]


@pytest.fixture
def default_worker_tasks(default_worker_tasks):
    return default_worker_tasks | {beat_tasks}


@pytest.fixture
def default_worker_env(default_worker_env, notes_server):
    return default_worker_env | {beat_tasks.NOTES: notes_server.url}


@pytest.fixture
def interval():
    return 0.5


VISIBILITY = 20.0  # seconds


@pytest.fixture
def transport_options():
    """A worker that is killed in the end, with messages it had fetched, gives them back soon."""
    return {
        "visibility_timeout": VISIBILITY,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }


@pytest.fixture
def default_worker_app(default_worker_app, interval, transport_options):
    default_worker_app.conf.update(
        broker_transport_options=transport_options,
        atomicity_interval=interval,
        atomicity_timeout=0.2,
        # Else each start of a broker would be waited for twice as long as the one before.
        broker_connection_retry_on_startup=True,
        beat_schedule={
            name: {
                "task": f"{beat_tasks.__name__}.{'wide_sweep' if name in FAN else 'tick'}",
                "schedule": float(every),
            }
            for name, every in SCHEDULE.items()
        },
    )
    return default_worker_app


DURABLE = ["redis-server", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]


@pytest.fixture
def default_redis_backend_command():
    """It is the arbiter too, and what it acknowledged survives a restart."""
    return DURABLE


@pytest.fixture
def default_redis_broker_command():
    return DURABLE


class Storm:
    """Faults one after the other, by chance, and how many there were of each."""

    def __init__(self, nodes, ticks, faults):
        self.nodes = nodes
        self.ticks = ticks
        self.others = faults
        self.chance = random.Random(SEED)
        self.counts = {}

    def blow(self, seconds):
        until = clock.monotonic() + seconds
        bag = []
        while clock.monotonic() < until:
            if not bag:
                bag = [*["kill", "term", "freeze"] * 3, *self.others]
                self.chance.shuffle(bag)
            kind = bag.pop()
            self.counts[kind] = self.counts.get(kind, 0) + 1
            if kind in self.others:
                self.others[kind]()
            else:
                getattr(self, kind)(self.chance.choice(self.nodes))
            quiet(self.ticks, self.chance.uniform(1, 5))

    def kill(self, node, signal="SIGKILL"):
        node.kill(signal)
        quiet(self.ticks, self.chance.uniform(0, 4))
        node.restart()

    def term(self, node):
        self.kill(node, "SIGTERM")

    def freeze(self, node):
        node.freeze()
        quiet(self.ticks, self.chance.uniform(0.2, 8))
        node.thaw()


def all_done(app):
    """Whether nothing of long ago still waits at the broker, or has yet to come again."""
    with app.connection_for_read() as connection:
        client = connection.default_channel.client
        oldest = client.zrange("unacked_index", 0, 0, withscores=True)
        waiting = client.llen("celery")
        return waiting < len(SCHEDULE) and (not oldest or oldest[0][1] > time.time() - VISIBILITY)


def run(ticks, storm, capsys, done=lambda: True):
    complete_again(ticks, SCHEDULE, FAN, timeout=60)
    storm.blow(MINUTES * 60)
    complete_again(ticks, SCHEDULE, FAN, timeout=90)
    # Workers on a busy machine may be minutes behind, and what they lost comes again late.
    wait_until(done, 300, "the workers have caught up")
    quiet(ticks, VISIBILITY + 5)

    lateness, again = check(ticks, SCHEDULE, longest=LONGEST, slots=FAN, redelivers=True)

    parts = {part: lateness[int(part * (len(lateness) - 1))] for part in (0.5, 0.9, 0.99, 1.0)}
    late = ", ".join(f"{part:.0%}: {seconds:.2f} s" for part, seconds in parts.items())
    with capsys.disabled():
        print(f"\n{len(lateness)} ticks, {again} redelivered; {storm.counts}; late {late}")


# BEAT-01, BEAT-02, BEAT-03, BEAT-06, BEAT-08
def test_three_beats(celery_setup, spawn, ticks, capsys):
    workers = list(celery_setup.worker_cluster)

    def broker():
        # Without its workers: kombu takes a message off a Redis before it keeps it anywhere else,
        # and so loses those that are on their way when the server goes.
        for worker in workers:
            worker.kill("SIGTERM")
        for worker in workers:
            # An acknowledgment that is cut off is a message that comes again. A prefork child of
            # Celery's waits up to 30 s for a result to be read that nobody reads any more.
            wait_until(lambda worker=worker: ended(worker), 60, "the worker ends")
        celery_setup.broker_cluster[0].restart(force=True)
        for worker in workers:
            worker.restart()

    storm = Storm(
        spawn(BeatContainer, 3, "-S", "atomicity"),
        ticks,
        {"arbiter": lambda: celery_setup.backend_cluster[0].restart(force=True), "broker": broker},
    )

    run(ticks, storm, capsys, lambda: all_done(celery_setup.app))


class TestEmbedded:
    """In workers of a queue that nothing is sent to: what is killed is a beat, and no task."""

    WORKERS = 10

    @pytest.fixture
    def interval(self):
        return 1.0  # so many on two cores are late by more than the half of it

    @pytest.fixture
    def transport_options(self):
        return {}

    @pytest.fixture
    def celery_broker_cluster(self, celery_rabbitmq_broker):
        return CeleryBrokerCluster(celery_rabbitmq_broker)

    # BEAT-01, BEAT-02, BEAT-03, BEAT-06, BEAT-08
    def test_embedded_in_workers(self, celery_setup, spawn, ticks, capsys):
        nodes = spawn(
            NodeContainer, self.WORKERS, "-B", "-S", "atomicity", "-Q", "idle", pool="solo"
        )
        storm = Storm(
            nodes,
            ticks,
            {
                "arbiter": lambda: celery_setup.backend_cluster[0].restart(force=True),
                # Under its workers, which get again what they had not acknowledged.
                "broker": lambda: celery_setup.broker_cluster[0].restart(force=True),
            },
        )

        run(ticks, storm, capsys)

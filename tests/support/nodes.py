"""Celery nodes of a test's cluster, on processes and on Docker alike."""

import pytest
from pytest_celery import RESULT_TIMEOUT, CeleryTestWorker, CeleryWorkerContainer
from pytest_docker_tools.exceptions import TimeoutError as NotInTime

from celery_atomicity.testing import wait_until

#: Where an item of pytest keeps the containers whose logs its failure shows.
NODES = pytest.StashKey[list]()


def poll(condition, timeout, what):
    """Wait for *condition*, and fail as pytest-celery's own asserts expect of a wait."""
    try:
        return wait_until(condition, timeout, what)
    except AssertionError as error:
        raise NotInTime(str(error)) from None


def answering(app, nodes):
    """Whether just these workers answer; ``celery_setup.ready(control=True)`` is true of none."""
    names = {node.hostname() for node in nodes}
    # As soon as so many have answered, nobody waits any longer.
    answers = app.control.ping(timeout=1, limit=len(names))
    return {name for answer in answers for name in answer} == names


def ended(node):
    """Whether the process of *node* has ended."""
    node.container.reload()
    return node.container.status == "exited"


def everything_at_work(app, nodes):
    """The ids of all tasks that these workers run, or have fetched to run."""
    found = set()
    for kind in ("active", "reserved", "scheduled"):
        answers = app.control.broadcast(kind, reply=True, timeout=10, limit=len(nodes))
        assert len(answers) == len(nodes), answers
        for answer in answers:
            for tasks in answer.values():
                found |= {task.get("request", task)["id"] for task in tasks}
    return found


class NodeContainer(CeleryWorkerContainer):
    """A worker with a pool of one on the default queue, unless told otherwise."""

    @classmethod
    def command(cls, *arguments, pool="prefork", concurrency=1, queue=None, **_options):
        # Mingling costs each worker a second at its start.
        own = ["--without-mingle", "--without-gossip", "-P", pool, "-c", str(concurrency)]
        if queue is not None:
            own += ["-Q", queue]
        if {"-B", "--beat"} & set(arguments):
            # Nodes share their directory, but not what their beats remember.
            own += ["-s", "/tmp/beat"]
        return super().command(*own, *arguments)

    def boots(self):
        return self.logs().count(self.ready_prompt)

    def restart(self, timeout=10):
        before = self.boots()
        # Comes back at once: what the first boot logged is still there.
        super().restart(timeout)
        poll(lambda: self.boots() > before, 30, f"{self.name} is back")


class BeatContainer(NodeContainer):
    """A stand-alone beat."""

    ready_prompt = "beat: Starting..."

    @classmethod
    def command(cls, *arguments, **_options):
        own = ["--loglevel=INFO", "--pidfile=", "--schedule=/tmp/beat"]
        return ["celery", "-A", "app", "beat", *own, *arguments]


class Node(CeleryTestWorker):
    """A running worker or beat."""

    def freeze(self):
        """Stop all its processes in their tracks; it can be killed, or go on by `thaw`."""
        self.container._container.pause()

    def thaw(self):
        self.container._container.unpause()

    def kill(self, signal="SIGKILL", reload_container=True):
        # Upstream leaves all alone that is not running, and so a frozen node.
        if self.container.status == "paused":
            self.container.kill(signal=signal)
            self.container.reload()
        super().kill(signal, reload_container)

    def wait_for_log(self, log, message="", timeout=RESULT_TIMEOUT):
        # Upstream looks once a second.
        poll(lambda: log in self.logs(), timeout, message or f"{self.name()} logs {log!r}")

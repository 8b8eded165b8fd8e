"""Beats that a test drives by hand: on a clock of its own, owning what it says."""

import json
from base64 import b64decode
from datetime import datetime, timedelta, timezone

from celery import Celery
from kombu import Connection

from celery_atomicity import Atomicity
from celery_atomicity.integration.beat.copies import HEADER, admits
from celery_atomicity.primitives.membership import Assignment

UTC = timezone.utc
START = datetime(2024, 3, 1, 12, 0, 30, tzinfo=UTC)


class Owner:
    """In place of a replica: owns what the test says, and everything at first."""

    def __init__(self, *_of_a_replica):
        self.assignment = Assignment(0, 1)
        self.name = "owner"
        self.nap = 86_400.0
        self.orphaned = False
        self.open_ = False
        self.changes = 1
        self.asked = None  # called at each question whose a unit is

    def assign(self, assignment):
        self.assignment = assignment
        self.changes += 1

    def open(self):
        self.open_ = True

    def close(self):
        self.open_ = False
        self.assign(None)

    def feed(self): ...

    def heed(self, *, stand_down): ...

    def changed(self):
        changes, self.changes = self.changes, 0
        return changes > 0

    @property
    def assigned(self):
        return self.assignment is not None

    def owns(self, unit):
        if self.asked is not None:
            self.asked(unit)
        return self.assignment is not None and self.assignment.owns(unit.place[0])

    def owned(self, total):
        return self.assignment.slots(total) if self.assignment else []


class Clock:
    """The present of an app."""

    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now

    def forward(self, seconds):
        self.now += timedelta(seconds=seconds)


class Sent:
    """A message, as its worker gets it."""

    def __init__(self, raw):
        body, headers = raw["body"], raw["headers"]
        self.id = headers["id"]
        self.task = headers["task"]
        self.headers = headers
        self.args, self.kwargs, _ = json.loads(b64decode(body))
        self.copy = headers[HEADER]["copy"]
        self.due = datetime.fromisoformat(headers["atomicity_due"])
        self.slot = headers.get("atomicity_slot")

    def __repr__(self):
        return f"<{self.task} {self.slot} due {self.due:%H:%M:%S.%f}>"


def app_of(name, server, group, *, broker=None, clock=None, **conf):
    """An app on *server*, whose present is *clock*; its queue is on the server as well."""
    app = Celery(name, broker=broker or server.url, set_as_current=False)
    app.conf.update(
        atomicity_redis=server.url,
        atomicity_group=group,
        atomicity_timeout=0.3,
        task_default_queue=f"queue-{group}",
        broker_transport_options={"socket_timeout": 1},
        result_expires=None,
        **conf,
    )
    if clock is not None:
        app.now = clock
    Atomicity(app)
    return app


class Driver:
    """
    Ticks a *scheduler* and moves its *clock* by what that says, from one look to the next.
    """

    def __init__(self, scheduler, clock):
        self.scheduler = scheduler
        self.clock = clock

    def run(self, seconds, limit=10_000):
        """Let that many seconds go by."""
        until = self.clock.now + timedelta(seconds=seconds)
        for _ in range(limit):
            delay = self.scheduler.tick()
            if delay and self.clock.now + timedelta(seconds=delay) > until:
                self.clock.now = until
                return
            self.clock.forward(delay)
        raise AssertionError("the scheduler does not advance")

    def settle(self, limit=1_000):
        """Do all that is to be done now."""
        for _ in range(limit):
            if self.scheduler.tick():
                return
        raise AssertionError("the scheduler finds no rest")


class Queue:
    """What was sent and not looked at yet."""

    def __init__(self, app, url):
        self.app = app
        self.url = url

    def take(self):
        """All of it, in the order it was sent in."""
        found = []
        with Connection(self.url) as connection:
            client = connection.default_channel.client
            while (raw := client.rpop(self.app.conf.task_default_queue)) is not None:
                found.append(Sent(json.loads(raw)))
        return found


def ran(app, messages):
    """Those of *messages* that a worker of *app* runs."""
    clients = Atomicity.of(app).clients
    return [message for message in messages if admits(clients, message.headers[HEADER])]

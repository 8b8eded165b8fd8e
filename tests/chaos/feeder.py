"""Gives the fleet work, from a thread of its own."""

import random
import threading
from contextlib import suppress

from celery import Celery

from chaos.stage import KEYS

# Messages in the queue beyond which no more are sent: the fleet may be down.
FULL = 60

# Seconds between two that are sent.
PAUSE = 0.05


class Feeder:
    """As a context manager it sends for the body of the ``with``."""

    def __init__(self, stage, seed):
        self.stage = stage
        self.chance = random.Random(seed)
        self.app = Celery("feeder", broker=stage.broker.url, set_as_current=False)
        self.app.conf.broker_transport_options = {**stage.broker.transport, "socket_timeout": 1}
        self._producer = self._connection = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(10)
        self.close()

    def close(self):
        self._drop()

    def send(self, name, *args):
        """Send one message; whether there was a broker to take it."""
        try:
            if self._producer is None:
                self._connection = self.app.connection_for_write()
                self._producer = self.app.amqp.Producer(self._connection)
            self.app.send_task(f"chaos.{name}", args, producer=self._producer, retry=False)
        except Exception:  # noqa: BLE001 - whatever a broker that is down comes to
            self._drop()
            return False
        return True

    def _drop(self):
        if self._connection is not None:
            with suppress(Exception):
                self._connection.collapse()
        self._producer = self._connection = None

    def _run(self):
        while not self._stop.wait(PAUSE * self.chance.uniform(0.5, 1.5)):
            with suppress(Exception):
                if self.stage.broker.waiting() > FULL:
                    continue
            self._give()

    def _give(self):
        kind = self.chance.random()
        if kind < 0.5:
            # Now and then more than the limit allows.
            for _ in range(20 if self.chance.random() < 0.02 else 1):
                self.send("paced")
        elif kind < 0.57:
            self.send("tenant", self.chance.choice("xyz"))
        elif kind < 0.9:
            conflict = self.chance.choice(("wait", "wait", "retry", "skip"))
            self.send(f"hold_{conflict}", self.chance.choice(KEYS), self._length())
        else:
            self.send("hold_both", self.chance.sample(KEYS, 2), self._length())

    def _length(self):
        """For how long to hold: sometimes for longer than one ttl."""
        kind = self.chance.random()
        if kind < 0.7:
            return self.chance.uniform(0.0, 0.1)
        if kind < 0.9:
            return self.chance.uniform(0.1, 0.4)
        return self.chance.uniform(1.1, 2.0) * self.stage.ttl

"""Virtual time in place of the clocks, and greenlets in place of threads, for the code of locks."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from types import SimpleNamespace
from unittest import mock

from celery_atomicity import clock
from celery_atomicity.primitives import acquisition, keeper

EPOCH = 1_700_000_000.0


class _Threads:
    """As much of *celery_atomicity.threads* as the keeper needs, in virtual time."""

    def __init__(self, world):
        self.world = world

    def start(self, _name, function, *arguments):
        self.world.spawn(self.world.current().process, function, *arguments)

    def Waiting(self):
        return _Waiting(self.world)

    def Changes(self):
        return _Changes(self.world)


class _Lock:
    def __init__(self, world):
        self.world, self.owner, self.queue = world, None, []

    def __enter__(self):
        while self.owner is not None and not self.world.over:
            self.queue.append(self.world.current())
            self.world.block(None)
        self.owner = self.world.current()

    def __exit__(self, *_):
        self.owner = None
        queue, self.queue = self.queue, []
        for task in queue:
            self.world.wake(task)


class _Waiting:
    def __init__(self, world):
        self.world, self.woken, self.waiter = world, False, None

    def wait(self, seconds):
        if not self.woken:
            self.waiter = self.world.current()
            self.world.block(None if math.isinf(seconds) else seconds)
        self.waiter, self.woken = None, False

    def wake(self):
        self.woken = True
        if self.waiter is not None:
            self.world.wake(self.waiter)


class _Changes:
    def __init__(self, world):
        self.world, self.queue = world, []

    def tell(self):
        queue, self.queue = self.queue, []
        for task in queue:
            self.world.wake(task)

    def wait_for(self, predicate, seconds):
        deadline = self.world.now + seconds
        while not predicate() and self.world.now < deadline:
            self.queue.append(self.world.current())
            self.world.block(deadline - self.world.now)
        return predicate()


@contextlib.contextmanager
def played(world):
    """Put virtual time in place of the clocks, and greenlets in place of threads."""
    # What a thread left by another test does is none of ours.
    thread = threading.get_ident()
    real = SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep)

    def sleep(seconds):
        (world.block if threading.get_ident() == thread else real.sleep)(seconds)

    likely, longest = world.history.stutter
    dice = world.chance.random

    def monotonic():
        if threading.get_ident() != thread:
            return real.monotonic()
        task = world.current()
        if task is None:
            return EPOCH + world.now
        reading = task.process.clock()
        if likely and not world.over and dice() < likely:
            world.block(dice() * longest)
        return reading

    fakes = SimpleNamespace(uniform=world.chance.uniform)

    def new_id():
        return f"{world.chance.getrandbits(128):032x}"

    logging.disable(logging.CRITICAL)
    try:
        with (
            mock.patch.multiple(
                clock,
                monotonic=monotonic,
                sleep=sleep,
                wall=lambda: EPOCH,
                utc=lambda _: "then",
            ),
            mock.patch.object(keeper, "threading", SimpleNamespace(Lock=lambda: _Lock(world))),
            mock.patch.object(keeper, "threads", _Threads(world)),
            mock.patch.object(keeper, "_every", set()),
            mock.patch.object(acquisition, "random", fakes),
            mock.patch.object(acquisition, "new_id", new_id),
        ):
            yield
    finally:
        logging.disable(logging.NOTSET)

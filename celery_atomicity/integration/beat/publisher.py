"""Publishing by a scheduler of Celery's, with an account of whether it was done."""

from __future__ import annotations

from enum import Enum
from typing import Any

from kombu.exceptions import OperationalError

from celery_atomicity import clock, events

# The longest pause between two tries of a broker that is away; the first one follows at once.
LONGEST_PAUSE = 5.0  # seconds

# How long one answer of a Redis broker is waited for.
PATIENCE = 10.0  # seconds


class Published(Enum):
    """What became of a message."""

    YES = "published"
    AWAY = "there is no broker to be connected to, so it was not sent"
    DOUBTFUL = "the connection broke, before or after the broker had it"
    REFUSED = "something is wrong with this message"


class Publisher:
    """
    Publishes what *scheduler* would, by its own methods, so that what hooks into them goes on.

    Those log what was raised and keep it to themselves; so the scheduler tells `refused` of it.
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.error: BaseException | None = None
        self._failures = 0
        self._resume = 0.0  # on clock.monotonic

    @property
    def pause(self) -> float:
        """Seconds for which the broker is left alone."""
        return max(0.0, self._resume - clock.monotonic())

    def refused(self, error: BaseException) -> None:
        """Publishing raised *error*."""
        # The scheduler wraps what it got in an error of its own.
        self.error = error.__cause__ or error.__context__ or error

    def publish(self, message: Any) -> Published:
        """Publish the message of an entry; blocks for as long as the broker's client does."""
        self.error = None
        failed = Published.DOUBTFUL
        try:
            producer = self.scheduler.producer
        except Exception as error:  # noqa: BLE001 - whatever a transport raises
            events.broker_away.tell(error=error)
            self.error = error
            failed = Published.AWAY
        else:
            self.scheduler.apply_entry(message, producer=producer)
        if self.error is None:
            self._failures = 0
            return Published.YES
        # Whatever it was, the connection is no longer trusted.
        self.disconnect()
        if not isinstance(self.error, OperationalError | OSError):
            return Published.REFUSED
        # Also ends the pass that met it, so that a broker that hangs is met once in each.
        pause = min(LONGEST_PAUSE, 2.0 ** (self._failures - 1)) if self._failures else 0.001
        self._failures = min(self._failures + 1, 16)
        self._resume = clock.monotonic() + pause
        return failed

    def disconnect(self) -> None:
        """Drop the connection; the next message makes another."""
        self.scheduler.__dict__.pop("producer", None)
        connection = self.scheduler.__dict__.pop("connection", None)
        if connection is not None:
            # Without a farewell: the other end may not answer.
            connection.collect()


def connect(connection: Any) -> Any:
    """
    Connect to the first broker that answers, trying each of them.

    Celery's beat tries a hundred times. A loop that waits for its broker would look as if it had
    stalled; this one looks again in its next pass.

    Published is what a broker has said that it has: RabbitMQ is asked to say so, where otherwise
    all that is written to a connection counts, though nobody may be there to read it. And a Redis
    that hangs is given up some time, also by clients that would wait for ever. What
    ``broker_transport_options`` say goes first.
    """
    options, transport = connection.transport_options, connection.transport
    if transport.driver_name == "py-amqp":
        options.setdefault("confirm_publish", True)
    elif transport.driver_type == "redis":
        options.setdefault("socket_timeout", PATIENCE)
    return connection.ensure_connection(
        max_retries=max(1, len(connection.alt)), interval_start=0, interval_step=0
    )

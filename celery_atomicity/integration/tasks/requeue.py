"""
Giving a task back to its queue, to come again later as if nothing had happened.

That is no retry: what comes again is the same message, with a time before which it is not to run.
The copy is published first and the task then ends itself as ignored: the original is acknowledged
like any other, early or late, and nothing is stored, counted or called in its name. A worker that
dies in between leaves two copies, of which each does what one that is redelivered does.

A worker that gets a message before its time holds it unacknowledged. A broker takes one for lost
that is held for too long, so a long way is gone in hops. Where Celery is set up for RabbitMQ's own
delayed delivery (quorum queues), that holds it, the whole way and outside of any worker.
"""

from __future__ import annotations

import re
import threading
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NoReturn

from celery import states
from celery.exceptions import Ignore
from kombu import Exchange
from kombu.exceptions import EncodeError, OperationalError
from kombu.serialization import registry

from celery_atomicity import clock, events

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from celery import Celery

#: Seconds of the longest hop. RabbitMQ closes the channel on a message held for half an hour.
HOP = 900.0

#: A hop's share of the time after which a broker delivers again what a worker holds: the rest is
#: for waiting in front of the pool, and for running.
SHARE = 1 / 3

#: The header of a message that is on its way in hops: when its time comes, in seconds since the
#: epoch.
PLACE = "atomicity_place"

#: Seconds before its time that a task may come and is not sent on.
EARLY = 0.02

#: Seconds to wait for a broker that cannot be reached, at first and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 10.0

#: RabbitMQ's own delayed delivery: where it begins, and how it writes a delay into a routing key.
_DELAYED_EXCHANGE = "celery_delayed_27"
_DELAYS = re.compile(r"\A(?:[01]\.){28}")

#: What a sender may have set on the message itself.
_PROPERTIES = ("priority", "delivery_mode", "app_id", "user_id", "type", "MessageGroupId")

#: RabbitMQ's own notes on where a message has been; it would take the copy for one in a circle.
_TRAVELS = ("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason")


class GivenBack(Ignore):
    """Ends an execution whose task comes again later."""


def give_back(task: Any, seconds: float, *, headers: Mapping[str, Any] | None = None) -> NoReturn:
    """
    End the execution of *task* that a worker is in, and let its message come again.

    Everything else about the message stays as it was: id, arguments, retries, parent, root, group,
    chord, chain, callbacks, queue, priority, headers, expiry and time limits. Blocks for
    publishing, and while the broker cannot be reached: to end without a copy would lose the task.

    Args:
        task: The running task, with its request.
        seconds: How long until it is to run again.
        headers: Put into the message, in place of those of the same name; None takes one out.

    Raises:
        GivenBack: Always; not for the task's own code to catch.
        EncodeError: The arguments cannot be written; nothing was published.
    """
    request = task.request
    due = clock.monotonic() + seconds
    pause = 0.0
    while True:
        try:
            _publish(task, request, max(0.0, due - clock.monotonic()), headers or {})
            break
        except (OperationalError, OSError) as error:
            if not pause:
                events.queue_away.tell(task=task.name, task_id=request.id, reason=str(error))
            pause = min(_LONGEST_PAUSE, pause * 2) or _FIRST_PAUSE
            clock.wait(threading.Event(), pause)
    if task.track_started and not _ignores_result(request, task):
        task.backend.store_result(request.id, None, states.PENDING, request=request)
    raise GivenBack(f"comes again in {seconds:.3f} s")


def send_on(task: Any) -> None:
    """
    Give *task* back if it has come before its time, at a hop; else do nothing.

    Raises:
        GivenBack: It was given back.
    """
    place = (task.request.headers or {}).get(PLACE)
    if isinstance(place, (int, float)):
        left = place - clock.wall()
        if left > EARLY:
            give_back(task, left)


def may_be_given_back(task: Any) -> bool:
    """Whether the running task has a queue of its own: what was broadcast would reach everybody."""
    exchange = (task.request.delivery_info or {}).get("exchange")
    return not exchange or not any(
        queue.exchange and queue.exchange.name == exchange and queue.exchange.type == "fanout"
        for queue in task.app.amqp.queues.values()
    )


def seconds_left(task: Any) -> float | None:
    """Seconds until the running task expires; None if it does not."""
    expires = task.request.expires
    if isinstance(expires, str):
        expires = datetime.fromisoformat(expires.replace("Z", "+00:00"))
    if not isinstance(expires, datetime):
        return None
    if expires.tzinfo is None:
        expires = expires.replace(tzinfo=task.app.timezone)
    return (expires - datetime.now(timezone.utc)).total_seconds()


def _publish(task: Any, request: Any, seconds: float, headers: Mapping[str, Any]) -> None:
    app = task.app
    own = {name: value for name, value in (request.headers or {}).items() if name not in _TRAVELS}
    own.update(headers)
    own.pop(PLACE, None)
    route = _route(app, request, seconds)
    if "native" not in route and seconds > (longest := _longest_hop(app)):
        own[PLACE] = clock.wall() + seconds
        seconds = longest
    route.pop("native", None)
    options: dict[str, Any] = {
        name: value
        for name in _PROPERTIES
        if (value := (request.properties or {}).get(name)) is not None
    }
    if (left := seconds_left(task)) is not None:
        options["expiration"] = max(0.0, left)
    own = {name: value for name, value in own.items() if value is not None}
    with app.producer_or_acquire() as producer:
        for serializer in _serializers(task, request):
            try:
                with producer.connection._reraise_as_library_errors():  # noqa: SLF001 - as Celery's own
                    app.amqp.send_task_message(
                        producer,
                        task.name,
                        _message(task, request, seconds),
                        headers=own,
                        serializer=serializer,
                        compression=getattr(request, "compression", None),
                        **route,
                        **options,
                    )
            except EncodeError as error:
                failed = error
            else:
                return
    raise failed


def _message(task: Any, request: Any, seconds: float) -> Any:
    """The message of *request*, to run in so many *seconds*."""
    hard, soft = request.timelimit or (None, None)
    stamps = {name: (request.stamps or {}).get(name) for name in request.stamped_headers or ()}
    return task.app.amqp.as_task_v2(
        request.id,
        task.name,
        request.args,
        request.kwargs,
        countdown=seconds,
        group_id=request.group,
        group_index=request.group_index,
        expires=request.expires,
        retries=request.retries,
        chord=request.chord,
        callbacks=request.callbacks,
        errbacks=request.errbacks,
        reply_to=request.reply_to,
        time_limit=hard,
        soft_time_limit=soft,
        root_id=request.root_id,
        parent_id=request.parent_id,
        shadow=request.shadow,
        chain=request.chain,
        origin=request.origin,
        ignore_result=vars(request).get("ignore_result"),
        argsrepr=getattr(request, "argsrepr", None),
        kwargsrepr=getattr(request, "kwargsrepr", None),
        stamped_headers=request.stamped_headers,
        replaced_task_nesting=request.replaced_task_nesting,
        **stamps,
    )


def _route(app: Celery, request: Any, seconds: float) -> dict[str, Any]:
    """Where the message came from; with *native* in it, by way of the broker's own delay."""
    info = request.delivery_info or {}
    exchange, key = info.get("exchange") or "", info.get("routing_key") or ""
    if seconds >= 1 and _has_native_delay(app):
        from kombu.transport.native_delayed_delivery import (  # noqa: PLC0415 - kombu 5.5
            calculate_routing_key,
        )

        queue = None if exchange else app.amqp.queues[key]
        if queue is None or queue.exchange.type != "direct":
            key = _DELAYS.sub("", key) if queue is None else queue.routing_key
            return {
                "exchange": Exchange(_DELAYED_EXCHANGE, type="topic"),
                "routing_key": calculate_routing_key(int(seconds), key),
                "native": True,
            }
    if not exchange:
        return {"queue": key} if key else {}
    return {"exchange": exchange, "routing_key": key, "exchange_type": "topic"}


def _has_native_delay(app: Celery) -> bool:
    try:
        from celery.utils.quorum_queues import detect_quorum_queues  # noqa: PLC0415 - Celery 5.5
    except ImportError:
        return False
    driver = app.producer_pool.connections.connection.transport.driver_type
    return bool(detect_quorum_queues(app, driver)[0])


def visibility_timeout(app: Celery) -> float | None:
    """
    Seconds after which the broker of *app* delivers again what a worker holds; None: it does not.

    Connects to nothing.
    """
    options = app.conf.broker_transport_options or {}
    timeout = options.get("visibility_timeout")
    if timeout is None:
        channel = getattr(app.producer_pool.connections.connection.transport, "Channel", None)
        timeout = getattr(channel, "visibility_timeout", None)
        if not isinstance(timeout, (int, float)):
            timeout = getattr(channel, "default_visibility_timeout", None)
    return None if timeout is None else float(timeout)


def _longest_hop(app: Celery) -> float:
    """Seconds that a worker may hold a message before its time."""
    timeout = visibility_timeout(app)
    return HOP if timeout is None else min(HOP, timeout * SHARE)


def _serializers(task: Any, request: Any) -> Iterator[Any]:
    """How the copy may be written: as the original was, if that is known, else as it can be."""
    known = registry.type_to_name.get((request.properties or {}).get("content_type"))
    if known:
        yield known
    yield task.serializer
    yield from task.app.conf.accept_content or ()


def _ignores_result(request: Any, task: Any) -> bool:
    ignored = vars(request).get("ignore_result")
    return bool(task.ignore_result if ignored is None else ignored)

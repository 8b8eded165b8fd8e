"""
The copies of a tick's message: what beat writes on them, and how workers run one of several.

A beat that dies between publishing and recording leaves a tick that is sent again. Both messages
have the same task id, and each says which copy it is. A retry, a redelivery or a task that waits
for its turn is the same copy again, and runs.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from celery_atomicity.connection import Script
from celery_atomicity.integration.beat.due import Unit, tick_id
from celery_atomicity.integration.beat.instants import when
from celery_atomicity.integration.beat.ledger import DOUBT_LIFE, copy_key, record_key

if TYPE_CHECKING:
    from celery_atomicity.connection import Clients
    from celery_atomicity.integration.beat.partitioned import Fan
    from celery_atomicity.integration.beat.plan import Due

#: The header that says which tick a message is, and which copy of it.
HEADER = "atomicity_beat"

_ADMIT = Script("beat_admit")


def copy_of(entry: Any, due: Due, fan: Fan | None, group: str, copy: str) -> Any:
    """An entry as *entry*, whose message is this *copy* of the tick that is *due*."""
    unit = due.unit
    headers = {
        **(entry.options.get("headers") or {}),
        "atomicity_due": when(due.tick.due, datetime.now(timezone.utc)).isoformat(),
        HEADER: {
            "group": group,
            "entry": unit.entry,
            "slot": unit.slot,
            "last": str(due.last),
            "copy": copy,
        },
    }
    kwargs = entry.kwargs
    if unit.slot is not None and fan is not None:
        headers["atomicity_slot"] = unit.slot
        kwargs = {**(kwargs or {}), fan.argument: unit.slot}
    # A publish that kombu repeats by itself is the same copy twice; ours is another one. So it is
    # whatever the entry says: beat tries again until the broker has it.
    options = {**entry.options, "retry": False, "headers": headers}
    options["task_id"] = tick_id(group, unit, due.last)
    # Entries say how to be pickled, not how to be copied.
    message = object.__new__(type(entry))
    message.__dict__.update(entry.__dict__, kwargs=kwargs, options=options)
    return message


def admits(clients: Clients, tick: dict[str, Any]) -> bool:
    """
    Whether the copy of *tick* at hand is the one that runs.

    Raises:
        Unavailable: The arbiter cannot be asked.
    """
    slot = tick["slot"]
    unit = Unit(tick["entry"], None if slot is None else int(slot))
    group, last = tick["group"], tick["last"]
    keys = [copy_key(group, tick_id(group, unit, int(last))), record_key(group, unit.entry)]
    reply = clients.ask(_ADMIT, keys, [unit.field, last, tick["copy"], DOUBT_LIFE])
    return reply.value == 1

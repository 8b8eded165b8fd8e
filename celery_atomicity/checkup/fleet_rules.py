"""What the facts of all addresses, the settings and the broker mean: pure."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from celery_atomicity.checkup.findings import Finding, Level
from celery_atomicity.checkup.server_rules import is_usable, judge_server
from celery_atomicity.primitives import quorum
from celery_atomicity.primitives.holding import RENEWAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery_atomicity.checkup.facts import BrokerFacts, Facts
    from celery_atomicity.settings import Settings

# Seconds by which the clocks of two servers, or a server's and ours, may differ.
APART = 1.0

# Intervals within which others have taken over from a beat that died.
TAKEOVER = 5

SETTINGS, BROKER = "settings", "broker"


def judge(facts: Facts) -> list[Finding]:
    """Everything that is to be said: of the settings, each address, and the broker."""
    return [
        *_settings(facts.settings),
        *_majority(facts),
        *(finding for server in facts.servers for finding in judge_server(server, facts.settings)),
        *_clocks(facts),
        *_twins(facts),
        *_broker(facts.broker),
    ]


def _settings(settings: Settings) -> Iterator[Finding]:
    found = list(_misfits(settings))
    yield from found
    if not found:
        yield Finding(
            SETTINGS,
            Level.OK,
            "settings",
            f"interval {settings.interval:g} s, lock ttl {settings.lock_ttl:g} s, timeout "
            f"{settings.timeout:g} s and restart grace {settings.grace:g} s fit each other",
        )


def _misfits(settings: Settings) -> Iterator[Finding]:
    for warning in settings.warnings():
        said, _, remedy = warning.partition("; ")
        yield Finding(SETTINGS, Level.WARNING, "interval", said, remedy.rstrip("."))
    if settings.grace < settings.lock_ttl:
        how = "is off" if settings.grace == 0 else f"({settings.grace:g} s)"
        yield Finding(
            SETTINGS,
            Level.WARNING,
            "grace",
            f"atomicity_restart_grace {how} is shorter than atomicity_lock_ttl "
            f"({settings.lock_ttl:g} s): a server that has lost a lock in a restart may grant it "
            "again while its holder still believes in it (LOCK-11)",
            "leave atomicity_restart_grace unset, or make it as long as the longest ttl",
        )
    left = quorum.lasts(settings.lock_ttl) - settings.lock_ttl * RENEWAL
    if settings.timeout >= left / 2:
        yield Finding(
            SETTINGS,
            Level.WARNING,
            "ttl",
            f"atomicity_lock_ttl ({settings.lock_ttl:g} s) leaves {left:.1f} s for a renewal, and "
            f"one that hangs takes atomicity_timeout ({settings.timeout:g} s): a single lost "
            "answer may lose the lease",
            "make the ttl at least four times the timeout",
        )
    grace = settings.beat_grace
    if grace is not None and grace < TAKEOVER * settings.interval:
        yield Finding(
            SETTINGS,
            Level.WARNING,
            "beat_grace",
            f"atomicity_beat_grace ({grace:g} s) is shorter than it may take others to take over "
            f"from a beat that died ({TAKEOVER} intervals, {TAKEOVER * settings.interval:g} s): "
            "what came due meanwhile is dropped",
            "lengthen it, or shorten atomicity_interval",
        )


def _majority(facts: Facts) -> Iterator[Finding]:
    total = len(facts.servers)
    up = sum(map(is_usable, facts.servers))
    needed = quorum.majority(total)
    if total == 1:
        yield Finding(
            SETTINGS,
            Level.NOTE,
            "majority",
            "one server decides: while it is away no lock is granted and nobody owns slots",
            "three independent servers, in atomicity_redis, go on with any two of them",
        )
    elif up < needed:
        yield Finding(
            SETTINGS,
            Level.FAULT,
            "majority",
            f"{up} of {total} addresses can be used, and {needed} are needed: no lock is granted",
            "bring back the others",
        )
    elif not is_usable(facts.servers[0]):
        yield Finding(
            SETTINGS,
            Level.FAULT,
            "majority",
            f"the first of {total} addresses is down: locks are granted by the others, without a "
            "line to stand in; slots, limits, meters and beats rest on the first alone and stop",
            "bring it back",
        )
    else:
        yield Finding(
            SETTINGS,
            Level.OK,
            "majority",
            f"{up} of {total} addresses can be used, {needed} are needed",
        )


def _clocks(facts: Facts) -> Iterator[Finding]:
    known = [
        (server.clock, server.clock_error, server.address)
        for server in facts.servers
        if server.clock is not None
    ]
    for (one, error, address), (other, others_error, others) in combinations(known, 2):
        apart = abs(one - other) - error - others_error
        if apart > APART:
            yield Finding(
                address,
                Level.WARNING,
                "clock",
                f"its clock is {abs(one - other):.1f} s "
                f"{'ahead of' if one > other else 'behind'} that of {others}; when one of them is "
                "put right in a step, its locks end early or late by as much",
                "have NTP slew the clocks of both",
            )
    for clock, error, address in known:
        if abs(clock) - error > APART:
            yield Finding(
                address,
                Level.NOTE,
                "clock",
                f"its clock is {abs(clock):.1f} s {'ahead of' if clock > 0 else 'behind'} that of "
                "this machine: decisions do not mind, but times that are shown are off by as much",
            )


def _twins(facts: Facts) -> Iterator[Finding]:
    """Two addresses of one server, which no setting shows."""
    for one, other in combinations(facts.servers, 2):
        if one.said("run_id") and one.said("run_id") == other.said("run_id"):
            yield Finding(
                other.address,
                Level.FAULT,
                "twins",
                f"it is the same server as {one.address}, which therefore votes twice: when it "
                "fails or restarts, the majority goes with it",
                "name independent servers",
            )


def _broker(broker: BrokerFacts) -> Iterator[Finding]:
    timeout, limit = broker.visibility_timeout, broker.time_limit
    if timeout is None:
        return
    if limit is not None and broker.acks_late and limit >= timeout:
        yield Finding(
            BROKER,
            Level.WARNING,
            "visibility",
            f"a task may run for {limit:g} s (task_time_limit), and is delivered a second time "
            f"after {timeout:g} s (visibility_timeout): a second copy then waits for the key of "
            "the first, or runs beside it without one",
            "raise visibility_timeout in broker_transport_options above the longest task, for "
            "workers and senders alike",
        )
    elif timeout < 60:  # noqa: PLR2004 - a minute
        yield Finding(
            BROKER,
            Level.WARNING,
            "visibility",
            f"visibility_timeout is {timeout:g} s: what runs or waits longer in a worker is "
            f"delivered again, and a task over its limit comes by every {timeout / 3:g} s",
            "leave it at an hour, or above the longest task",
        )
    else:
        yield Finding(
            BROKER,
            Level.OK,
            "visibility",
            f"visibility_timeout is {timeout:g} s; with acks_late, no task may run longer",
        )

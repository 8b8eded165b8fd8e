"""What the facts of one address mean: pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from celery_atomicity.checkup.findings import Finding, Level
from celery_atomicity.checkup.rights_rules import DOCS, is_right, judge_rights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery_atomicity.checkup.facts import ServerFacts
    from celery_atomicity.settings import Settings

# The oldest server that is tested.
OLDEST = (6, 2)

# Shares: of the timeout that an answer may take, of the memory and of the connections in use.
SLOW, FULL, CROWDED = 0.25, 0.9, 0.8


def judge_server(facts: ServerFacts, settings: Settings) -> Iterator[Finding]:
    """What is to be said of one address."""
    where = facts.address
    if facts.error and facts.round_trip is None:
        yield _unreachable(facts)
        return
    if facts.error:
        yield Finding(
            where,
            Level.FAULT,
            "reachable",
            f"it stopped answering while it was looked at: {facts.error}",
            "look into its log, and at the network in between",
        )
    yield _reachable(facts, settings)
    if facts.silent_sentinels:
        silent = "; ".join(f"{name}: {error}" for name, error in facts.silent_sentinels.items())
        yield Finding(
            where,
            Level.WARNING,
            "sentinels",
            f"of its sentinels {len(facts.silent_sentinels)} cannot be asked ({silent}): when the "
            "others fail, too, the master is not found any more",
            "bring them back, or take their names out of atomicity_redis",
        )
    if facts.info is None:
        yield Finding(
            where,
            Level.WARNING,
            "info",
            "our user may not ask INFO: a restart of this server is not noticed, so that two may "
            "hold a key after one (LOCK-11), and neither version, role, memory nor persistence "
            "could be looked at",
            f"allow it with +info; {DOCS}",
        )
    else:
        unfit = list(_unfit(facts))
        yield from unfit
        if any(finding.level is Level.FAULT for finding in unfit):
            return
        yield from _memory(facts)
        yield _persistence(facts, settings)
        yield _connections(facts)
        yield _restarts(facts, settings)
    yield from judge_rights(facts)


def is_usable(facts: ServerFacts) -> bool:
    """Whether it answers, and is what decisions can rest on."""
    return not facts.error and not any(one.level is Level.FAULT for one in _unfit(facts))


def _unreachable(facts: ServerFacts) -> Finding:
    error = facts.error
    text = error.lower()
    if "wrongpass" in text or "username-password" in text or "invalid password" in text:
        remedy = "put the right user and password into the URL, percent-encoded"
    elif "noauth" in text or "authentication required" in text:
        remedy = "put a password into the URL: redis://:password@host"
    elif "refused" in text:
        remedy = "start the server, or correct host and port"
    elif "certificate" in text or "ssl" in text:
        remedy = "look at ssl_ca_certs and ssl_cert_reqs, and whether the scheme is rediss://"
    elif "name or service" in text or "resolution" in text or "nodename" in text:
        remedy = "correct the host's name, or the resolver"
    elif is_right(error):
        remedy = f"give our user the rights that it needs; {DOCS}"
    else:
        remedy = "see that it runs and that nothing between us and it drops connections"
    return Finding(
        facts.address, Level.FAULT, "reachable", f"cannot be used: {error.rstrip('.')}", remedy
    )


def _reachable(facts: ServerFacts, settings: Settings) -> Finding:
    took = facts.round_trip or 0.0
    said = f"answers in {took * 1000:.2f} ms"
    if facts.user:
        said += f" to the user {facts.user}"
    if took > SLOW * settings.timeout:
        return Finding(
            facts.address,
            Level.WARNING,
            "latency",
            f"{said}, which is more than a quarter of atomicity_timeout ({settings.timeout:g} s): "
            "a little more load, and answers come too late",
            "use a server that is nearer, or raise atomicity_timeout and the interval with it",
        )
    return Finding(facts.address, Level.OK, "latency", said)


def _unfit(facts: ServerFacts) -> Iterator[Finding]:
    """What a server is, and what rules it out."""
    if facts.info is None:
        return
    where = facts.address
    version, name = facts.said("valkey_version"), "Valkey"
    if not version:
        version, name = facts.said("redis_version"), "Redis"
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < OLDEST:
        yield Finding(
            where,
            Level.FAULT,
            "version",
            f"{name} {version or 'of an unknown version'} is older than what is tested: 6.2",
            "use Redis 6.2 or later, or Valkey",
        )
    else:
        up = facts.number("uptime_in_seconds")
        yield Finding(where, Level.OK, "version", f"{name} {version}, up for {_age(up)}")
    if facts.said("redis_mode", facts.said("server_mode")) == "cluster":
        yield Finding(
            where,
            Level.FAULT,
            "cluster",
            "it is in cluster mode, where the keys of one decision lie on different nodes; it is "
            "refused and counts as down",
            "use a server that stands alone, or three of them",
        )
    if facts.said("role", "master") != "master":
        yield Finding(
            where,
            Level.FAULT,
            "role",
            f"it is a replica of {facts.said('master_host')}:{facts.said('master_port')}, which "
            "takes no writes; it counts as down",
            "name the master, or write sentinel://... to have it found",
        )
    if facts.said("loading", "0") != "0":
        yield Finding(
            where,
            Level.FAULT,
            "loading",
            "it is still loading its data and serves nothing until it has",
            "wait; if it takes longer than you can bear, give the arbiter a server of its own",
        )


def _memory(facts: ServerFacts) -> Iterator[Finding]:
    where, policy = facts.address, facts.said("maxmemory_policy", "noeviction")
    most, used = facts.number("maxmemory"), facts.number("used_memory")
    evicts = policy != "noeviction"
    evicted = facts.number("evicted_keys")
    if evicts and most:
        so_far = f"; it has evicted {evicted:,} keys since its start" if evicted else ""
        yield Finding(
            where,
            Level.FAULT,
            "eviction",
            f"maxmemory-policy is {policy}: when its memory is full it throws away keys, also "
            f"those of locks that are held, which others are then given{so_far}",
            "CONFIG SET maxmemory-policy noeviction, or give the arbiter a server of its own",
        )
    elif evicts:
        yield Finding(
            where,
            Level.WARNING,
            "eviction",
            f"maxmemory-policy is {policy}; as maxmemory is not set nothing is evicted, until "
            "somebody sets it",
            "CONFIG SET maxmemory-policy noeviction",
        )
    else:
        yield Finding(where, Level.OK, "eviction", "maxmemory-policy is noeviction")
    if most and used > FULL * most and not evicts:
        yield Finding(
            where,
            Level.WARNING,
            "memory",
            f"{used / most:.0%} of its maxmemory is in use; when it is full no lock is granted and "
            "nobody registers (what is held can still be renewed and released)",
            "raise maxmemory, or move what else is in it elsewhere",
        )


def _persistence(facts: ServerFacts, settings: Settings) -> Finding:
    where, config = facts.address, facts.config
    appends = facts.said("aof_enabled") == "1"
    sync = (config or {}).get("appendfsync", "")
    if appends and sync == "always":
        return Finding(
            where,
            Level.OK,
            "persistence",
            "it writes every change to disk before it answers: a restart loses nothing",
        )
    if appends:
        kept = "an append-only file, of which a crash loses the last second or so"
    elif config is None:
        kept = "no append-only file; whether it takes snapshots our user may not ask (CONFIG GET)"
    elif config.get("save"):
        kept = "snapshots: a crash brings back what was true at the last one"
    else:
        kept = "nothing: after a restart it is empty"
    if settings.grace > 0:
        return Finding(
            where,
            Level.NOTE,
            "persistence",
            f"it keeps {kept}. Locks are safe all the same, since it grants none for "
            f"{settings.grace:g} s after a restart; debts and what beats have sent are as good as "
            "what it keeps",
        )
    return Finding(
        where,
        Level.WARNING,
        "persistence",
        f"it keeps {kept}. With atomicity_restart_grace at 0 a key whose lock it has lost is "
        "granted a second time",
        "leave atomicity_restart_grace at the lock's ttl, or use appendonly yes with "
        "appendfsync always",
    )


def _connections(facts: ServerFacts) -> Finding:
    now, most = facts.number("connected_clients"), facts.number("maxclients")
    rejected = facts.number("rejected_connections")
    of = f" of {most:,}" if most else ""
    said = f"{now:,}{of} connections are in use"
    if rejected:
        said += f", and {rejected:,} were turned away since its start"
    if rejected or (most and now > CROWDED * most):
        return Finding(
            facts.address,
            Level.WARNING,
            "connections",
            said,
            "raise maxclients, or find out who holds so many: each process of ours has two at most",
        )
    return Finding(facts.address, Level.OK, "connections", said)


def _restarts(facts: ServerFacts, settings: Settings) -> Finding:
    where, marker = facts.address, facts.marker
    since = marker.get("since", "")
    left = int(since) / 1000 + settings.grace - facts.now if since.isdigit() else 0.0
    if left > 0:
        return Finding(
            where,
            Level.NOTE,
            "restart",
            "it has restarted, failed over or lost its data lately: for "
            f"{left:.1f} s more it only renews locks and grants none",
        )
    if not marker:
        return Finding(
            where,
            Level.NOTE,
            "restart",
            "nobody has connected to it yet, or all its data were deleted since: there is no "
            "marker of its run",
        )
    if marker.get("run") != facts.said("run_id"):
        return Finding(
            where,
            Level.NOTE,
            "restart",
            "it has restarted or failed over since somebody connected; whoever connects next "
            f"notices, and from then on it grants no lock for {settings.grace:g} s",
        )
    return Finding(where, Level.OK, "restart", "its run is the one that was seen last")


def _age(seconds: int) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds} s"

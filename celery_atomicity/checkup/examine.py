"""Finding out what there is to know of each address."""

from __future__ import annotations

import math
import secrets
import statistics
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

from celery_atomicity import clock, keys
from celery_atomicity.checkup.facts import BEATS, BrokerFacts, Facts, ServerFacts
from celery_atomicity.connection import ErrorReply, Probe, Script

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from celery_atomicity.address import Address
    from celery_atomicity.settings import Settings

# Of so many questions for the time the quickest counts, and of so many PINGs the median.
TIMES = 5

# What is asked of CONFIG GET: what INFO does not say.
CONFIG = ("save", "appendfsync")

TRIAL = Script("trial")

# What stands in for what a command is about: no server knows a script of that hash.
_NO_SCRIPT = "0" * 40


def examine(settings: Settings, broker: BrokerFacts) -> Facts:
    """
    Ask every address at the same time; blocks for some round trips, and some timeouts at most.

    What our user may not ask is not known afterwards, and no error. Under a name of its own it
    writes what the decisions write, in one step that leaves nothing; for the rest it only reads.
    """
    with ThreadPoolExecutor(max_workers=max(1, len(settings.addresses))) as threads:
        servers = threads.map(lambda address: _server(address, settings), settings.addresses)
        return Facts(settings, tuple(servers), broker)


def _server(address: Address, settings: Settings) -> ServerFacts:
    facts: dict[str, object] = {}
    try:
        with Probe(address, settings) as probe:
            for some in _questions(probe, settings):
                facts.update(some)
    except OSError as error:
        facts["error"] = str(error) or type(error).__name__
    return ServerFacts(str(address), **facts)  # type: ignore[arg-type]


def _questions(probe: Probe, settings: Settings) -> Iterator[Mapping[str, object]]:
    """What is found out, piece by piece, so that what breaks the connection loses only the rest."""
    yield {"round_trip": statistics.median(_ping(probe) for _ in range(TIMES))}
    yield {"silent_sentinels": probe.silent_sentinels()}
    yield {"info": _info(probe)}
    yield _clock(probe)
    yield {"config": _config(probe)}
    user = probe.ask("ACL", "WHOAMI")
    yield {"user": user.decode("utf-8", "replace") if isinstance(user, bytes) else ""}
    marker = probe.ask("HGETALL", keys.MARKER)
    yield {"marker": _pairs(marker) if isinstance(marker, list) else {}}
    yield {"failed_keys": dict(_failed_keys(probe, settings.group))}
    yield {"failed_looking": dict(_failed_looking(probe, settings.group))}
    yield {"failed": dict(_failed(probe, settings.group))}


def _ping(probe: Probe) -> float:
    sent = clock.monotonic()
    probe.ask("PING")
    return clock.monotonic() - sent


def _clock(probe: Probe) -> Mapping[str, float]:
    best: dict[str, float] = {}
    for _ in range(TIMES):
        ours, sent = clock.wall(), clock.monotonic()
        said = probe.ask("TIME")
        half = (clock.monotonic() - sent) / 2
        if isinstance(said, list) and half < best.get("clock_error", math.inf):
            now = int(said[0]) + int(said[1]) / 1_000_000
            best = {"clock": now - ours - half, "clock_error": half, "now": now}
    return best


def _info(probe: Probe) -> Mapping[str, str] | None:
    said = probe.ask("INFO")
    if not isinstance(said, bytes):
        return None
    lines = said.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _config(probe: Probe) -> Mapping[str, str] | None:
    found: dict[str, str] = {}
    for name in CONFIG:
        said = probe.ask("CONFIG", "GET", name)
        if not isinstance(said, list):
            return None
        found |= _pairs(said)
    return found


def _pairs(said: list[bytes]) -> dict[str, str]:
    texts = [one.decode("utf-8", "replace") for one in said]
    return dict(zip(texts[::2], texts[1::2], strict=False))


def _failed_keys(probe: Probe, group: str) -> Iterator[tuple[str, str]]:
    """Which kinds of key our user may not use, by a script that names one and does nothing."""
    sign = _sign()
    for kind, name in {
        "the marker": keys.MARKER,
        "slots": f"{keys.slots_base(group)}:{sign}",
        BEATS: f"{keys.slots_base(f'{group}.beat')}:{sign}",
        "locks": keys.lock_key(group, sign),
        "lines": keys.line_key(group, sign),
        "fences": keys.fence_key(group),
        "limits": keys.rate_key(group, sign),
        "meters": keys.meter_key(group, sign),
        "the ledger of beats": keys.beat_key(group, sign),
    }.items():
        said = probe.ask("EVAL", "return 0", 1, name)
        if isinstance(said, ErrorReply):
            yield kind, str(said)


def _failed_looking(probe: Probe, group: str) -> Iterator[tuple[str, str]]:
    """Which of the commands fail that only those need who look, as ``status`` and ``locks`` do."""
    name = keys.line_key(group, _sign())
    for command in (
        ("SCAN", 0, "MATCH", name, "COUNT", 1),
        ("ZCARD", name),
        ("HGETALL", name),
    ):
        said = probe.ask(*command)
        if isinstance(said, ErrorReply):
            yield str(command[0]), str(said)


def _failed(probe: Probe, group: str) -> Iterator[tuple[str, str]]:
    """Which of the commands fail that decisions need."""
    channel = keys.mail_channel(group, _sign())
    said = probe.ask("EVAL", TRIAL.source, 1, keys.lock_key(group, _sign()), channel)
    if isinstance(said, ErrorReply):
        yield "EVAL", str(said)
    elif isinstance(said, list):
        yield from _pairs(cast("list[bytes]", said)).items()
    for command in (
        ("EVALSHA", _NO_SCRIPT, 0),
        ("SCRIPT", "LOAD", "return 0"),
        # The last, since nothing else can be asked on the connection from then on.
        ("SUBSCRIBE", channel),
    ):
        said = probe.ask(*command)
        if isinstance(said, ErrorReply) and not said.is_unknown_script:
            yield str(command[0]), str(said)


def _sign() -> str:
    return f"doctor-{secrets.token_hex(8)}"

"""
The settings: one frozen, validated object, made once per app.

Nothing else reads the app's configuration or the environment.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from celery_atomicity.address import Address, masked
from celery_atomicity.errors import InvalidSetting

INTERVAL = 5.0
GAP = 0.15
LOCK_TTL = 10.0
TIMEOUT = 1.0

SHORTEST_INTERVAL = 0.1
SHORTEST_TTL, LONGEST_TTL = 1.0, 3600.0
WIDEST_GAP = 0.5

# The states that a skipped task may end in: one of its own, or one that every reader knows.
SKIPPED_STATES = ("SKIPPED", "SUCCESS")

_REDIS = "atomicity_redis"
_OFF = "off"
_UNSET = object()


@dataclass(frozen=True)
class Settings:
    """
    What a process needs to know to take part in a group.

    Args:
        addresses: The servers: one, or an odd number that do not know each other; none: off.
        source: Where the addresses come from, for the log.
        group: The app's own group.
        interval: Seconds between two registrations of a replica.
        gap: Slack of a registration, as a fraction of the interval.
        lock_ttl: Seconds a lease lasts from its last renewal.
        timeout: Seconds for connecting to one address, and for one command on it.
        restart_grace: Seconds for which a restarted server grants nothing; None: a lease's ttl.
        beat_grace: Seconds after which a missed tick is dropped; None: never.
        skipped_state: What a skipped task ends in: ``SKIPPED``, or ``SUCCESS`` for readers of
            results that know Celery's own states only.

    Raises:
        InvalidSetting: A value cannot work; the message names it, its setting and the remedy.
    """

    addresses: tuple[Address, ...] = ()
    source: str = _OFF
    group: str = "celery"
    interval: float = INTERVAL
    gap: float = GAP
    lock_ttl: float = LOCK_TTL
    timeout: float = TIMEOUT
    restart_grace: float | None = None
    beat_grace: float | None = None
    skipped_state: str = SKIPPED_STATES[0]

    #: The names of the settings, without their prefix.
    NAMES: ClassVar = (
        "redis",
        "group",
        "interval",
        "gap",
        "lock_ttl",
        "timeout",
        "restart_grace",
        "beat_grace",
        "skipped_state",
    )

    def __post_init__(self) -> None:
        _check_addresses(self.addresses, self.source)
        check_group(self.group, "atomicity_group")
        _check_range("atomicity_interval", self.interval, SHORTEST_INTERVAL, math.inf)
        if not 0 < self.gap < WIDEST_GAP:
            raise InvalidSetting(
                f"atomicity_gap: {self.gap!r} is not between 0 and 0.5; "
                "it is the slack as a fraction of the interval, and 0.15 suits nearly everybody."
            )
        _check_range("atomicity_lock_ttl", self.lock_ttl, SHORTEST_TTL, LONGEST_TTL)
        _check_range("atomicity_timeout", self.timeout, 0.001, 60.0)
        if self.skipped_state not in SKIPPED_STATES:
            raise InvalidSetting(
                f"atomicity_skipped_state: {self.skipped_state!r} is neither SKIPPED nor SUCCESS; "
                "SKIPPED suits all whose readers of results import celery_atomicity."
            )

    @classmethod
    def read(
        cls,
        conf: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        main: str | None = None,
    ) -> Settings:
        """
        Make the settings from an app's configuration and the environment.

        Args:
            conf: Configuration in Celery's lower-case names; a value of None says nothing.
            environ: Defaults to the process's.
            main: The app's name, which is its group unless that is set.
        """
        values = _Values(conf or {}, os.environ if environ is None else environ)
        addresses, source = _addresses(values)
        return cls(
            addresses=addresses,
            source=source,
            group=str(values.get("atomicity_group", main or "celery")),
            interval=values.seconds("atomicity_interval", INTERVAL),
            gap=values.number("atomicity_gap", GAP),
            lock_ttl=values.seconds("atomicity_lock_ttl", LOCK_TTL),
            timeout=values.seconds("atomicity_timeout", TIMEOUT),
            restart_grace=values.optional_seconds("atomicity_restart_grace"),
            beat_grace=values.optional_seconds("atomicity_beat_grace"),
            skipped_state=str(values.get("atomicity_skipped_state", SKIPPED_STATES[0])),
        )

    @property
    def configured(self) -> bool:
        """Whether there is an arbiter to ask."""
        return bool(self.addresses)

    @property
    def grace(self) -> float:
        """Seconds for which a restarted server grants nothing."""
        return self.lock_ttl if self.restart_grace is None else self.restart_grace

    def grace_of(self, ttl: float) -> float:
        """The same for a lease of *ttl*, which others of its key are likely to have as well."""
        return max(self.grace, ttl) if self.restart_grace is None else self.restart_grace

    def warnings(self) -> list[str]:
        """What works and is likely not meant."""
        found = []
        if self.interval < 2 * self.timeout:
            found.append(
                f"atomicity_interval ({self.interval:g} s) is shorter than twice atomicity_timeout "
                f"({self.timeout:g} s): one slow answer costs an assignment; "
                "lengthen the interval or shorten the timeout."
            )
        return found


class _Values:
    """The configuration first, then the environment variable of the same name in upper case."""

    def __init__(self, conf: Mapping[str, object], environ: Mapping[str, str]) -> None:
        self.conf = conf
        self.environ = environ

    def find(self, name: str) -> tuple[object, str]:
        """The value of *name* and where it was said; (_UNSET, "") if nowhere."""
        value = self.conf.get(name)
        if value is not None:
            return value, name
        variable = name.upper()
        if variable in self.environ:
            return self.environ[variable], variable
        return _UNSET, ""

    def get(self, name: str, default: object) -> object:
        value, _ = self.find(name)
        return default if value is _UNSET or value == "" else value

    def number(self, name: str, default: float) -> float:
        value, where = self.find(name)
        return default if value is _UNSET or value == "" else to_seconds(value, where)

    def seconds(self, name: str, default: float) -> float:
        return self.number(name, default)

    def optional_seconds(self, name: str) -> float | None:
        value, where = self.find(name)
        return None if value is _UNSET or value == "" else to_seconds(value, where)


def to_seconds(value: object, setting: str) -> float:
    """
    *value* (number, numeric text or timedelta) as seconds.

    Raises:
        InvalidSetting: It is none of these, negative, or not finite.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidSetting(f"{setting}: {value!r} is not a number of seconds or a timedelta.")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise InvalidSetting(f"{setting}: {value!r} is not a number of seconds.") from None
    if not math.isfinite(number) or number < 0:
        raise InvalidSetting(f"{setting}: {value!r} must be finite and not negative.")
    return number


def check_group(group: str, setting: str) -> None:
    """Refuse names that would run into the keys of another group."""
    printable = isinstance(group, str) and group.isprintable()
    if not group or not printable or set(group) & set(":{} "):
        raise InvalidSetting(
            f"{setting}: {group!r} cannot name a group; use printable characters "
            "other than a space, ':', '{' and '}', for example 'shop' or 'mail.sender'."
        )


def _check_range(setting: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        limit = f"at least {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
        raise InvalidSetting(f"{setting}: {value!r} is out of range; it is {limit} seconds.")


def _check_addresses(addresses: Sequence[Address], source: str) -> None:
    if addresses and len(addresses) % 2 == 0:
        shown = ", ".join(map(str, addresses))
        raise InvalidSetting(
            f"{source}: {len(addresses)} addresses ({shown}) have no majority that "
            f"{len(addresses) - 1} would not have; name one server or an odd number of them."
        )
    seen: dict[str, Address] = {}
    for address in addresses:
        for server in address.servers:
            if server in seen:
                raise InvalidSetting(
                    f"{source}: {address} names the same server as {seen[server]}, which would "
                    "vote twice; a majority needs independent servers."
                )
            seen[server] = address


def _addresses(values: _Values) -> tuple[tuple[Address, ...], str]:
    """The addresses from the first place that names any."""
    value, where = values.find(_REDIS)
    if value is not _UNSET:
        urls = value.split() if isinstance(value, str) else _texts(value, where)
        return tuple(Address.parse(url, setting=where) for url in urls), where if urls else _OFF
    for name, tls, options in (
        ("result_backend", "redis_backend_use_ssl", "result_backend_transport_options"),
        ("broker_url", "broker_use_ssl", "broker_transport_options"),
    ):
        url = values.conf.get(name)
        if isinstance(url, str) and _is_one_redis(url):
            address = Address.parse(
                url,
                setting=name,
                tls=_mapping(values.conf.get(tls)),
                options=_mapping(values.conf.get(options)),
            )
            return (address,), name
    if values.environ.get("ATOMICITY_DEV") == "1":
        return (Address.parse("redis://localhost", setting="ATOMICITY_DEV"),), "ATOMICITY_DEV"
    return (), _OFF


def _texts(value: object, where: str) -> list[str]:
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise InvalidSetting(f"{where}: {value!r} is neither a URL nor a list of URLs.")
    return [one for one in value if one.strip()]


def _mapping(value: object) -> Mapping[str, object] | None:
    return value if isinstance(value, Mapping) else None


def _is_one_redis(url: str) -> bool:
    """Whether a broker or backend URL is one Redis, which several to fail over to are not."""
    scheme = url.partition("://")[0].lower()
    if scheme == "sentinel":
        return True
    return scheme in ("redis", "rediss", "redis+socket", "socket", "unix") and not (
        ";" in url or "," in masked(url)
    )

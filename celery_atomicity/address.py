"""One Redis URL, taken apart by the rules of Celery's ``broker_url``."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from celery_atomicity.errors import InvalidSetting

PORT = 6379
SENTINEL_PORT = 26379

_UNIX = ("unix", "socket", "redis+socket")
_TCP = ("redis", "rediss")
_SENTINEL = ("sentinel", "sentinels")
SCHEMES = (*_TCP, *_UNIX, *_SENTINEL)

# How much of a certificate is checked, in redis-py's words.
_CERT_REQS = ("none", "optional", "required")

# What every redis-py that we run with understands.
_TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_data",
    "ssl_ca_path",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_check_hostname",
)


_DATABASE = re.compile(r"[0-9]{1,9}")

# Where the options of a URL begin.
_OPTIONS = re.compile(r"\?[a-z_]+=")


@dataclass(frozen=True)
class Address:
    """
    Where one server is and how to speak with it. Its text never shows a password.

    Attributes:
        hosts: Host and port: one, or the sentinels that know the master.
        path: A unix socket, in place of *hosts*.
        master: The name the sentinels know the master by.
        tls: Options of the TLS connection in redis-py's terms; None: plain.
    """

    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    master: str = ""
    db: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    tls: Mapping[str, object] | None = field(default=None, repr=False, hash=False)

    @classmethod
    def parse(
        cls,
        url: str,
        *,
        setting: str,
        tls: Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Address:
        """
        Take *url* apart.

        Args:
            url: In any form that works as a Celery broker URL.
            setting: Which setting it stands in, for errors.
            tls: ``ssl_*`` options from beside the URL; the URL's own win.
            options: Transport options from beside the URL; only what names the master counts.

        Raises:
            InvalidSetting: It cannot be an address; the message shows it without its password.
        """
        scheme, _, rest = url.strip().partition("://")
        scheme = scheme.lower()
        if not rest and "://" not in url:
            raise _refused(setting, url, "it has no scheme; write redis://host:port/db")
        if scheme not in SCHEMES:
            known = ", ".join(f"{one}://" for one in (*_TCP, "unix", "sentinel"))
            raise _refused(setting, url, f"the scheme {scheme!r} is not known; use one of {known}")
        # A sentinel URL as Celery writes it repeats itself: sentinel://a:1/0;sentinel://b:2/0.
        first, *more = rest.split(";")
        netloc, path, query = _split(first)
        credentials, _, hosts = netloc.rpartition("@")
        username, _, password = credentials.partition(":")
        for other in more:
            its_netloc, its_path, its_query = _split(other.rpartition("://")[2])
            hosts += "," + its_netloc.rpartition("@")[2]
            path, query = path or its_path, its_query | query
        options = options or {}
        encrypted = scheme in ("rediss", "sentinels") or bool(tls)
        about = _Text(setting, url)
        sentinels = options.get("sentinel_kwargs")
        return cls(
            hosts=() if scheme in _UNIX else about.hosts(hosts, scheme),
            path=f"/{unquote(path).lstrip('/')}" if scheme in _UNIX else "",
            master=about.master(path, options) if scheme in _SENTINEL else "",
            db=about.db(scheme, path, query),
            username=unquote(username) or None,
            password=unquote(password) or None,
            sentinel_username=query.get("sentinel_username") or _text(sentinels, "username"),
            sentinel_password=query.get("sentinel_password") or _text(sentinels, "password"),
            tls={**about.tls(tls or {}), **about.tls(query)} if encrypted else None,
        )

    @property
    def servers(self) -> frozenset[str]:
        """What two addresses of the same server have in common, whatever database they name."""
        if self.path:
            return frozenset({self.path})
        return frozenset(
            f"{self.master}@{'127.0.0.1' if host == 'localhost' else host.lower()}:{port}"
            for host, port in self.hosts
        )

    def __str__(self) -> str:
        scheme = "unix" if self.path else "sentinel" if self.master else "redis"
        if self.tls is not None:
            scheme += "s"
        who = f"{self.username or ''}:**@" if self.password else ""
        where = self.path or ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts
        )
        name = f"/{self.master}" if self.master else ""
        return f"{scheme}://{who}{where}{name}" + (f"/{self.db}" if self.db else "")


def masked(url: str) -> str:
    """*url* as it may be shown: without what stands before the host, and without the query."""
    scheme, _, rest = url.partition("://")
    if not rest:
        return "(not a URL)"
    if "@" in rest:
        rest = f"**@{rest.rpartition('@')[2]}"
    return f"{scheme}://{rest.partition('?')[0]}"


@dataclass(frozen=True)
class _Text:
    """The parts of one URL that can be wrong, and whose URL it is."""

    setting: str
    url: str

    def hosts(self, text: str, scheme: str) -> tuple[tuple[str, int], ...]:
        default = SENTINEL_PORT if scheme in _SENTINEL else PORT
        found = []
        for part in text.split(","):
            try:
                one = urlsplit(f"//{part}")
                found.append((unquote(one.hostname or "localhost"), one.port or default))
            except ValueError:
                # Python's own words may hold a part of a password that is not escaped.
                reason = "its host and port cannot be read; write host:port, and escape a password"
                raise _refused(self.setting, self.url, reason) from None
        if len(found) > 1 and scheme not in _SENTINEL:
            reason = "it names several hosts; write one URL a server, separated by spaces"
            raise _refused(self.setting, self.url, reason)
        return tuple(found)

    def master(self, path: str, options: Mapping[str, object]) -> str:
        name = path.strip("/").partition("/")[0]
        named = str(options.get("master_name") or "")
        if named and (not name or name.isdigit()):
            return named
        if not name:
            reason = "it lacks the master's name; write sentinel://host:port,host:port/<name>/<db>"
            raise _refused(self.setting, self.url, reason)
        return unquote(name)

    def db(self, scheme: str, path: str, query: Mapping[str, str]) -> int:
        text = query.get("db") or query.get("virtual_host") or ""
        if not text and scheme not in _UNIX:
            text = path.strip("/")
            if scheme in _SENTINEL and not text.isdigit():
                text = text.partition("/")[2]
        text = text.strip("/")
        if not text:
            return 0
        if not _DATABASE.fullmatch(text):
            # What follows the first slash may belong to a password that is not escaped.
            said = f" {text!r}" if text in masked(self.url) else ""
            reason = f"the database{said} is not a number; write redis://host:port/0"
            raise _refused(self.setting, self.url, reason)
        return int(text)

    def tls(self, options: Mapping[str, object]) -> dict[str, object]:
        """What of *options* is about TLS, as redis-py wants it."""
        found = {name: options[name] for name in _TLS_OPTIONS if options.get(name) is not None}
        if isinstance(found.get("ssl_check_hostname"), str):
            text = str(found["ssl_check_hostname"]).lower()
            found["ssl_check_hostname"] = text not in ("0", "false", "no", "off")
        if "ssl_cert_reqs" in options:
            found["ssl_cert_reqs"] = self._cert_reqs(options["ssl_cert_reqs"])
            if found["ssl_cert_reqs"] == "none":
                # Without a certificate to look at, a host name cannot be looked for in it.
                found["ssl_check_hostname"] = False
        return found

    def _cert_reqs(self, value: object) -> str:
        """How Celery's users write it: CERT_NONE, none, ssl.CERT_NONE, its number, and None."""
        text = str(int(value) if isinstance(value, int) else value).lower()
        with suppress(ValueError):
            text = ssl.VerifyMode(int(text)).name.lower()
        text = text.rpartition(".")[2].removeprefix("cert_")
        if text not in _CERT_REQS:
            reason = f"ssl_cert_reqs is {value!r}; use one of {', '.join(_CERT_REQS)}"
            raise _refused(self.setting, self.url, reason)
        return text


def _split(rest: str) -> tuple[str, str, dict[str, str]]:
    """
    Netloc, path and query.

    A ``#``, ``?`` or ``/`` in a password does not end the netloc, though it should be escaped; an
    ``@`` in a path or a query does not begin it.
    """
    options = _OPTIONS.search(rest)
    at = 0 if rest.startswith("/") else rest.rfind("@", 0, options and options.start()) + 1
    head, tail = rest[:at], rest[at:]
    tail, _, query = tail.partition("?")
    host, slash, path = tail.partition("/")
    return head + host, slash + path, dict(parse_qsl(query))


def _refused(setting: str, url: str, reason: str) -> InvalidSetting:
    return InvalidSetting(f"{setting}: {masked(url)} cannot be used: {reason}.")


def _text(options: object, name: str) -> str | None:
    found = options.get(name) if isinstance(options, Mapping) else None
    return None if found is None else str(found)

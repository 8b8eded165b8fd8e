"""One address: connecting to it, and its outages."""

from __future__ import annotations

# Whoever looks up a host needs this codec. Loaded no sooner than that, it could be half loaded by
# one thread when another one forks, and the child would have to do without it for good.
import encodings.idna  # noqa: F401
import math
import os
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

from celery_atomicity import events, keys
from celery_atomicity.connection import outages
from celery_atomicity.connection.link import Link
from celery_atomicity.connection.question import PATIENCE
from celery_atomicity.connection.script import Script
from celery_atomicity.connection.tls import check_files, hint

if TYPE_CHECKING:
    from celery_atomicity.address import Address
    from celery_atomicity.connection.resp import ErrorReply
    from celery_atomicity.connection.script import Command
    from celery_atomicity.settings import Settings

# Pauses between attempts to reach a server that is down, in seconds: fast after a restart, and
# never so slow that a server's return goes unnoticed for long.
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5

# So many releases are kept for a server that is away; what is forgotten runs out by itself.
MOST_OWED = 1000

# So many different errors that a server answers with are kept for messages.
MOST_REFUSALS = 10

# What a missing right is answered with.
NEEDS = "; docs/security.md has its user's ACL SETUSER, and 'celery atomicity doctor' what lacks"

ARRIVE = Script("arrive")


class Server:
    """
    One address as this process knows it.

    Not thread-safe: its clients use it under their lock, but for *connect*, which blocks.

    Attributes:
        link: The connected socket, if there is one.
        error: Why there is none.
        owed: What is to be sent with the next connection, such as releases; the oldest go first
            when it is too much.
        refusals: The errors it answers to our scripts with, each once; forgotten in an outage.
        returning: A thread sees to it that what is owed gets there.
    """

    def __init__(self, address: Address, settings: Settings) -> None:
        self.address = address
        self.timeout = settings.timeout
        self._grace = settings.grace
        self.link: Link | None = None
        self.error: Exception | None = None
        self.returning = False
        self.owed: deque[Command] = deque(maxlen=MOST_OWED)
        self.refusals: list[str] = []
        self._pause = FIRST_PAUSE
        self._retry_at = 0.0
        self._connecting_since: float | None = None

    @property
    def connecting(self) -> bool:
        """Whether a thread is connecting to it."""
        return self._connecting_since is not None

    def connecting_for(self, now: float) -> float:
        """Seconds for which a thread has been connecting to it; infinite if none is."""
        since = self._connecting_since
        return math.inf if since is None else now - since

    def begin_to_connect(self, now: float) -> None:
        """Note that a thread connects from *now* on."""
        self._connecting_since = now

    def stop_connecting(self) -> None:
        """Note that no thread connects."""
        self._connecting_since = None

    def due(self, now: float) -> bool:
        """Whether a server without a link may be tried again by now."""
        return self.link is None and not self.connecting and now >= self._retry_at

    def pause_left(self, now: float) -> float:
        """Seconds until it should be tried again, and a little more."""
        return max(0.0, self._retry_at - now) + FIRST_PAUSE

    def is_late(self, now: float) -> bool:
        """Whether it has owed an answer for so long that it is known to be slow."""
        oldest = self.link.oldest if self.link is not None else None
        return oldest is not None and now - oldest.sent > PATIENCE

    def connect(self) -> Link:
        """
        Connect and log in; blocks for a few timeouts at the most.

        Raises:
            OSError: It cannot be reached, refuses the login, or is not fit to be an arbiter.
        """
        connection = None
        try:
            connection = self.new_connection()
            connection.connect()
            run, sits_out = self._arrive(connection)
        except Exception as error:
            # Whatever goes wrong in a client library on the way to a server is an outage to us.
            if connection is not None:
                connection.disconnect()
            raise ConnectionError(self.explain(error)) from error
        return Link(connection, run, tls=self.address.tls is not None, sits_out=sits_out)

    def connected(self, link: Link) -> None:
        """Take over a fresh link."""
        self.link = link
        self._pause = FIRST_PAUSE
        self._retry_at = 0.0
        outages.end(str(self.address), noticed=self.error is not None)
        self.error = None
        if link.sits_out > 0:
            outages.sits_out(str(self.address), link.run, link.sits_out)

    def failed(self, error: Exception, now: float) -> None:
        """Note that the server did not serve; one warning an outage."""
        outages.note(str(self.address), error, first=self.error is None)
        self.error = error
        self.refusals.clear()
        self._retry_at = now + self._pause
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)

    def refused(self, error: ErrorReply) -> None:
        """Note that the server refuses what we ask of it, as for want of a right."""
        text = f"{error}{NEEDS}" if error.code == "NOPERM" else str(error)
        if text not in self.refusals and len(self.refusals) < MOST_REFUSALS:
            self.refusals.append(text)
        if outages.is_news(f"{self.address} {text}"):
            events.arbiter_refuses.tell(address=str(self.address), reason=text)

    def forget(self) -> None:
        """Let go of what a parent process left us."""
        if self.link is not None:
            self.link.close(inherited=True)
            self.link = None
        self.stop_connecting()

    def _arrive(self, connection: Any) -> tuple[str, float]:
        """
        The server's run, and for how long it grants no lease yet (LOCK-11); refuses the unfit.

        A user without the right to INFO gets a name of our own for each connection: every
        reconnect then counts as a restart for slots, and none is noticed for locks.
        """
        info = _info(connection)
        if info.get("redis_mode", info.get("server_mode")) == "cluster":
            raise ValueError(
                "it is in cluster mode, where the keys of one decision lie on different nodes; "
                "use a server that stands alone"
            )
        run = info.get("run_id")
        if run is None:
            self._do_without_info(connection)
            return f"unknown-{uuid.uuid4().hex}", 0.0
        # The difference of two whole seconds, so that it may be one too many.
        uptime = max(0, int(info.get("uptime_in_seconds", 0)) - 1) * 1000
        arguments = (run, uptime, round(self._grace * 1000))
        connection.send_command("EVAL", ARRIVE.source, 1, keys.MARKER, *arguments)
        sits_out = connection.read_response()
        return run, sits_out / 1000

    def _do_without_info(self, connection: Any) -> None:
        """Refuse a server that does not take writes, and say once what cannot be known of it."""
        # Of a field that is not there: nothing but a replica's refusal comes of it.
        connection.send_command("HDEL", keys.MARKER, "no such field")
        connection.read_response()
        if outages.is_news(f"{self.address} INFO"):
            events.arbiter_is_unknown.tell(address=str(self.address))

    def new_connection(self) -> Any:
        """A connection of redis-py's, not yet connected."""
        address = self.address
        check_files(address)
        options: dict[str, Any] = {
            "db": address.db,
            "username": address.username,
            "password": address.password,
            "socket_timeout": self.timeout,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "client_name": f"atomicity-{os.getpid()}",
        }
        if address.path:
            connection = UnixDomainSocketConnection(path=address.path, **options)
        else:
            host, port = self._master() if address.master else address.hosts[0]
            options |= {"host": host, "port": port, "socket_connect_timeout": self.timeout}
            options["socket_keepalive"] = True
            if address.tls is not None:
                connection = SSLConnection(**options, **dict[str, Any](address.tls))
            else:
                connection = Connection(**options)
        # It would tell its version, for two round trips and a right that users need not have.
        for name in ("driver_info", "lib_name", "lib_version"):
            setattr(connection, name, None)
        return connection

    def explain(self, error: Exception) -> str:
        """*error* in words; never with the password, which redis-py does not show either."""
        text = str(error).rstrip(".") or type(error).__name__
        if isinstance(error, redis.exceptions.NoPermissionError):
            return text + NEEDS
        return text + hint(self.address, text)

    def silent_sentinels(self) -> dict[str, str]:
        """Which of the address's sentinels do not answer, and why; asks all of them in turn."""
        silent = {}
        if self.address.master:
            sentinels = self._sentinels().sentinels
            for (host, port), client in zip(self.address.hosts, sentinels, strict=True):
                try:
                    client.ping()
                except ResponseError:
                    pass  # it answers, if only that our user may not ask this
                except redis.exceptions.RedisError as error:
                    silent[f"{host}:{port}"] = self.explain(error)
                finally:
                    client.connection_pool.disconnect()
        return silent

    def _master(self) -> tuple[str, int]:
        """Ask the sentinels for the master of today."""
        sentinel = self._sentinels()
        try:
            host, port = sentinel.discover_master(self.address.master)
        finally:
            for client in sentinel.sentinels:
                client.connection_pool.disconnect()
        return str(host), int(port)

    def _sentinels(self) -> Any:
        """Clients of the sentinels, that connect when they are asked."""
        address = self.address
        kwargs: dict[str, Any] = {
            "socket_timeout": self.timeout,
            "socket_connect_timeout": self.timeout,
            "retry": Retry(NoBackoff(), 0),
            "username": address.sentinel_username,
            "password": address.sentinel_password,
        }
        if address.tls is not None:
            kwargs |= {"ssl": True, **address.tls}
        return Sentinel(list(address.hosts), sentinel_kwargs=kwargs)


def _info(connection: Any) -> dict[str, str]:
    """What the server says of itself; nothing where our user may not ask."""
    connection.send_command("INFO", "server")
    try:
        text = connection.read_response()
    except ResponseError as error:
        if not _is_forbidden(error):
            raise
        return {}
    lines = (text.decode() if isinstance(text, bytes) else str(text)).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _is_forbidden(error: ResponseError) -> bool:
    return isinstance(error, redis.exceptions.NoPermissionError) or "unknown command" in str(error)

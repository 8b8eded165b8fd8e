"""A connection of its own to one address, for looking at it whatever it turns out to be."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from celery_atomicity.connection.link import CHUNK
from celery_atomicity.connection.resp import Argument, Intake, pack
from celery_atomicity.connection.server import Server

if TYPE_CHECKING:
    import socket

    from typing_extensions import Self

    from celery_atomicity.address import Address
    from celery_atomicity.settings import Settings


class Probe:
    """
    Asks one server whatever one likes; a context manager, not thread-safe.

    Unlike all other connections it leaves no marker and refuses no server: a replica, or one in
    cluster mode, is looked at like any other.

    Raises (on entering):
        OSError: It cannot be reached, or refuses the login; the message is fit to be shown.
    """

    def __init__(self, address: Address, settings: Settings) -> None:
        self._server = Server(address, settings)
        self._timeout = settings.timeout
        self._connection: Any = None
        self._intake = Intake()
        self._answers: deque[object] = deque()

    def __enter__(self) -> Self:
        try:
            self._connection = self._server.new_connection()
            self._connection.connect()
        except Exception as error:
            # Whatever goes wrong in a client library on the way to a server is an outage to us.
            self.__exit__()
            raise ConnectionError(self._server.explain(error)) from error
        self._socket.settimeout(self._timeout)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._connection is not None:
            self._connection.disconnect()

    def ask(self, *command: Argument) -> object:
        """
        The answer to *command*; an *ErrorReply* where it is refused.

        Raises:
            OSError: No answer came within the timeout, or the connection broke.
        """
        self._socket.sendall(pack(command))
        try:
            while not self._answers:
                data = self._socket.recv(CHUNK)
                if not data:
                    raise ConnectionResetError("the server closed the connection")
                self._answers.extend(self._intake.take(data))
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._timeout:g} s") from None
        except ValueError as error:
            raise ConnectionError(f"what it answers makes no sense: {error}") from error
        return self._answers.popleft()

    def silent_sentinels(self) -> dict[str, str]:
        """Which sentinels of the address do not answer, and why."""
        return self._server.silent_sentinels()

    @property
    def _socket(self) -> socket.socket:
        found: socket.socket = self._connection._sock  # noqa: SLF001 - there is no public way to it
        return found

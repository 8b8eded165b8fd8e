from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from celery_atomicity.testing.errors import ServerError
from celery_atomicity.testing.machine import HOST, dies_with_us, find_server, free_port
from celery_atomicity.testing.waiting import wait_until
from celery_atomicity.testing.wire import Reply, packed, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

_START = 20.0  # seconds: a first start on a machine that is busy
_STOP = 10.0
_ANSWER = 5.0


class Server:
    """
    A Redis or Valkey server of one's own, on a free port and in a directory of its own.

    As a context manager it runs for the body of the ``with`` and leaves nothing behind. Otherwise
    `start` it, and `close` it in the end. Where ``setpriv`` exists (Linux), a server that was
    started in the main thread also dies with this process, however that ends.

    Not thread-safe, except for `cli`. Every method blocks until what it promises is so.

    Args:
        binary: The server program; `find_server` looks for one by default.
        port: The port to listen on; a free one by default, kept over restarts.
        persistent: Whether what was acknowledged survives `kill`, `stop` and `restart`
            (an append-only file, synced at each command). By default nothing does.
        arguments: More of the server's own options, as ``["--maxclients", "50"]``.
    """

    def __init__(
        self,
        binary: str | Path | None = None,
        *,
        port: int | None = None,
        persistent: bool = False,
        arguments: Sequence[str] = (),
    ) -> None:
        self.binary = Path(binary) if binary is not None else find_server()
        self.port = port or free_port()
        self.persistent = persistent
        self.arguments = tuple(arguments)
        self.directory = Path(tempfile.mkdtemp(prefix="atomicity-server-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        # Somebody else may take a port between our choice of it and the start of the server.
        self._may_move = port is None
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.alive else "not running"
        return f"<Server {self.binary.name} on port {self.port}, {state}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The address of the server's database 0, with the password of ``--requirepass``."""
        password = self._password
        credentials = f":{quote(password, safe='')}@" if password else ""
        return f"redis://{credentials}{HOST}:{self.port}/0"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._running.pid

    @property
    def alive(self) -> bool:
        """Whether the process is there; a frozen one is."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """All that the server printed since the directory was last emptied."""
        path = self.directory / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """
        Start the server and wait until it answers; nothing happens if it runs.

        Raises:
            ServerError: It ended at once, or gave no answer in 20 seconds. Its log is in the
                message.
        """
        if self.alive:
            return
        for _ in range(5):
            self._launch()
            if self._came_up():
                self._may_move = False
                return
            self._end()
            if not (self._may_move and "in use" in self.log):
                break
            self._empty()
            self.port = free_port()
        raise ServerError(f"{self.binary} did not start on port {self.port}:\n{self.log}")

    def stop(self) -> None:
        """Shut the server down as an operator would; nothing happens if it does not run."""
        if self.alive:
            self.thaw()
            self._running.terminate()
            try:
                self._running.wait(_STOP)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End the server with SIGKILL, as a power cut would; also works on a frozen one."""
        if self.alive:
            self._end()

    def restart(self, *, data: bool = False) -> None:
        """
        Stop the server, if it runs, and start it again on the same port, with or without *data*.

        Raises:
            ServerError: *data* are wanted of a server that is not persistent, or it did not start.
        """
        if data and not self.persistent:
            raise ServerError("only Server(persistent=True) has data to restart with")
        self.stop()
        if not data:
            self._empty()
        self.start()

    def freeze(self) -> None:
        """Stop the process in its tracks: connections stay open, and nothing answers."""
        self._running.send_signal(signal.SIGSTOP)
        # Only once the kernel reports the stop is it certain that no more commands are served.
        os.waitpid(self.pid, os.WUNTRACED)

    def thaw(self) -> None:
        """Let a frozen process go on; nothing happens to one that is not frozen."""
        self._running.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the server and remove its directory."""
        self.kill()
        self._remove()

    def cli(self, *command: str | float | bytes, timeout: float = _ANSWER) -> Reply:
        """
        Send one command on a connection of its own and return the answer, texts decoded.

        Raises:
            ServerError: The server answered with an error.
            OSError: It cannot be reached, or did not answer within *timeout* seconds.
        """
        with (
            socket.create_connection((HOST, self.port), timeout=timeout) as connection,
            connection.makefile("rb") as answers,
        ):
            if self._password:
                connection.sendall(packed("AUTH", self._password))
                read(answers)
            connection.sendall(packed(*command))
            return read(answers)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise ServerError(f"the server on port {self.port} is not running:\n{self.log}")
        return self._process

    @property
    def _password(self) -> str | None:
        options = dict(zip(self.arguments, self.arguments[1:], strict=False))
        return options.get("--requirepass")

    def _launch(self) -> None:
        journal = ("yes", "--appendfsync", "always") if self.persistent else ("no",)
        command = [
            *dies_with_us(),
            *(str(self.binary), "--port", str(self.port), "--bind", HOST, "-::1"),
            *("--dir", str(self.directory), "--save", "", "--appendonly", *journal),
            *self.arguments,
        ]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def _came_up(self) -> bool:
        try:
            wait_until(lambda: not self.alive or self._answers(), _START)
        except AssertionError:
            return False
        return self.alive

    def _answers(self) -> bool:
        try:
            self.cli("PING", timeout=1.0)
        except ServerError as error:
            # It answers, even if it wants a client certificate or a user first.
            return "LOADING" not in str(error)
        except OSError:
            return False
        return True

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _empty(self) -> None:
        shutil.rmtree(self.directory)
        self.directory.mkdir(mode=0o700)

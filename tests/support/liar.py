"""A server that is polite as it is greeted, and talks nonsense from then on."""

import contextlib
import socket
import threading

RUN = "f" * 40

# What a client says before it asks anything, and what it is told.
POLITE = {
    b"CLIENT": b"+OK\r\n",
    b"AUTH": b"+OK\r\n",
    b"SELECT": b"+OK\r\n",
    b"INFO": b"$%d\r\nrun_id:%b\r\nuptime_in_seconds:9999\r\n\r\n" % (len(RUN) + 33, RUN.encode()),
    b"EVAL": b":0\r\n",
}


class Liar:
    """
    Listens on a port of its own until it is closed.

    Args:
        says: Called with each connection once something has to be answered, in a thread of the
            connection; whatever it does is the answer. When it returns, the connection is closed.
        polite: Whether a client gets as far as to ask; else nonsense is its greeting.
    """

    def __init__(self, says, *, polite=True):
        self.says = says
        self.polite = polite
        self.over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def url(self):
        return f"redis://sam:s3cret@127.0.0.1:{self.port}/0"

    def _accept(self):
        with contextlib.suppress(OSError):
            while not self.over.is_set():
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError, ValueError):
            commands = connection.makefile("rb")
            while True:
                command = _read(commands)
                answer = POLITE.get(command[0]) if self.polite else None
                if answer is None:
                    self.says(connection)
                    return
                connection.sendall(answer)


def _read(commands):
    count = int(commands.readline()[1:])
    words = []
    for _ in range(count):
        size = int(commands.readline()[1:])
        words.append(commands.read(size + 2)[:-2])
    return words

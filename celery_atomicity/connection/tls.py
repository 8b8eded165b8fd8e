"""What is different about servers that speak TLS: one thread at a time, files, and their errors."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from celery_atomicity.address import Address

# Options that are files.
FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

# What a server seems to say that ends a connection instead of answering, and one that waits.
ENDED = ("EOF", "closed", "reset", "ertificate required", "WRONG_VERSION")
SILENT = ("timed out", "Timeout")


class Guarded:
    """
    A TLS socket for several threads.

    OpenSSL serves one at a time, and Python's ssl lets go of the interpreter while it does: a
    thread that sends while another reads might break the stream.
    """

    def __init__(self, socket: ssl.SSLSocket) -> None:
        self._socket = socket
        self._lock = threading.Lock()
        self.fileno, self.detach = socket.fileno, socket.detach
        self.settimeout, self.setblocking = socket.settimeout, socket.setblocking

    def send(self, data: bytes) -> int:
        """As a socket's."""
        with self._lock:
            return self._socket.send(data)

    def sendall(self, data: bytes) -> None:
        """As a socket's."""
        with self._lock:
            self._socket.sendall(data)

    def recv(self, size: int) -> bytes:
        """As a socket's, and whatever else is decrypted: that makes nothing readable once more."""
        with self._lock:
            try:
                data: bytes = self._socket.recv(size)
                while pending := self._socket.pending():
                    data += self._socket.recv(pending)
            except ValueError as error:  # closed at this very moment
                raise OSError(errno.EBADF, str(error)) from error
            return data


def check_files(address: Address) -> None:
    """
    Look for the files of *address*; all that Python says of one is that there is no such file.

    Raises:
        ValueError: One of them cannot be read.
    """
    for option in FILES:
        path = (address.tls or {}).get(option)
        if path is not None and not os.access(str(path), os.R_OK):
            raise ValueError(f"{option} is {path!r}, and that file cannot be read")


def hint(address: Address, text: str) -> str:
    """What the error *text* on the way to *address* may mean; empty: what it says."""
    ended = any(sign in text for sign in ENDED)
    if address.tls is None:
        return "; it may speak TLS on this port (rediss://)" if ended else ""
    if "ssl_certfile" in address.tls or not (ended or any(sign in text for sign in SILENT)):
        return ""
    return (
        "; it may want to see a certificate (ssl_certfile and ssl_keyfile), or it does not speak "
        "TLS on this port"
    )

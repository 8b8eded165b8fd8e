"""Certificates of an authority of our own, and servers that use them."""

import functools
import tempfile
import weakref
from pathlib import Path
from shutil import rmtree
from urllib.parse import quote, urlencode

import trustme

from celery_atomicity.testing import Server, free_port
from celery_atomicity.testing.errors import ServerError
from support.servers import KINDS


class Authority:
    """
    Signs a server's and a client's certificate; files of both are in *directory*.

    Args:
        names: Of the server's certificate.
    """

    def __init__(self, *names):
        self.directory = Path(tempfile.mkdtemp(prefix="atomicity-tls-"))
        weakref.finalize(self, rmtree, self.directory, ignore_errors=True)
        signer = trustme.CA()
        signer.cert_pem.write_to_path(str(self.ca))
        for name, issued in (
            ("server", signer.issue_cert(*(names or ("localhost", "127.0.0.1", "::1")))),
            ("client", signer.issue_cert("worker.example")),
        ):
            issued.private_key_pem.write_to_path(str(self.directory / f"{name}.key"))
            issued.cert_chain_pems[0].write_to_path(str(self.directory / f"{name}.pem"))

    @property
    def ca(self):
        return self.directory / "ca.pem"

    @property
    def client(self):
        """The options by which a client shows its certificate."""
        return {
            "ssl_certfile": str(self.directory / "client.pem"),
            "ssl_keyfile": str(self.directory / "client.key"),
        }

    @property
    def trusted(self):
        """The options by which a client believes us."""
        return {"ssl_ca_certs": str(self.ca)}

    @property
    def options(self):
        """What a server is told to use its certificate, as its own options."""
        return (
            *("--tls-cert-file", str(self.directory / "server.pem")),
            *("--tls-key-file", str(self.directory / "server.key")),
            *("--tls-ca-cert-file", str(self.ca)),
        )


class TlsServer(Server):
    """A server that speaks TLS on *tls_port*; the tests themselves use its plain port."""

    def __init__(self, authority, *, client_certificate=False, arguments=(), **options):
        self.tls_port = free_port()
        self.authority = authority
        super().__init__(
            tls_binary(),
            arguments=(
                *("--tls-port", str(self.tls_port)),
                *authority.options,
                *("--tls-auth-clients", "yes" if client_certificate else "no"),
                *arguments,
            ),
            **options,
        )

    def tls_url(self, host="localhost", **options):
        """Where it is reached by TLS, with *options* as its URL holds them."""
        query = f"?{urlencode(options, quote_via=quote)}" if options else ""
        return f"rediss://{host}:{self.tls_port}/0{query}"


@functools.cache
def tls_binary():
    """The first server of this machine that was built with TLS; None: there is none."""
    authority = Authority()
    for find, _ in KINDS.values():
        binary = find()
        if binary is None:
            continue
        arguments = ("--tls-port", str(free_port()), *authority.options)
        try:
            with Server(binary, arguments=arguments):
                return binary
        except ServerError:
            continue
    return None

"""A master, a replica, and a sentinel that fails over to it when the master dies."""

import subprocess

from celery_atomicity.testing import Server, find_server, free_port, wait_until
from celery_atomicity.testing.machine import HOST, dies_with_us
from support.tls import TlsServer, tls_binary

NAME = "main"

# Milliseconds after which a silent master counts as down.
DOWN = 400

# A master waits five seconds before it sends itself to a replica; there is only one.
QUICK = ("--repl-diskless-sync-delay", "0")


class Sentinel(Server):
    """The sentinel program; everything that a server can be told, it can be."""

    def __init__(self, master_port, *, authority=None, password=""):
        self.tls_port = free_port()
        self.authority = authority
        self.master_port = master_port
        self.sentinel_password = password
        super().__init__(tls_binary() if authority else find_server())

    @property
    def _password(self):
        return self.sentinel_password or None

    def _launch(self):
        lines = [
            f"port {self.port}",
            f"dir {self.directory}",
            f"sentinel monitor {NAME} {HOST} {self.master_port} 1",
            f"sentinel down-after-milliseconds {NAME} {DOWN}",
            f"sentinel failover-timeout {NAME} 4000",
        ]
        if self.sentinel_password:
            lines.append(f"requirepass {self.sentinel_password}")
        if self.authority is not None:
            names = ("tls-cert-file", "tls-key-file", "tls-ca-cert-file")
            values = self.authority.options[1::2]
            lines += [f"{name} {value}" for name, value in zip(names, values, strict=True)]
            lines += [f"tls-port {self.tls_port}", "tls-auth-clients no", "tls-replication yes"]
        config = self.directory / "sentinel.conf"
        config.write_text("\n".join(lines))
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*dies_with_us(), str(self.binary), str(config), "--sentinel"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def master(self):
        """The port of the master of today."""
        return int(self.cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])


class Site:
    """
    A master, its replica, and a sentinel; a second sentinel in the URL is down for good.

    Args:
        authority: Everything speaks TLS with each other and with us, by its certificates.
        password: Of the sentinel.
    """

    def __init__(self, authority=None, password=""):
        self.authority = authority
        self.password = password
        self.servers = [self._server() for _ in range(2)]
        self.sentinel = None
        self.nobody = free_port()

    def __enter__(self):
        one, other = self.servers
        for each in self.servers:
            each.start()
        other.cli("REPLICAOF", HOST, self._port(one))
        wait_until(lambda: "master_link_status:up" in other.cli("INFO", "replication"))
        self.sentinel = Sentinel(self._port(one), authority=self.authority, password=self.password)
        self.sentinel.start()
        wait_until(lambda: self._known() == ["1"], what="the sentinel knows the replica")
        return self

    def __exit__(self, *_):
        for each in (*self.servers, *filter(None, [self.sentinel])):
            each.close()

    @property
    def url(self):
        """As a Celery user writes it, without the options of TLS."""
        port = self.sentinel.tls_port if self.authority else self.sentinel.port
        hosts = f"{HOST}:{self.nobody};sentinel://{HOST}:{port}"
        return f"sentinel://{hosts}/{NAME}/0"

    @property
    def master(self):
        """The server that the sentinel calls master."""
        port = self.sentinel.master()
        return next(each for each in self.servers if self._port(each) == port)

    @property
    def replica(self):
        return next(each for each in self.servers if each is not self.master)

    def await_failover(self, before):
        """Wait until another than *before* is master, and takes writes."""

        def over():
            return self.master is not before and self.master.cli("ROLE")[0] == "master"

        wait_until(over, 60, what="the sentinel has failed over")

    def _server(self):
        if self.authority is None:
            return Server(arguments=QUICK)
        return TlsServer(self.authority, arguments=("--tls-replication", "yes", *QUICK))

    def _port(self, server):
        return server.tls_port if self.authority else server.port

    def _known(self):
        [fields] = self.sentinel.cli("SENTINEL", "MASTERS")
        described = dict(zip(fields[::2], fields[1::2], strict=True))
        return [described["num-slaves"]]

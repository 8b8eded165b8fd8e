"""All that a play needs: arbiters behind proxies, a broker, a guarded table, and the nodes."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from support.proxy import Proxy

from celery_atomicity.testing import Server, ServerError, wait_until
from chaos.brokers import RabbitMQ, Redis
from chaos.checker import Evidence
from chaos.journal import Journal, Reader, now
from chaos.nodes import Node
from chaos.table import Table

KEYS = ("a", "b", "c")
SLOTS = 8

#: Entries of beat: every so many seconds, and over how many slots (0: one message).
SCHEDULE = {"one": (1.0, 0), "two": (2.0, 0), "three": (3.0, 0), "swept": (2.0, SLOTS)}

#: A rate a second, and its burst.
PACE, TENANT = (10, 5), (2, 1)

#: Both halves of the fleet have links of their own to each arbiter.
SIDES = 2

# Synced once a second: what a process wrote, a kill of the process does not take.
DURABLE = ("--appendfsync", "everysec")


class Stage:
    """
    Args:
        servers: How many arbiters; locks are taken over all of them, all else over the first.
        interval: Of the fleet, in seconds, as are *ttl* and *timeout*.
        broken: The name of a broken build, see `broken`.
        broker: ``"redis"`` or ``"rabbitmq"``.
        keep: Whether the logs and journals stay in *directory*.
    """

    def __init__(
        self,
        servers=1,
        *,
        interval=0.5,
        ttl=2.0,
        timeout=0.2,
        schedule=SCHEDULE,
        broken="",
        broker="redis",
        keep=False,
    ):
        self.keep = keep
        self.directory = Path(tempfile.mkdtemp(prefix="atomicity-chaos-"))
        self.journals = self.directory / "journals"
        self.journals.mkdir()
        self.journal = Journal(self.journals, "stage")
        self.reader = Reader(self.journals)
        self.ttl = ttl
        self.interval = interval
        self.servers = [Server(persistent=True, arguments=DURABLE) for _ in range(servers)]
        self.broker = {"redis": Redis, "rabbitmq": RabbitMQ}[broker]()
        self.proxies = []
        self.nodes = []
        self.table = Table(self.directory / "table").create(KEYS)
        self.trap = self.directory / "trap"
        self._numbers = {}
        self._told = {
            "interval": interval,
            "ttl": ttl,
            "timeout": timeout,
            "journal": str(self.journals),
            "table": str(self.table.path),
            "trap": str(self.trap),
            "schedule": schedule,
            "slots": SLOTS,
            "pace": (f"{PACE[0]}/s", PACE[1]),
            "tenant": (f"{TENANT[0]}/s", TENANT[1]),
            "transport": self.broker.transport,
            "broken": broken,
        }
        self.journal.note(
            "plan",
            ttl=ttl,
            interval=interval,
            servers=servers,
            schedule=schedule,
            limits={"pace": PACE, "tenant": TENANT},
        )

    def __enter__(self):
        try:
            for server in self.servers:
                server.start()
            self.broker.start()
        except BaseException:
            self.__exit__()
            raise
        self.proxies = [[Proxy(server.port) for _ in range(SIDES)] for server in self.servers]
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.kill()
        for proxy in (proxy for each in self.proxies for proxy in each):
            proxy.close()
        for server in self.servers:
            server.close()
        self.broker.close()
        self.table.close()
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def spawn(self, kind):
        """Start a node; returns at once."""
        number = self._numbers[kind] = self._numbers.get(kind, 0) + 1
        side = (sum(self._numbers.values())) % SIDES
        told = self._told | {
            "broker": self.broker.url,
            "redis": [proxies[side].url for proxies in self.proxies],
        }
        node = Node(f"{kind}{number}", kind, told, self.directory)
        self.nodes.append(node)
        self.journal.note("spawned", node=node.name, kind=kind)
        return node

    def come_up(self, timeout=90):
        """Wait until every node has."""
        for node in self.nodes:
            wait_until(lambda node=node: node.ready or not node.runs, timeout, f"{node} comes up")
            assert node.runs, f"{node} did not come up:\n{node.last_words()}"

    def tend(self):
        """Take leave of nodes that have ended, and note those that nobody has ended."""
        for node in [node for node in self.nodes if not node.runs]:
            self.nodes.remove(node)
            if not node.expected:
                log = node.last_words()
                self.journal.note(
                    "ended",
                    node=node.name,
                    code=node.process.returncode,
                    log=log,
                    # Or no reason is given at all.
                    ours="/celery_atomicity/" in log or not log.startswith("CRITICAL"),
                )
                self.spawn(node.kind)  # as a service manager does
            node.kill()  # what it leaves behind

    def look(self, **facts):
        """Write down which keys never run out, on the arbiters that answer."""
        for number, server in enumerate(self.servers):
            try:
                keys = [key for key in server.cli("KEYS", "atom:*", timeout=0.2) if _expires(key)]
                endless = [key for key in keys if server.cli("PTTL", key, timeout=0.2) == -1]
            except (OSError, ServerError):
                continue  # it is frozen or down
            self.journal.note("look", server=number, count=len(keys), endless=endless, **facts)

    def last_look(self):
        """When nobody holds anything any more: what is left after the last ttl has passed."""
        after = self.ttl + 1.0

        def locks(server):
            return server.cli("KEYS", "atom:*:lock:*")

        with suppress(AssertionError):
            wait_until(lambda: not any(map(locks, self.servers)), after)
        for number, server in enumerate(self.servers):
            if left := locks(server):
                self.journal.note("look", server=number, endless=[], left=left, after=after)
        self.look()

    def holders(self):
        """The nodes of whom a lease was seen to live a moment ago."""
        since = now() - 0.3
        recent = self.reader.read()[-3000:]
        names = {r["by"] for r in recent if r["what"] == "lives" and r["t"] > since}
        return [node for node in self.nodes if node.name in names]

    def evidence(self):
        """All that has been written down."""
        return Evidence(self.reader.read(), self.table.writes())


def _expires(key):
    """Whether *key* is one of those that have to run out: all but the marker and the last fence."""
    return key != "atom:server" and not key.endswith(":fence")

"""A bare socket to a server: the least that any client can do. And where processes run."""

from __future__ import annotations

import os
import socket
import time

from celery_atomicity.connection.resp import pack

# As much as is read at a time. Room for a megabyte takes 14 us to make, which is a tenth of a trip.
CHUNK = 1 << 16


class Wire:
    """Commands packed beforehand over one socket, each answer read to its last line."""

    def __init__(self, server) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, command, lines=1):
        """Send *command* and read so many lines."""
        self.socket.sendall(command)
        return self.read(lines)

    def read(self, lines=1):
        answer = self.socket.recv(CHUNK)
        seen = answer.count(b"\r\n")
        while seen < lines:
            more = self.socket.recv(CHUNK)
            answer += more
            seen += more.count(b"\r\n")
        return answer

    def say(self, *arguments):
        """One command from its arguments, when nothing is timed."""
        return self.ask(pack(arguments))

    def lines(self, command):
        """How many lines the answer to *command* has; those of later ones are as long."""
        self.socket.sendall(command)
        time.sleep(0.2)
        return self.socket.recv(1 << 20).count(b"\r\n")

    def load(self, source):
        """Make a script known; its hash."""
        return self.say("SCRIPT", "LOAD", source).split(b"\r\n")[-2].decode()


class Fixed:
    """One of the package's scripts with fixed arguments: each call is one round trip."""

    def __init__(self, server, script, keys, arguments) -> None:
        self.wire = Wire(server)
        self.wire.load(script.source)
        self.command = script.command(keys, arguments).data
        self.tail = self.wire.lines(self.command)

    def __call__(self):
        self.wire.ask(self.command, self.tail)


class Bare:
    """A bare round trip: an EVALSHA of a script that does nothing."""

    def __init__(self, server) -> None:
        self.wire = Wire(server)
        self.command = pack(["EVALSHA", self.wire.load("return 1"), 1, "k"])

    def __call__(self):
        self.wire.ask(self.command)


# The two ways to pin: the server on a core of its own, where each call wakes somebody, as a remote
# host does; or everything on one core, where nothing overlaps and only work is counted.
APART, TOGETHER = "server on a core of its own", "client and server on one core"


def pin(how, *servers):
    """Pin this thread, those that it will start, and *servers*; nothing where that cannot be."""
    if not hasattr(os, "sched_setaffinity"):
        return False
    cores = sorted(_ALL)
    if len(cores) < 2:
        return False
    os.sched_setaffinity(0, {cores[0]})
    for server in servers:
        os.sched_setaffinity(server.pid, {cores[1 if how == APART else 0]})
    return True


def unpin(*servers):
    if hasattr(os, "sched_setaffinity"):
        for pid in (0, *(server.pid for server in servers)):
            os.sched_setaffinity(pid, _ALL)


_ALL = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()

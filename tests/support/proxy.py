"""A TCP proxy between a client and a server of the loopback, with faults to switch on and off."""

import contextlib
import selectors
import socket
import threading
from dataclasses import dataclass
from urllib.parse import urlsplit

HOST = "127.0.0.1"
CHUNK = 65536


@dataclass(eq=False)
class Link:
    """One client's connection, and the one to the server that belongs to it."""

    client: socket.socket
    server: socket.socket | None = None
    swallowed: bool = False  # something was withheld for good: the two ends are out of step
    doomed: bool = False  # ends with the next answer, which the client does not get

    def end(self):
        # The thread that serves the link sits in poll: this wakes it, and it closes.
        for end in (self.client, self.server):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.client.close()
        if self.server is not None:
            self.server.close()


@dataclass(frozen=True)
class Mode:
    """What happens to requests; one object a switch, so that its *over* ends its own waits."""

    name: str
    over: threading.Event
    seconds: float = 0.0
    match: bytes = b""


class Proxy:
    """
    Passes bytes on to *target_port* until told otherwise; the faults are methods.

    The port stays its own while it refuses. Each method returns when its fault is in force.
    """

    def __init__(self, target_port, url=""):
        self.target_port = target_port
        self._credentials = "".join(urlsplit(url).netloc.rpartition("@")[:2])
        self._lock = threading.Lock()
        self._links = {}
        self._accepted = 0
        self._to_drop = 0
        self._mode = Mode("pass", threading.Event())
        # Bound but never listening: keeps the port ours while nobody listens on it.
        self._claim = self._bound(0)
        self.port = self._claim.getsockname()[1]
        self._listening = None
        self._listen()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def url(self):
        return f"redis://{self._credentials}{HOST}:{self.port}/0"

    @property
    def connections(self):
        """How many clients are connected now."""
        with self._lock:
            return len(self._links)

    @property
    def accepted(self):
        """How many connections were accepted since the proxy began."""
        with self._lock:
            return self._accepted

    def heal(self):
        """Pass everything on. Links that lost bytes are closed: their ends are out of step."""
        self._switch("pass")
        self._listen()

    def cut(self):
        """Close all connections and refuse new ones, as a port where nobody listens does."""
        self._switch("cut")
        self._refuse()
        self._end_links()

    def hang(self):
        """Accept connections and requests, and never answer: a host that is gone."""
        self._switch("hang")
        self._listen()

    def delay(self, seconds):
        """Pass each request on *seconds* later; one that waits goes on at the next switch."""
        self._switch("delay", seconds=seconds)
        self._listen()

    def drop_answers(self, count=1, match=b""):
        """
        Pass the next *count* requests on, and close their connections instead of answering.

        Only requests that hold *match* count: a new connection begins with ones of its own.
        """
        self._switch("drop", match=match, count=count)
        self._listen()

    def close(self):
        self.cut()
        self._claim.close()
        with self._lock:
            threads = list(self._links.values())
        for thread in threads:
            thread.join(5)

    @property
    def left_to_drop(self):
        """How many of the requests of `drop_answers` are still to come."""
        with self._lock:
            return self._to_drop

    def _switch(self, name, *, count=0, **values):
        with self._lock:
            before, self._mode = self._mode, Mode(name, threading.Event(), **values)
            self._to_drop = count
            out_of_step = [link for link in self._links if link.swallowed]
        before.over.set()
        if name != "hang":
            for link in out_of_step:
                link.end()

    def _end_links(self):
        with self._lock:
            links = list(self._links)
        for link in links:
            link.end()

    def _bound(self, port):
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((HOST, port))
        return bound

    def _listen(self):
        if self._listening is None:
            listener = self._bound(self.port)
            listener.listen(256)
            wake, stop = socket.socketpair()
            thread = threading.Thread(target=self._accept, args=(listener, wake), daemon=True)
            thread.start()
            self._listening = (thread, stop)

    def _refuse(self):
        if self._listening is not None:
            thread, stop = self._listening
            stop.close()
            thread.join(5)
            self._listening = None

    def _accept(self, listener, wake):
        with listener, wake, selectors.PollSelector() as ready:
            ready.register(listener, selectors.EVENT_READ)
            ready.register(wake, selectors.EVENT_READ)
            while True:
                if any(key.fileobj is wake for key, _ in ready.select()):
                    return
                client, _ = listener.accept()
                link = Link(client)
                thread = threading.Thread(target=self._serve, args=(link,), daemon=True)
                with self._lock:
                    self._links[link] = thread
                    self._accepted += 1
                thread.start()

    def _serve(self, link):
        try:
            while self._pump(link):
                pass
        except OSError:
            pass  # one end is gone: so is the other
        finally:
            link.close()
            with self._lock:
                del self._links[link]

    def _pump(self, link):
        with selectors.PollSelector() as ready:
            for end in filter(None, (link.client, link.server)):
                ready.register(end, selectors.EVENT_READ)
            readable = [key.fileobj for key, _ in ready.select()]
        for end in readable:
            chunk = end.recv(CHUNK)
            passed = self._request if end is link.client else self._answer
            if not chunk or not passed(link, chunk):
                return False
        return True

    def _request(self, link, chunk):
        mode = self._mode
        while mode.name == "delay" and mode.over.wait(mode.seconds):
            mode = self._mode  # the wait ended early, by a switch
        with self._lock:
            mode = self._mode
            link.swallowed |= mode.name == "hang"
            if mode.name == "drop" and self._to_drop and mode.match in chunk:
                self._to_drop -= 1
                link.doomed = True
        if mode.name in ("hang", "cut"):
            return mode.name == "hang"
        if link.server is None:
            # Not before: while it hangs, nobody needs a server behind it.
            link.server = socket.create_connection((HOST, self.target_port), timeout=5)
            link.server.settimeout(None)
        link.server.sendall(chunk)
        return True

    def _answer(self, link, chunk):
        with self._lock:
            hangs = self._mode.name == "hang"
            link.swallowed |= hangs
        if link.doomed:
            return False
        if not hangs:
            link.client.sendall(chunk)
        return True

"""
What a lock costs, beside bare round trips and beside other locks; and handing one over.

    python benchmarks/lock.py             # needs the dependency group ``bench``
    python benchmarks/lock.py --pin       # client and server on one core: only work is counted

A bare round trip is a raw socket that sends an EVALSHA of a trivial script and reads the answer;
two are the least that taking and letting go can cost. All cases take turns, so that whatever else
the machine does meets each of them; what counts is the ratio of the medians. pottery takes part
where it is installed; it asks for an older redis-py than this package's tests run on.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import statistics
import threading
import time
from importlib.metadata import PackageNotFoundError, version

from redis import Redis

from celery_atomicity import Atom
from celery_atomicity.connection.resp import pack
from celery_atomicity.settings import Settings
from celery_atomicity.testing import Server

ROUNDS, CALLS = 15, 100
HANDOVERS = 200


def raw(server):
    """Two bare round trips."""
    wire = socket.create_connection(("127.0.0.1", server.port))
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    command = pack(["EVALSHA", server.cli("SCRIPT", "LOAD", "return 1"), 1, "k"])

    def twice():
        for _ in range(2):
            wire.sendall(command)
            wire.recv(100)

    return twice


def ours(*servers, group="bench"):
    settings = Settings.read(
        {"atomicity_redis": [one.url for one in servers], "atomicity_restart_grace": 0}, {}
    )
    atom = Atom(group, settings=settings)

    def once():
        with atom.lock("k"):
            pass

    return once, atom


def peers(server):
    """Other packages' locks, those that are installed."""
    client = Redis(port=server.port)

    def redis_py():
        with client.lock("redis-py", timeout=10):
            pass

    found = {"redis-py Lock": redis_py}
    try:
        import redis_lock

        def python_redis_lock():
            with redis_lock.Lock(client, "python-redis-lock", expire=10):
                pass

        found["python-redis-lock"] = python_redis_lock
    except ImportError:
        print("python-redis-lock is not installed and left out")
    try:
        from pottery import Redlock

        def pottery():
            with Redlock(key="pottery", masters={client}, auto_release_time=10):
                pass

        found["pottery Redlock"] = pottery
    except ImportError:
        print("pottery is not installed and left out")
    return found


def measure(cases, rounds=ROUNDS, calls=CALLS):
    """The median and the 99th percentile of each case, in microseconds."""
    times = {name: [] for name in cases}
    for case in cases.values():
        case()
    for _ in range(rounds):
        for name, case in cases.items():
            for _ in range(calls):
                before = time.perf_counter()
                case()
                times[name].append((time.perf_counter() - before) * 1e6)
    return {
        name: (statistics.median(found), sorted(found)[int(len(found) * 0.99)])
        for name, found in times.items()
    }


def show(found):
    base = next(iter(found.values()))[0]
    for name, (median, late) in found.items():
        print(f"  {name:36} {median:8.0f} us  p99 {late:8.0f} us   {median / base:5.2f}")


def handovers(server):
    """Microseconds from letting go to being held by the next: ours, and a raw BLPOP token."""
    _, holder = ours(server)
    # Connections of its own, as another process has.
    settings = Settings.read(
        {
            "atomicity_redis": server.url,
            "atomicity_restart_grace": 0,
            "atomicity_timeout": 0.9,
        },
        {},
    )
    next_one = Atom("bench", settings=settings)
    client = Redis(port=server.port)
    return {
        "a token that BLPOP waits for": statistics.median(
            _handover(
                lambda: lambda: client.rpush("token", "x"),
                lambda: Redis(port=server.port).blpop("token", timeout=5),
            )
        ),
        "our lock": statistics.median(
            _handover(
                lambda: holder.lock("h").acquire().release,
                lambda: next_one.lock("h", wait=5).acquire(),
                lambda lease: lease.release(),
            )
        ),
    }


def _handover(take, wait, after=lambda _it: None):
    times = []
    for _ in range(HANDOVERS):
        let_go, got = take(), []

        def waiter(got=got):
            it = wait()
            got.append(time.perf_counter())
            after(it)

        thread = threading.Thread(target=waiter)
        thread.start()
        time.sleep(0.01)
        before = time.perf_counter()
        let_go()
        thread.join()
        times.append((got[0] - before) * 1e6)
    return times


def versions():
    found = []
    for name in ("redis", "hiredis", "pottery", "python-redis-lock"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} -")
    return ", ".join(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--pin", action="store_true", help="client and servers on one core")
    options = parser.parse_args()
    if options.pin:
        os.sched_setaffinity(0, {0})
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {versions()}")
    with Server() as one, Server() as two, Server() as three:
        print(f"redis {Redis(port=one.port).info('server')['redis_version']}")
        alone, _ = ours(one)
        print("\nTake and let go, uncontended; the last column is the share of two round trips:")
        show(measure({"two bare round trips": raw(one), "ours, 1 address": alone, **peers(one)}))
        majority, _ = ours(one, two, three)
        print("\nOn three addresses; the last column is the share of one address:")
        show(measure({"1 address": alone, "3 addresses": majority}))
        two.freeze()
        time.sleep(1.5)
        print("\nWith one of three frozen:")
        show(measure({"1 address": alone, "3 addresses, 1 frozen": majority}))
        two.thaw()
        print("\nLet go to held by the next in line:")
        found = handovers(one)
        base = next(iter(found.values()))
        for name, median in found.items():
            print(f"  {name:36} {median:8.0f} us  {median / base:5.2f}")


if __name__ == "__main__":
    main()

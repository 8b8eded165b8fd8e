"""
The locks that are measured: ours, and those of other packages, each behind two functions.

A contender is made in the process that uses it, ``contender(servers, key)``, and answers with
``take() -> token``, which waits for as long as it takes, and ``let_go(token)``. What is not
installed is left out, and said to be.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging

from redis import Redis

from benchmarks.wire import Fixed, Wire
from celery_atomicity import Atom
from celery_atomicity.connection import Script
from celery_atomicity.connection.resp import pack
from celery_atomicity.primitives.holding import LIVE_MS
from celery_atomicity.settings import Settings

OURS = "celery-atomicity"
TTL = 10  # seconds, for all


def atom_on(*servers, group="bench"):
    """An atom on *servers* that grants from the start."""
    urls = [server.url for server in servers]
    return Atom(
        group,
        settings=Settings.read({"atomicity_redis": urls, "atomicity_restart_grace": 0}, {}),
    )


def ours(servers, key):
    atom = atom_on(*servers)

    def take():
        lock = atom.lock(key)
        lock.__enter__()
        return lock

    return take, lambda lock: lock.__exit__(None, None, None)


def redis_py(servers, key):
    client = Redis(port=servers[0].port)

    def take():
        lock = client.lock(key, timeout=TTL)
        lock.acquire()
        return lock

    return take, lambda lock: lock.release()


def python_redis_lock(servers, key):
    import redis_lock

    logging.getLogger("redis_lock").setLevel(logging.ERROR)
    client = Redis(port=servers[0].port)

    def take():
        lock = redis_lock.Lock(client, key, expire=TTL)
        lock.acquire()
        return lock

    return take, lambda lock: lock.release()


def pottery(servers, key):
    from pottery import Redlock

    masters = {Redis(port=server.port, socket_timeout=1) for server in servers}

    def take():
        lock = Redlock(key=key, masters=masters, auto_release_time=TTL)
        lock.acquire()
        return lock

    return take, lambda lock: lock.release()


def redis_fifo_lock(servers, key):
    """It is asyncio's; a loop of its own is entered for each of the two calls."""
    from redis.asyncio import Redis as AsyncRedis
    from redis_fifo_lock import FifoLock

    loop = asyncio.new_event_loop()
    lock = FifoLock(AsyncRedis(port=servers[0].port), key)

    def take():
        return loop.run_until_complete(lock.acquire())

    return take, lambda lease: loop.run_until_complete(lock.release(lease))


def raw_grant(servers, key):
    """
    First come, first granted, and nothing else: what a waiting lock cannot do without.

    A release grants to the next in line and rings its box, for which it waits with BLPOP. Nobody's
    death is noticed, nothing runs out, and there is no fence.
    """
    wire = Wire(servers[0])
    take_it, give_it = wire.load(GRANT_TAKE), wire.load(GRANT_GIVE)
    box = f"{key}:box:{id(wire)}:{wire.socket.getsockname()[1]}"
    acquire = pack(["EVALSHA", take_it, 2, key, f"{key}:line", box])
    release = pack(["EVALSHA", give_it, 2, key, f"{key}:line"])
    wait = pack(["BLPOP", box, 0])

    def take():
        if wire.ask(acquire) != b":1\r\n":
            wire.ask(wait, 5)

    return take, lambda _: wire.ask(release)


GRANT_TAKE = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX') then return 1 end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 0
"""
GRANT_GIVE = """
local box = redis.call('LPOP', KEYS[2])
if not box then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], box)
return redis.call('RPUSH', box, 1)
"""

RAW = "raw first-come grant"

PEERS = {
    "redis-py Lock": (redis_py, "redis"),
    "python-redis-lock": (python_redis_lock, "redis_lock"),
    "pottery Redlock": (pottery, "pottery"),
    "redis-fifo-lock": (redis_fifo_lock, "redis_fifo_lock"),
}


def present(section):
    """The peers that are installed; *section* is told of those that are not."""
    found = {}
    for name, (make, module) in PEERS.items():
        if importlib.util.find_spec(module):
            found[name] = make
        else:
            section.notes.append(f"{name} is not installed and left out")
    return found


def both(made):
    """Take and let go, as one call."""
    take, let_go = made

    def once():
        let_go(take())

    return once


def raw_scripts(server, key="raw"):
    """Our own two scripts with fixed arguments: the round trips and the work of the server."""
    from celery_atomicity import keys as names

    places = names.lock_places("raw", [key])
    lease = "0" * 32
    acquire = Fixed(
        server,
        Script("acquire"),
        places,
        [lease, f"{lease}.1 somebody", TTL * 1000, 0, "", LIVE_MS, 0],
    )
    release = Fixed(server, Script("release"), places, [lease, 0, LIVE_MS, "", ""])

    def once():
        acquire()
        release()

    return once

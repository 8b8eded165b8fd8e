"""
Greenlets that lock on several addresses, and are torn away from it.

    python -m support.many_addresses POOL URL...
"""

import sys

pool = sys.argv[1]
if pool == "gevent":
    from gevent import monkey

    monkey.patch_all()
    from gevent import Timeout
else:
    import eventlet

    eventlet.monkey_patch()
    from eventlet import Timeout

import random  # noqa: E402
import threading  # noqa: E402

from celery_atomicity.connection import Clients  # noqa: E402
from celery_atomicity.primitives.keeper import Keeper  # noqa: E402
from celery_atomicity.primitives.lock import Locks  # noqa: E402
from celery_atomicity.settings import Settings  # noqa: E402

settings = Settings.read({"atomicity_redis": sys.argv[2:], "atomicity_restart_grace": 0.0}, {})
clients = Clients(settings)
locks = Locks(clients, Keeper(clients), "many")
troubles, held, inside = [], [], set()


def use(number):
    dice = random.Random(number)
    try:
        for turn in range(15):
            key = f"key {(number + turn) % 7}"
            with Timeout(dice.uniform(0, 0.02), exception=False):  # as a soft time limit
                lock(key)
            lock(key)
            held.append(key)
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        troubles.append(repr(error))


def lock(key):
    with locks.lock(key, ttl=5.0, wait=20.0) as lease:
        if key in inside:
            troubles.append(f"{key} is held twice")
        inside.add(key)
        try:
            clients.command("PING")  # others run meanwhile
            lease.check()
        finally:
            inside.discard(key)


threads = [threading.Thread(target=use, args=(number,)) for number in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(set(troubles)), len(held))

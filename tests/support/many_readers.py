"""Greenlets that wait to be rung, and ask: ``python -m support.many_readers POOL URL``."""

import sys

pool = sys.argv[1]
if pool == "gevent":
    from gevent import monkey

    monkey.patch_all()
else:
    import eventlet

    eventlet.monkey_patch()

import random  # noqa: E402
import threading  # noqa: E402

from celery_atomicity.connection import Clients  # noqa: E402
from celery_atomicity.connection.mailbox import Mailbox  # noqa: E402
from celery_atomicity.settings import Settings  # noqa: E402

settings = Settings.read({"atomicity_redis": sys.argv[2]}, {})
mailbox = Mailbox(settings, lambda process: f"many:{process}")
clients = Clients(settings)
troubles, heard = [], []


def use(number):
    dice = random.Random(number)
    try:
        for turn in range(40):
            ticket = f"{number}-{turn}"
            bell = mailbox.expect(ticket)
            bell.muffle()
            mailbox.wait(bell, dice.uniform(0, 0.02))
            clients.command("PUBLISH", mailbox.channel, ticket)
            mailbox.wait(bell, 10)
            heard.append(bell.done)
            mailbox.forget(ticket)
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        troubles.append(repr(error))


threads = [threading.Thread(target=use, args=(number,)) for number in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(set(troubles)), heard.count(True), heard.count(False))

"""A task that reads, thinks and writes, and may be stopped in between for longer than its lease."""

import os
import sys

from celery import Celery
from redis_ledger import RedisLedger
from sqlite_ledger import SQLiteLedger

from celery_atomicity import Atomicity, LeaseLost, current_lease, singleton_by

app = Celery("bank", broker="memory://")
Atomicity(app)  # reads ATOMICITY_REDIS

ledger = os.environ["LEDGER"]
ledger = RedisLedger(ledger) if ledger.startswith("redis://") else SQLiteLedger(ledger)


class TooLate(Exception):
    """Somebody has written who was given the account after us."""


@app.task
@singleton_by("{account}", ttl=1)
def book(account, amount):
    balance = ledger.read(account)
    print(f"read {balance}", flush=True)
    sys.stdin.readline()  # a slow network, a full disk, a machine that sleeps
    if not ledger.write(account, balance + amount, current_lease.fence):
        raise TooLate(f"{balance + amount} was not written")
    print(f"wrote {balance + amount}", flush=True)


if __name__ == "__main__":
    # Called, it does in this process what it does in a worker.
    try:
        book(sys.argv[1], int(sys.argv[2]))
    except LeaseLost as error:
        print(f"LeaseLost, from {error.__cause__!r}", flush=True)

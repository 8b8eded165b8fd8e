import os
import random
import time
from urllib.request import urlopen

from celery_atomicity import current_lease, partitioned, rate_limited, singleton_by
from shop import journal
from shop.celery import app

PARTNER = os.environ.get("SHOP_PARTNER", "http://localhost:8000")

# What the shop and its partner have agreed on.
RATE, BURST = 10, 5
SLOTS = 128


@app.task
@singleton_by("{account_id}")
def sync(account_id):
    """Bring one account up to date; the bank's API falls over if two do so at once."""
    with journal.span("sync", account_id, fence=current_lease.fence):
        time.sleep(random.uniform(0.05, 0.25))


@app.task
@rate_limited(f"{RATE}/s", burst=BURST)
def call_partner(order_id):
    """Tell the partner of an order; it blocks whoever calls more often than agreed."""
    with urlopen(f"{PARTNER}/orders/{order_id}", timeout=5) as answer:
        answer.read()
    journal.note("call", order_id)


@app.task(bind=True)
@partitioned(slots=SLOTS)
def sweep(self, slot):
    """Look through one slot of all carts for those that were left standing."""
    time.sleep(0.005)
    journal.note("sweep", slot, due=self.request.headers["atomicity_due"])

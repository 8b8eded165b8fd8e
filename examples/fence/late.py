"""
A late write is refused: of two bookings, the first is stopped for longer than its lease.

    python examples/fence/late.py            # the balances are in SQLite
    python examples/fence/late.py --redis    # they are in Redis

Exits with 0 if the balance is right in the end.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from redis_ledger import RedisLedger
from sqlite_ledger import SQLiteLedger

from celery_atomicity.testing import Server, dies_with_us

HERE = Path(__file__).parent


class Booking:
    """A process that books, as a worker would."""

    def __init__(self, amount, environment):
        self.process = subprocess.Popen(
            [*dies_with_us(), sys.executable, HERE / "booking.py", "sam", str(amount)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.name = f"booking of {amount}"

    def says(self):
        line = self.process.stdout.readline().strip()
        print(f"{self.name}: {line}")
        return line

    def goes_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()


def main():
    with Server() as arbiter, tempfile.TemporaryDirectory() as directory:
        path = arbiter.url if "--redis" in sys.argv else f"{directory}/bank.db"
        ledger = RedisLedger(path) if "--redis" in sys.argv else SQLiteLedger(path)
        environment = {
            "LEDGER": path,
            "ATOMICITY_REDIS": arbiter.url,
            "ATOMICITY_RESTART_GRACE": "0",
        }

        slow = Booking(100, environment)
        slow.says()
        os.kill(slow.process.pid, signal.SIGSTOP)
        print(f"{slow.name}: stopped, and its lease of one second runs out")

        quick = Booking(7, environment)  # waits for the account until then
        quick.says()
        quick.goes_on()
        quick.says()
        quick.process.communicate()

        os.kill(slow.process.pid, signal.SIGCONT)
        slow.goes_on()
        said = slow.says()
        slow.process.communicate()

        balance = ledger.read("sam")
        print(f"the balance is {balance}")
        return 0 if balance == 7 and "TooLate" in said else 1


if __name__ == "__main__":
    sys.exit(main())

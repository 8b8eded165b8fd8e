"""Balances in SQLite, each beside the largest fence that has written it."""

import sqlite3
from contextlib import closing

TABLE = """
CREATE TABLE IF NOT EXISTS balances (
    account TEXT PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL
)
"""

# One statement, so that nothing comes between the comparison and the write. A fence that is equal
# is the same holder, who may write more than once.
WRITE = """
INSERT INTO balances (account, balance, fence) VALUES (:account, :balance, :fence)
ON CONFLICT (account) DO UPDATE SET balance = :balance, fence = :fence
WHERE balances.fence <= :fence
"""


class SQLiteLedger:
    def __init__(self, path):
        self.path = path
        with closing(self._connect()) as database, database:
            database.execute(TABLE)

    def read(self, account):
        with closing(self._connect()) as database:
            row = database.execute(
                "SELECT balance FROM balances WHERE account = ?", (account,)
            ).fetchone()
        return row[0] if row else 0

    def write(self, account, balance, fence):
        """Whether it was written: not if a larger fence has written before."""
        values = {"account": account, "balance": balance, "fence": fence}
        with closing(self._connect()) as database, database:
            return database.execute(WRITE, values).rowcount == 1

    def _connect(self):
        return sqlite3.connect(self.path, timeout=5)

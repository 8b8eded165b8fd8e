"""What is guarded: one row a key with the largest fence that has written, and who wrote when."""

import sqlite3
from contextlib import suppress

from chaos.journal import now


class Table:
    def __init__(self, path):
        self.path = path
        self.connection = sqlite3.connect(
            path, timeout=30, isolation_level=None, check_same_thread=False
        )
        self.connection.execute("PRAGMA synchronous=OFF")

    def create(self, keys):
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("CREATE TABLE row (key TEXT PRIMARY KEY, fence INTEGER)")
        self.connection.execute(
            "CREATE TABLE write (n INTEGER PRIMARY KEY, key TEXT, fence INTEGER, at REAL, who TEXT)"
        )
        self.connection.executemany("INSERT INTO row VALUES (?, 0)", [(key,) for key in keys])
        return self

    def write(self, key, fence, who=""):
        """Whether it was taken: not if a larger fence has written."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            taken = self.take(key, fence)
            if taken:
                self.connection.execute(
                    "INSERT INTO write (key, fence, at, who) VALUES (?, ?, ?, ?)",
                    (key, fence, now(), who),
                )
            self.connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")
            raise
        return taken

    def take(self, key, fence):
        return bool(
            self.connection.execute(
                "UPDATE row SET fence = ? WHERE key = ? AND fence <= ?", (fence, key, fence)
            ).rowcount
        )

    def writes(self):
        """All that was taken, in order: (key, fence, at, who)."""
        return self.connection.execute(
            "SELECT key, fence, at, who FROM write ORDER BY n"
        ).fetchall()

    def close(self):
        self.connection.close()

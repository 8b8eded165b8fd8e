"""
What happened, as each process wrote it down: one file a process, one line of JSON an event.

Times are seconds on a clock that all processes of the machine share. The checker reads these files
and nothing else, so nothing of the package is imported here.
"""

import json
import os
import time
from contextlib import suppress
from pathlib import Path

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now():
    return time.clock_gettime(_CLOCK)


class Journal:
    """
    Appends to the file of the calling process; also after a fork, and from any thread.

    A line is one write to a file that is opened to append, so that a process that is killed or
    frozen leaves whole lines.
    """

    def __init__(self, directory, writer):
        self.directory = Path(directory)
        self.writer = writer
        self._files = {}

    def note(self, what, **facts):
        line = json.dumps({"what": what, "t": now(), **facts}) + "\n"
        os.write(self._file(), line.encode())

    def _file(self):
        pid = os.getpid()
        if pid not in self._files:
            path = self.directory / f"{self.writer}+{pid}.jsonl"
            self._files[pid] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        return self._files[pid]


class Reader:
    """Reads what has been written since it last looked."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.records = []
        self._read = {}

    def read(self):
        for path in sorted(self.directory.glob("*.jsonl")):
            writer, _, pid = path.stem.rpartition("+")
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + whole
            for line in text[:whole].splitlines():
                with suppress(ValueError):
                    self.records.append({**json.loads(line), "by": writer, "pid": int(pid)})
        return self.records

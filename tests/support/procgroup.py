"""Process groups: who is in one, and what became of them."""

import os
import threading
from contextlib import suppress

import psutil

STEP = 0.02  # seconds


def counted(seconds):
    """Loop for about *seconds*: counted, not clocked, since a test may have frozen the time."""
    pause = threading.Event()
    for _ in range(max(1, round(seconds / STEP))):
        yield
        pause.wait(STEP)


def _group_of(pid):
    with suppress(ProcessLookupError, PermissionError):
        return os.getpgid(pid)
    return None


def members(group):
    return [each for each in psutil.process_iter() if _group_of(each.pid) == group]


def is_stopped(process):
    with suppress(psutil.NoSuchProcess):
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    return True


def runs(process):
    with suppress(psutil.NoSuchProcess):
        # The main thread may be a zombie while others still hold the process's sockets.
        ended = process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
        return process.is_running() and not ended
    return False

"""Tasks of the nodes under test; their source is copied to the nodes."""

import os
import time

from celery import shared_task


@shared_task(bind=True)
def whoami(self):
    """Return the node that runs it."""
    return self.request.hostname


@shared_task
def pids():
    """Return the process that runs it and its parent."""
    return os.getpid(), os.getppid()


@shared_task(acks_late=True, reject_on_worker_lost=True)
def doze(seconds):
    time.sleep(seconds)
    return os.getpid()

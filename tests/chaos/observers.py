"""What the fleet's processes write down beside their tasks: what they own, and what they send."""

import os
import signal
import threading
import time
from pathlib import Path

from celery.signals import (
    after_task_publish,
    before_task_publish,
    task_prerun,
    worker_process_init,
    worker_ready,
)

from celery_atomicity import Atomicity
from chaos.journal import now

#: How many slots the samples ask for; more than twice the largest fleet, so that they tell i and n.
TOTAL = 64
STEP = 0.01  # seconds between two samples
PIECE = 0.1  # seconds of equal samples that are written down as one
TORN = 0.2  # seconds between two samples beyond which nothing is said of the time between


def observe(app, journal, asked, told):
    """Connect everything."""
    started = set()

    def sample(**_):
        if os.getpid() not in started:  # the solo pool gives both signals
            started.add(os.getpid())
            atom = Atomicity.of(app).atom()
            threading.Thread(target=samples, args=(atom, journal), daemon=True).start()

    def prerun(task_id=None, **_):
        asked[task_id] = now()

    def stamp(headers=None, **_):
        headers["sent_at"] = time.time()
        if "atomicity_beat" in headers:
            _fall("before", Path(told["trap"]))

    def sent(headers=None, **_):
        of = headers.get("atomicity_beat")
        # A rate-limited or waiting task that is given back is published as well, by a worker.
        if of is not None:
            journal.note(
                "sent",
                id=headers["id"],
                copy=of["copy"],
                entry=of["entry"],
                slot=of["slot"],
                due=headers["atomicity_due"],
                sent=headers["sent_at"],
            )
            _fall("after", Path(told["trap"]))

    worker_ready.connect(sample, weak=False)
    worker_process_init.connect(sample, weak=False)
    task_prerun.connect(prerun, weak=False)
    before_task_publish.connect(stamp, weak=False)
    after_task_publish.connect(sent, weak=False)


def _fall(moment, trap):
    """Die here, if somebody has laid a trap for this moment: only the first one falls into it."""
    try:
        if trap.read_text() == moment:
            trap.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
    except FileNotFoundError:
        pass


def samples(atom, journal):
    """
    Write down what this process answers about its slots, in pieces of equal answers.

    A piece goes from after its first answer to before its last one: within it the answer stood.
    """
    shown, first, last = None, 0.0, now()
    while True:
        before = now()
        slots = atom.slots(TOTAL)
        after = now()
        found = (slots[0], slots[1] - slots[0] if len(slots) > 1 else TOTAL) if slots else None
        torn = before - last > TORN
        if torn:
            journal.note("stall", since=last, until=before)
        if found != shown or torn or (found and before - first >= PIECE):
            end = last if torn or found != shown else before
            if shown and end > first:
                journal.note("owns", i=shown[0], n=shown[1], first=first, last=end)
            goes_on = found == shown and not torn
            shown, first = found, before if goes_on else after
        last = before
        time.sleep(STEP)

"""What a worker does before it forks, and what only after."""

import os
import subprocess
import sys
import threading

from celery import Celery
from celery.worker.components import Beat, Pool
from kombu.utils import symbol_by_name

from celery_atomicity import Atom, Atomicity, atom
from celery_atomicity.integration.worker import ReplicaStep


def test_a_fork_finds_the_codec_for_hosts_loaded_whole():
    # Half loaded by a thread of the parent, it would be "unknown" in the child for good.
    code = "import sys, celery_atomicity.connection; sys.exit('encodings.idna' not in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_worker_begins_to_register_after_it_has_forked_pool_and_beat():
    # Said in so many words: what is not required comes in any order, and mostly in this one.
    assert {symbol_by_name(name) for name in ReplicaStep.requires} == {Pool, Beat}

    app = Celery("shop", broker="memory://", set_as_current=False)
    Atomicity(app)
    order = [type(step) for step in app.WorkController(pool="solo", beat=True).blueprint.order]
    assert order.index(ReplicaStep) > max(order.index(Pool), order.index(Beat))


def test_a_child_does_not_wait_for_a_thread_that_only_its_parent_has():
    held, done = threading.Event(), threading.Event()

    def hold():
        with atom._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    pid = os.fork()
    if pid == 0:
        free = atom._lock.acquire(blocking=False)
        os._exit(0 if free and Atom("forked", redis="") else 1)
    _, status = os.waitpid(pid, 0)
    done.set()
    thread.join()

    assert status == 0

"""What a worker does before it forks, and what only after."""

import subprocess
import sys

from celery import Celery
from celery.worker.components import Beat, Pool
from kombu.utils import symbol_by_name

from celery_atomicity import Atomicity
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

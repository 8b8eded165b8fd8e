"""
How long the ticks of a beat stand still that has ended, with nothing set at all.

    pytest -m soak tests/acceptance/test_beat_handover.py
"""

import pytest
from support import beat_tasks
from support.beat_record import check, complete_again
from support.nodes import BeatContainer

from celery_atomicity import clock
from celery_atomicity.settings import INTERVAL
from celery_atomicity.testing import wait_until

SCHEDULE = {f"entry {n}": 1 for n in range(20)}
SETTLED = 5 * INTERVAL  # PART-03

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(400),
    pytest.mark.cluster(workers=1, concurrency=2),
]


@pytest.fixture
def default_worker_tasks(default_worker_tasks):
    return default_worker_tasks | {beat_tasks}


@pytest.fixture
def default_worker_env(default_worker_env, notes_server):
    return default_worker_env | {beat_tasks.NOTES: notes_server.url}


@pytest.fixture
def default_worker_app(default_worker_app):
    # Whatever may be set of the package, or of beat's pace, is left alone.
    task = f"{beat_tasks.__name__}.tick"
    default_worker_app.conf.beat_schedule = {
        name: {"task": task, "schedule": float(every)} for name, every in SCHEDULE.items()
    }
    return default_worker_app


def both_send(ticks):
    """Wait until two beats send all entries between them."""

    def shared():
        until = clock.wall() - 2
        senders = {t["entry"]: t["by"] for t in ticks.all() if t["sent"] >= until}
        return len(senders) == len(SCHEDULE) and len(set(senders.values())) == 2

    wait_until(shared, 60, "both beats send")


# BEAT-01, BEAT-02, BEAT-06, F92
def test_what_a_beat_owned_is_sent_again_within_five_intervals(spawn, ticks, capsys):
    nodes = spawn(BeatContainer, 2, "-S", "atomicity")
    complete_again(ticks, SCHEDULE, {}, timeout=60)
    told = []

    for victim, signal in zip(nodes, ("SIGKILL", "SIGTERM"), strict=True):
        both_send(ticks)
        victim.kill(signal)
        told.append((signal, complete_again(ticks, SCHEDULE, {}, timeout=60)))
        victim.restart()

    both_send(ticks)
    lateness, _ = check(ticks, SCHEDULE, longest=SETTLED + 3, slots={})
    with capsys.disabled():
        for signal, seconds in told:
            print(f"\n{signal}: all sent again after {seconds:.1f} s", end="")
        print(f"\nlatest tick: {lateness[-1]:.1f} s late")
    assert all(seconds <= SETTLED + 3 for _, seconds in told)

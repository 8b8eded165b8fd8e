"""
Several beats, killed, frozen and cut off: every tick runs, and none twice.

What is checked is what workers ran, by the instants at which it was due.
"""

import os
import signal

import pytest
from support import beat_tasks
from support.beat_record import check, complete_again, quiet
from support.beat_tasks import SLOTS
from support.nodes import BeatContainer, NodeContainer
from support.procgroup import members, runs

from celery_atomicity.testing import wait_until

INTERVAL = 0.5
SETTLED = 5 * INTERVAL  # PART-03
# Beyond what is promised, for two cores that everything shares.
SLACK = 4.0
FAN = {"sweep": SLOTS}

pytestmark = [pytest.mark.cluster(workers=2, concurrency=2), pytest.mark.timeout(240)]


@pytest.fixture
def default_worker_tasks(default_worker_tasks):
    return default_worker_tasks | {beat_tasks}


@pytest.fixture
def default_worker_env(default_worker_env, notes_server):
    return default_worker_env | {beat_tasks.NOTES: notes_server.url}


@pytest.fixture
def schedule():
    """Seconds from tick to tick, by entry."""
    seconds, halves = (f"second {n}" for n in range(6)), (f"half {n}" for n in range(4))
    return dict.fromkeys(seconds, 1) | dict.fromkeys(halves, 0.5) | {"sweep": 1}


@pytest.fixture
def default_worker_app(default_worker_app, schedule):
    default_worker_app.conf.update(
        atomicity_interval=INTERVAL,
        atomicity_timeout=0.2,
        beat_schedule={
            name: {
                "task": f"{beat_tasks.__name__}.{'sweep' if name == 'sweep' else 'tick'}",
                "schedule": float(every),
            }
            for name, every in schedule.items()
        },
    )
    return default_worker_app


@pytest.fixture
def default_redis_backend_command():
    """It is the arbiter too, and what it acknowledged survives a restart."""
    return ["redis-server", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]


# BEAT-01, BEAT-02, BEAT-03, BEAT-06, F83, F92
def test_three_beats_through_kills_freezes_and_a_restart_of_the_arbiter(
    celery_setup, spawn, ticks, schedule
):
    beats = spawn(BeatContainer, 3, "-S", "atomicity")
    arbiter = celery_setup.backend_cluster[0]
    complete_again(ticks, schedule, FAN)
    period = max(schedule.values())

    beats[0].kill()
    assert complete_again(ticks, schedule, FAN) <= SETTLED + 2 * period + SLACK
    beats[1].freeze()
    complete_again(ticks, schedule, FAN)
    beats[1].thaw()
    beats[0].restart()
    complete_again(ticks, schedule, FAN)
    beats[2].kill("SIGTERM")
    assert complete_again(ticks, schedule, FAN) <= SETTLED + 2 * period + SLACK
    arbiter.restart(force=True)
    complete_again(ticks, schedule, FAN)
    beats[1].kill()
    beats[2].restart()
    complete_again(ticks, schedule, FAN)
    quiet(ticks, 3)

    # The arbiter's restart and a freeze are the longest: to be noticed, and to settle anew.
    check(ticks, schedule, slots=FAN, longest=3 * SETTLED + period + 2 * SLACK)


# BEAT-01
@pytest.mark.cluster(workers=3, argv=("-B", "-S", "atomicity"), queue="idle")
def test_embedded_in_every_worker(celery_setup, spawn, ticks, schedule):
    # Theirs is a queue that nothing is sent to: what ends is a beat, and no task. And a busy pool
    # of Celery's would take half a minute to end.
    spawn(NodeContainer, pool="threads", concurrency=4)
    complete_again(ticks, schedule, FAN)
    first, second, _ = celery_setup.worker_cluster

    first.kill()
    complete_again(ticks, schedule, FAN)
    second.restart()
    complete_again(ticks, schedule, FAN)
    quiet(ticks, 2)

    check(ticks, schedule, slots=FAN, longest=2 * SETTLED + max(schedule.values()) + 2 * SLACK)


# BEAT-01
@pytest.mark.cluster(workers=1, argv=("-B", "-S", "atomicity"), pool="solo")
def test_an_embedded_beat_ends_with_its_worker_however_that_ends(request, celery_setup, ticks):
    if request.config.getoption("--engine") == "docker":
        pytest.skip("the end of a container's main process takes all others along")
    [worker] = celery_setup.worker_cluster
    main = worker.container._container._process.pid
    wait_until(lambda: len(ticks), 20, "the beat sends")
    [beat] = [each for each in members(os.getpgid(main)) if each.pid != main]

    os.kill(main, signal.SIGKILL)

    wait_until(lambda: not runs(beat), 10, "the beat ends as well")
    assert "the worker that it is embedded in has ended" in worker.logs()


# BEAT-07
def test_a_beat_that_is_frozen_loses_what_it_owns_and_sends_nothing_when_it_wakes(
    spawn, ticks, schedule
):
    beats = spawn(BeatContainer, 2, "-S", "atomicity")
    complete_again(ticks, schedule, FAN)

    for beat in beats:
        beat.freeze()
        complete_again(ticks, schedule, FAN)
        quiet(ticks, 4)
        beat.thaw()
        complete_again(ticks, schedule, FAN)

    check(ticks, schedule, slots=FAN, longest=2 * SETTLED + max(schedule.values()) + 2 * SLACK)

"""What an operator sees of a fleet in its logs, and how one worker is told to stand down."""

import re
from itertools import groupby
from typing import NamedTuple

import pytest
from pytest_celery import RESULT_TIMEOUT
from support import sight_tasks
from support.nodes import BeatContainer
from support.sight_tasks import SECOND, owned, tick, work

from acceptance.test_slots import states
from celery_atomicity import overview
from celery_atomicity.connection import Clients
from celery_atomicity.settings import Settings
from celery_atomicity.testing import wait_until

INTERVAL = 0.5

pytestmark = [
    pytest.mark.cluster(workers=2, concurrency=2, argv=("-B", "-S", "atomicity")),
    pytest.mark.timeout(180),
]


@pytest.fixture
def arbiter(server):
    return server


@pytest.fixture
def default_worker_tasks(default_worker_tasks):
    return default_worker_tasks | {sight_tasks}


@pytest.fixture
def default_worker_app(default_worker_app, arbiter):
    default_worker_app.conf.update(
        atomicity_redis=arbiter.url,
        atomicity_interval=INTERVAL,
        atomicity_timeout=0.2,
        atomicity_restart_grace=0,
        beat_schedule={
            f"second {n}": {"task": tick.name, "schedule": 1.0, "options": {"expires": 5}}
            for n in range(4)
        },
        worker_log_format="%(levelname)s|%(processName)s|%(name)s|%(message)s",
    )
    return default_worker_app


class Line(NamedTuple):
    level: str
    process: str
    area: str
    text: str


def lines(node):
    """The lines of ours in the log of *node*."""
    found = re.findall(
        r"^(\w+)\|([^|]*)\|celery_atomicity\.(\w+)\|(.*)$", node.logs(), re.MULTILINE
    )
    return [Line(*parts) for parts in found]


def settled(app, group, replicas):
    """Wait until so many workers share *group*, in each of their groups."""

    def is_settled():
        answers = app.control.broadcast("atomicity", reply=True, timeout=2, limit=2)
        found = [
            (state["assignment"]["i"], state["assignment"]["n"])
            for answer in answers
            for state in next(iter(answer.values()))
            if state["group"] == group and state["assignment"]
        ]
        return sorted(found) == [(i, replicas) for i in range(replicas)]

    wait_until(is_settled, 30, f"{replicas} workers share the group {group}")


def knows_three_beats(node):
    found = [line.text for line in lines(node) if ".beat: this replica is" in line.text]
    return found and found[-1].endswith("of 3")


def work_done(count):
    for result in [work.apply_async() for _ in range(count)]:
        result.get(timeout=RESULT_TIMEOUT)


def sent_by(node):
    return node.logs().count("Sending due task")


def test_a_healthy_fleet_is_quiet_and_an_outage_is_one_warning_and_one_recovery(
    celery_setup, spawn, arbiter
):
    app = celery_setup.app
    [beat] = spawn(BeatContainer, 1, "-S", "atomicity")
    nodes = [*celery_setup.worker_cluster, beat]
    settled(app, app.main, 2)
    settled(app, SECOND, 2)
    beats_settled(arbiter, app.main, 3)
    wait_until(lambda: all(map(knows_three_beats, nodes)), 30, "all beats have their share")
    before = [lines(node) for node in nodes]

    work_done(40)
    sent = [sent_by(node) for node in nodes]
    wait_until(lambda: sum(map(sent_by, nodes)) > sum(sent) + 8, 20, "beats go on sending")

    # What has settled is silent, whatever it does.
    assert [lines(node) for node in nodes] == before
    for said in before:
        assert {line.level for line in said} == {"INFO"}
        for process, group in by_process(said):
            changes = [line.text for line in group if line.area == "slots"]
            assert [text for text, _ in groupby(changes)] == changes, "one line is one change"
            assert [line.area for line in group].count("app") <= 1, process

    arbiter.stop()
    for _ in range(10):
        work.apply_async()  # so that the children meet it as well
    wait_until(
        lambda: all("does not answer" in node.logs() for node in nodes), 20, "all have noticed"
    )
    wait_until(
        lambda: all(not state["assignment"] for state in states(app, 2).values()),
        20,
        "nobody owns anything",
    )
    arbiter.start()
    settled(app, app.main, 2)
    wait_until(lambda: all("answers again" in node.logs() for node in nodes), 20, "all say so")
    beats_settled(arbiter, app.main, 3)
    work_done(10)

    for node in nodes:
        grave = [line for line in lines(node) if line.level != "INFO"]
        assert [line.area for line in grave] == ["arbiter", "arbiter"], grave
        assert "does not answer" in grave[0].text
        assert "answers again, after" in grave[1].text
        assert "Traceback" not in node.logs()


def by_process(found):
    return [
        (process, list(group))
        for process, group in groupby(
            sorted(found, key=lambda one: one.process), lambda one: one[1]
        )
    ]


def beats_settled(arbiter, group, count):
    wait_until(lambda: beats(arbiter, group) == count, 30, f"{count} beats register")


def beats(arbiter, group):
    settings = {"atomicity_redis": arbiter.url, "atomicity_interval": INTERVAL}
    clients = Clients(Settings.read(settings))
    try:
        return overview.registered(clients, f"{group}.beat")
    finally:
        clients.close()


@pytest.mark.cluster(
    workers=2, concurrency=2, argv=("-B", "-S", "atomicity"), env={"BREAK_RECEIVER": "1"}
)
def test_a_worker_stands_down_and_takes_part_again(celery_setup, arbiter):
    app = celery_setup.app
    first, second = celery_setup.worker_cluster
    settled(app, app.main, 2)
    settled(app, SECOND, 2)
    beats_settled(arbiter, app.main, 2)
    its_beat = f"Group {app.main}.beat: this replica is number"
    wait_until(
        lambda: any(line.text.startswith(its_beat) for line in lines(first)),
        20,
        "its beat owns entries",
    )

    [answer] = app.control.broadcast(
        "atomicity_stand_down", destination=[first.hostname()], reply=True, timeout=10
    )

    assert answer[first.hostname()] == {
        "ok": f"owns nothing in {app.main}, {SECOND} until atomicity_resume"
    }
    settled(app, app.main, 1)
    settled(app, SECOND, 1)
    beats_settled(arbiter, app.main, 1)
    state = states(app, 2)[first.hostname()]
    assert (state["stood_down"], state["assignment"], state["open"]) == (True, None, False)
    assert "atomicity_resume" in state["error"]
    changes = {line.text for line in lines(first) if line.area == "slots"}
    for group in (app.main, SECOND, f"{app.main}.beat"):
        assert f"Group {group}: this replica owns nothing now" in changes
    # Tasks go on, also in the children of the one that owns nothing.
    work_done(10)
    answers = [result.get(timeout=RESULT_TIMEOUT) for result in [owned.delay() for _ in range(30)]]
    assert {(str(one), str(two)) for _, one, two in answers} == {
        ("None", "None"),
        ("[0, 1, 2, 3]", "[0, 1, 2, 3]"),
    }
    # It sends nothing either; the other one does.
    ours, theirs = sent_by(first), sent_by(second)
    wait_until(lambda: sent_by(second) >= theirs + 8, 20, "the other beat sends all")
    assert sent_by(first) == ours
    assert states(app, 2)[first.hostname()]["open"] is False

    app.control.broadcast(
        "atomicity_resume", destination=[first.hostname()], reply=True, timeout=10
    )

    settled(app, app.main, 2)
    settled(app, SECOND, 2)
    beats_settled(arbiter, app.main, 2)
    assert states(app, 2)[first.hostname()]["error"] == ""
    said = [line.text for line in lines(first) if line.area == "app"]
    assert sum("stands down on request" in text for text in said) == 1
    assert sum("takes part again on request" in text for text in said) == 1
    # The receiver of each node raised at each of these changes.
    assert "the receiver cannot take it" in first.logs()

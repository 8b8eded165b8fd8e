"""Beats as replicas: taking up, standing down when stalled, and what their workers run."""

import threading
from datetime import timedelta

import pytest
from celery import Celery
from celery.app.trace import build_tracer
from celery.beat import Scheduler
from celery.exceptions import ImproperlyConfigured
from support.beats import Queue, app_of

from celery_atomicity import Atomicity, NotConfigured, clock
from celery_atomicity.integration.beat import guard as module
from celery_atomicity.integration.beat.copies import HEADER
from celery_atomicity.integration.beat.due import Unit
from celery_atomicity.integration.beat.guard import guard
from celery_atomicity.integration.beat.ledger import Claim, Ledger, Outcome
from celery_atomicity.integration.beat.scheduler import PartitionedScheduler, partitioned_scheduler
from celery_atomicity.testing import wait_until

INTERVAL = 0.4


@pytest.fixture
def app(server, group):
    app = app_of("shop", server, group, atomicity_interval=INTERVAL)
    app.conf.atomicity_timeout = 0.15
    app.conf.beat_schedule = {"a": {"task": "work", "schedule": timedelta(seconds=0.2)}}
    yield app
    Atomicity.of(app).clients.close()
    app.close()


class Loop(threading.Thread):
    """Celery's service, as far as it matters; `hang` keeps it in the middle of a pass."""

    def __init__(self, scheduler):
        super().__init__(daemon=True)
        self.scheduler = scheduler
        self.stop = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.naps = []

    def run(self):
        while not self.stop.is_set():
            self.go_on.wait()
            nap = self.scheduler.tick()
            self.naps.append(nap)
            self.stop.wait(nap)
        self.scheduler.close()


@pytest.fixture
def loop(app):
    loop = Loop(PartitionedScheduler(app=app))
    loop.start()
    yield loop
    loop.go_on.set()
    loop.stop.set()
    loop.join(10)


@pytest.fixture
def queue(app, server):
    return Queue(app, server.url)


# BEAT-05, BEAT-06
def test_what_is_assigned_is_taken_up_within_a_second(app, group, loop, queue, server):
    atom = Atomicity.of(app).atom(f"{group}.beat")
    wait_until(lambda: atom.assignment, 10, "an assignment")
    at = clock.monotonic()

    wait_until(lambda: server.cli("EXISTS", f"atom:{group}:beat:entry:a"), 5, "the entry")

    assert clock.monotonic() - at <= 1
    wait_until(queue.take, 5, "a message")
    assert max(loop.naps) <= 0.5


# BEAT-07
def test_a_loop_that_hangs_stands_down_until_it_goes_on(app, group, loop, queue):
    atom = Atomicity.of(app).atom(f"{group}.beat")
    wait_until(queue.take, 10, "a message")

    loop.go_on.clear()
    wait_until(lambda: atom.assignment is None, 10, "it stands down")
    queue.take()
    assert "stalled" in atom.state().error
    loop.go_on.set()

    wait_until(lambda: atom.assignment, 10, "it takes part again")
    wait_until(queue.take, 10, "a message")


# BEAT-01, BEAT-07, F80
def test_one_that_the_arbiter_is_cut_off_from_sends_nothing_and_the_other_takes_over(
    server, group, proxy, app, queue
):
    way = proxy(server)
    entries = {f"e{n}": {"task": "work", "schedule": timedelta(seconds=1)} for n in range(12)}
    apart = app_of("shop", way, group, broker=server.url, atomicity_interval=INTERVAL)
    apart.conf.atomicity_timeout = 0.15
    loops, atoms, sent = [], [], []
    for one in (app, apart):
        one.conf.beat_schedule = entries
        loops.append(Loop(PartitionedScheduler(app=one)))
        loops[-1].start()
        atoms.append(Atomicity.of(one).atom(f"{group}.beat"))
    here, there = atoms

    def everything_anew():
        sent.clear()
        wait_until(
            lambda: sent.extend(queue.take()) or len({name_of(m) for m in sent}) == 12,
            20,
            "every entry is sent again",
        )
        found.extend(sent)

    found = []
    wait_until(lambda: here.assignment and there.assignment, 20, "both own something")
    everything_anew()
    way.cut()
    wait_until(lambda: here.assignment and here.assignment.n == 1, 20, "one owns everything")
    assert there.assignment is None
    everything_anew()
    way.heal()
    wait_until(lambda: there.assignment and there.assignment.n == 2, 20, "it takes part again")
    everything_anew()
    for loop in loops:
        loop.stop.set()
        loop.join(10)
    found += queue.take()
    Atomicity.of(apart).clients.close()
    apart.close()

    assert len({message.id for message in found}) == len(found)
    dues = [(name_of(message), message.due) for message in found]
    assert len(set(dues)) == len(dues)


def name_of(message):
    return message.headers[HEADER]["entry"]


def test_closing_stands_down(app, group, loop):
    atom = Atomicity.of(app).atom(f"{group}.beat")
    wait_until(lambda: atom.assignment, 10, "an assignment")

    loop.stop.set()
    loop.join(10)

    assert atom.assignment is None
    assert not atom.state().open


def test_an_app_without_atomicity_is_refused():
    app = Celery("bare", broker="memory://", set_as_current=False)
    scheduler = PartitionedScheduler(app=app)

    with pytest.raises(NotConfigured, match="Atomicity"):
        scheduler.tick()

    app.close()


# BEAT-04
def test_a_scheduler_that_ticks_by_itself_is_refused():
    class Red(Scheduler):
        def tick(self):
            return 1

    class Plain(Scheduler):
        pass

    with pytest.raises(ImproperlyConfigured, match="Red has its own way to tick"):
        partitioned_scheduler(Red)
    assert issubclass(partitioned_scheduler(Plain), Plain)
    assert partitioned_scheduler(Plain) is partitioned_scheduler(Plain)


# -- workers ------------------------------------------------------------------------------------


@pytest.fixture
def run(app, monkeypatch):
    """Run a task as a worker does, with these headers."""
    monkeypatch.setattr(module, "_outage", module._Outage())
    ran = []

    @app.task(bind=True, name="work", shared=False)
    def work(self):
        ran.append(getattr(self.request, HEADER, None))

    class Own(app.Task):
        name = "own"

        def before_start(self, *_args):
            ran.append("before")

        def run(self):
            ran.append("run")

    app.register_task(Own())
    guard(app)
    guard(app)

    def run(tick=None, name="work", **request):
        ran.clear()
        headers = {HEADER: tick} if tick else {}
        request = {"id": "1", "is_eager": False, **headers, **request}
        tracer = build_tracer(name, app.tasks[name], app=app, hostname="here")
        tracer("1", (), {}, request)
        return list(ran)

    return run


@pytest.fixture
def copies(app, group):
    """Two copies of a tick, both in the queue."""
    ledger = Ledger(Atomicity.of(app).clients, group)
    ledger.load({Unit("a"): 1})
    claims = [Claim(Unit("a"), 1, copy) for copy in ("one", "two")]
    begun = [ledger.claim([claim])[0] for claim in claims]
    ledger.settle([Outcome(begun[1], 2)], 3)
    return [
        {"group": group, "entry": "a", "slot": None, "last": "1", "copy": claim.copy}
        for claim in claims
    ]


# BEAT-03
def test_a_worker_runs_one_copy_and_each_delivery_of_it(run, copies):
    one, two = copies

    assert run(two) == [two]
    assert run(one) == []
    assert run(two, delivery_info={"redelivered": True}) == [two]
    assert run(two, retries=1) == [two]


def test_tasks_with_a_before_start_of_their_own_keep_it(run, copies):
    one, two = copies

    assert run(one, name="own") == ["before", "run"]
    assert run(two, name="own") == []
    assert run(name="own") == ["before", "run"]


def test_what_beat_did_not_send_asks_nobody(run, server):
    before = server.cli("INFO", "stats")

    assert run() == [None]

    def commands(stats):
        return int(stats.partition("total_commands_processed:")[2].split()[0])

    assert commands(server.cli("INFO", "stats")) - commands(before) <= len(["AUTH", "INFO"])


# BEAT-03
def test_a_restart_of_the_arbiter_is_waited_for(run, copies, server, caplog):
    one, two = copies
    server.arguments += ("--appendonly", "yes", "--appendfsync", "always")
    server.cli("CONFIG", "SET", "appendonly", "yes")
    wait_until(
        lambda: "aof_rewrite_in_progress:0" in server.cli("INFO", "persistence"), 5, "all is kept"
    )
    assert run(two) == [two]
    server.stop()
    later = threading.Timer(0.7, server.start)
    later.start()

    assert run(one) == []
    assert not any("runs unchecked" in record.message for record in caplog.records)
    later.join()


def test_without_an_arbiter_a_task_runs_and_that_is_logged_and_the_next_one_does_not_wait(
    run, copies, server, caplog, monkeypatch
):
    monkeypatch.setattr(module, "PATIENCE", 0.5)
    server.kill()

    assert run(copies[0]) == [copies[0]]
    assert any("runs unchecked" in record.message for record in caplog.records)
    begin = clock.monotonic()
    assert run(copies[1]) == [copies[1]]
    assert clock.monotonic() - begin < 0.5

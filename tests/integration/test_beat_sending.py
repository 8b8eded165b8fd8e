"""What a beat sends and records, pass by pass: on a real server, with a clock moved by hand."""

import logging
from datetime import timedelta

import pytest
from celery.beat import BeatLazyFunc
from celery.schedules import crontab
from support.beats import START, Clock, Driver, Owner, Queue, app_of, ran

from celery_atomicity import Atomicity, Unavailable, partitioned
from celery_atomicity.integration.beat import scheduler as module
from celery_atomicity.integration.beat.due import SECOND
from celery_atomicity.integration.beat.ledger import Ledger
from celery_atomicity.integration.beat.scheduler import PartitionedScheduler
from celery_atomicity.primitives.membership import Assignment
from celery_atomicity.testing import wait_until

PACKAGE = "celery_atomicity"


@pytest.fixture(autouse=True)
def _owners(monkeypatch):
    monkeypatch.setattr(module, "Replica", Owner)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def app(server, group, clock):
    app = app_of("shop", server, group, clock=clock)

    @app.task(name="sweep", shared=False)
    @partitioned(slots=4)
    def sweep(slot): ...

    yield app
    Atomicity.of(app).clients.close()
    app.close()


@pytest.fixture
def queue(app, server):
    return Queue(app, server.url)


@pytest.fixture
def ledger_of(group):
    return lambda app: Ledger(Atomicity.of(app).clients, group)


@pytest.fixture
def ledger(app, ledger_of):
    return ledger_of(app)


@pytest.fixture
def beat(app, clock):
    """A factory of beats that have begun, each with a driver."""
    running = []

    def start(**schedule):
        if schedule:
            app.conf.beat_schedule = schedule
        scheduler = PartitionedScheduler(app=app, schedule_filename="/nowhere/at/all")
        running.append(scheduler)
        driver = Driver(scheduler, clock)
        driver.settle()
        return driver

    yield start
    for scheduler in running:
        scheduler.close()


def every(seconds, task="work", **options):
    return {"task": task, "schedule": timedelta(seconds=seconds), **options}


def seconds(messages):
    return [(message.due - START).total_seconds() for message in messages]


# BEAT-02
def test_with_no_record_counting_starts_now(beat, queue):
    beat(a=every(10), b={"task": "work", "schedule": crontab(minute="*")})

    assert queue.take() == []


# BEAT-09
def test_each_tick_is_sent_once_and_says_when_it_was_due(beat, queue, clock):
    driver = beat(a=every(10, args=(1,), kwargs={"x": 2}))

    driver.run(35)

    messages = queue.take()
    assert seconds(messages) == [10, 20, 30]
    assert messages[0].headers["atomicity_due"] == "2024-03-01T12:00:40+00:00"
    assert (messages[0].args, messages[0].kwargs) == ([1], {"x": 2})
    assert "atomicity_slot" not in messages[0].headers
    assert len({message.id for message in messages}) == 3


# BEAT-01, BEAT-09
def test_a_partitioned_entry_is_sent_for_each_owned_slot(beat, queue):
    driver = beat(a=every(10, task="sweep"))
    driver.run(10)
    all_slots = queue.take()

    driver.scheduler._replica.assign(Assignment(1, 2))
    driver.run(10)
    half = queue.take()

    assert sorted(message.kwargs["slot"] for message in all_slots) == [0, 1, 2, 3]
    assert [message.slot for message in all_slots] == [m.kwargs["slot"] for m in all_slots]
    assert seconds(all_slots) == [10] * 4
    assert sorted(message.slot for message in half) == [1, 3]
    assert len({message.id for message in all_slots + half}) == 6


def test_an_entry_of_a_task_from_elsewhere_is_fanned_out_by_its_headers(beat, queue):
    options = {"headers": {"atomicity_slots": 3, "atomicity_argument": "part", "x": "y"}}
    driver = beat(a=every(10, task="elsewhere", options=options))

    driver.run(10)

    messages = queue.take()
    assert sorted(message.kwargs["part"] for message in messages) == [0, 1, 2]
    assert {message.headers["x"] for message in messages} == {"y"}


# BEAT-01, BEAT-05
def test_beats_share_the_entries_out_without_gap_or_overlap(beat, queue):
    beats = [beat(**{f"e{n}": every(10) for n in range(50)}) for _ in range(3)]
    for n, driver in enumerate(beats):
        driver.scheduler._replica.assign(Assignment(n, 3))
        driver.settle()

    for driver in beats:
        start = driver.clock.now
        driver.run(10)
        driver.clock.now = start

    names = [message.headers["atomicity_beat"]["entry"] for message in queue.take()]
    assert sorted(names) == sorted(f"e{n}" for n in range(50))


# BEAT-02, F88
def test_intervals_keep_their_pace_through_restarts_and_handovers(beat, queue):
    first = beat(a=every(600))
    first.scheduler.close()
    for _ in range(30):
        driver = beat()
        driver.run(240)
        driver.scheduler.close()

    assert seconds(queue.take()) == [600.0 * n for n in range(1, 13)]


# BEAT-01, F86
def test_beats_restarted_within_the_minute_send_its_tick_once(beat, queue, clock):
    crontabs = {"a": {"task": "work", "schedule": crontab(minute="*")}}
    beat(**crontabs).scheduler.close()
    clock.forward(30)
    for _ in range(3):
        for driver in (beat(), beat()):
            driver.run(4)
            driver.scheduler.close()

    assert seconds(queue.take()) == [30]


# BEAT-01
def test_beats_whose_clocks_are_seconds_apart_send_each_tick_once(
    beat, queue, clock, server, group, app
):
    ahead = app_of("shop", server, group, clock=lambda: clock() + timedelta(seconds=7))
    ahead.conf.beat_schedule = {"a": every(10)}
    drivers = [beat(a=every(10)), Driver(PartitionedScheduler(app=ahead), clock)]

    for n in range(24):
        drivers[n % 2].settle()
        clock.forward(5)

    drivers[1].scheduler.close()
    Atomicity.of(ahead).clients.close()
    ahead.close()
    messages = queue.take()
    assert seconds(messages) == [10.0 * n for n in range(1, len(messages) + 1)]
    assert len(messages) in (11, 12)
    assert len({message.id for message in messages}) == len(messages)


# BEAT-02
def test_what_came_due_while_nobody_owned_it_is_sent_once_by_the_next(beat, queue, clock):
    beat(a=every(10), b={"task": "work", "schedule": crontab(minute="*")}).scheduler.close()
    clock.forward(95)

    driver = beat()
    late = queue.take()
    driver.run(25)

    assert sorted(seconds(late)) == [10, 30]
    assert sorted(seconds(queue.take())) == [100, 110, 120]


def test_after_a_late_tick_an_interval_is_back_on_its_pace(beat, queue, clock):
    beat(a=every(10)).scheduler.close()
    clock.forward(95)
    driver = beat()
    queue.take()

    driver.run(30)

    assert seconds(queue.take()) == [100, 110, 120]


def test_grace_drops_what_is_older_and_says_so(beat, app, queue, clock, group, caplog):
    app.conf.atomicity_beat_grace = 60
    beat(a={"task": "work", "schedule": crontab(minute=0, hour=13)}).scheduler.close()
    clock.forward(3 * 3600)

    beat()

    assert queue.take() == []
    assert [r.levelname for r in caplog.records if "dropped" in r.message] == ["WARNING"]
    record = Ledger(Atomicity.of(app).clients, group).record("a")
    assert record.dropped == record.last[None] - 2 * 3600 * SECOND - 30 * SECOND


# BEAT-06
def test_a_beat_that_owns_nothing_asks_and_sends_nothing(beat, app, queue, server):
    driver = beat(a=every(10))
    scheduler = driver.scheduler
    scheduler._replica.assign(None)
    scheduler.tick()
    before = server.cli("INFO", "commandstats")
    looks = []

    class Watched(type(scheduler)):
        @property
        def schedule(self):
            looks.append(1)
            return {}

    scheduler.__class__ = Watched
    for _ in range(50):
        driver.clock.forward(scheduler.tick())

    assert calls(server.cli("INFO", "commandstats")) == calls(before)
    assert looks == []
    assert queue.take() == []


def calls(stats, name="evalsha"):
    for line in stats.splitlines():
        if line.startswith(f"cmdstat_{name}:"):
            return int(line.partition("calls=")[2].partition(",")[0])
    return 0


def test_what_is_due_in_one_pass_is_begun_and_recorded_in_two_round_trips(beat, queue, server):
    driver = beat(**{f"e{n}": every(10) for n in range(200)})
    driver.clock.forward(10)
    before = calls(server.cli("INFO", "commandstats"))

    driver.scheduler.tick()

    assert len(queue.take()) == 200
    assert calls(server.cli("INFO", "commandstats")) - before <= 2


# BEAT-06
def test_what_is_assigned_is_taken_up_in_the_next_pass(beat, queue, clock):
    driver = beat(a=every(10))
    driver.scheduler._replica.assign(None)
    driver.scheduler.tick()
    clock.forward(15)
    driver.scheduler._replica.assign(Assignment(0, 1))

    driver.settle()

    assert seconds(queue.take()) == [10]


# BEAT-07, F80
def test_ownership_is_asked_for_at_each_send(beat, queue, clock):
    driver = beat(**{f"e{n}": every(10) for n in range(9)})
    replica, asked = driver.scheduler._replica, []

    def lose_it_after_three(unit):
        asked.append(unit)
        if len(asked) == 4:
            replica.assign(None)

    replica.asked = lose_it_after_three
    clock.forward(10)
    driver.scheduler.tick()
    replica.asked = None
    before = queue.take()

    beat()
    after = queue.take()

    assert len(before) == 3
    assert len(after) == 6
    assert len({message.id for message in before + after}) == 9


# -- killed at any step -------------------------------------------------------------------------


WHEN = ("before", "after")


class Killed(BaseException):
    """The process is gone: nothing of it runs any more, not even a handler."""


def kill_at(scheduler, step):
    """Let *scheduler* get as far as *step* and no further."""

    def before(obj, name):
        def dead(*_args, **_options):
            raise Killed

        setattr(obj, name, dead)

    def after(obj, name):
        method = getattr(obj, name)

        def dying(*args, **options):
            method(*args, **options)
            raise Killed

        setattr(obj, name, dying)

    when, what = step.split()
    objects = {
        "claim": scheduler._ledger,
        "settle": scheduler._ledger,
        "publish": scheduler._publisher,
    }
    {"before": before, "after": after}[when](objects[what], what)


STEPS = [
    f"{when} {what}" for what in ("claim", "publish", "settle") for when in ("before", "after")
]


# BEAT-03, F83
@pytest.mark.parametrize("task", ["work", "sweep"])
@pytest.mark.parametrize("step", STEPS)
def test_a_beat_killed_at_any_step_neither_loses_nor_doubles(app, beat, queue, clock, step, task):
    driver = beat(a=every(10, task=task))
    clock.forward(10)
    kill_at(driver.scheduler, step)
    with pytest.raises(Killed):
        driver.settle()
    driver.scheduler._replica = None
    early = ran(app, queue.take())

    survivor = beat()
    messages = queue.take()
    late = ran(app, messages)

    expected = [None] if task == "work" else [0, 1, 2, 3]
    assert sorted((m.slot for m in early + late), key=str) == expected
    assert seconds(early + late) == [10] * len(expected)
    survivor.run(10)
    assert seconds(ran(app, queue.take())) == [20] * len(expected)


# BEAT-03
@pytest.mark.parametrize("order", [1, -1])
def test_both_copies_have_one_id_and_either_may_come_first(app, beat, queue, clock, order):
    driver = beat(a=every(10))
    clock.forward(10)
    kill_at(driver.scheduler, "after publish")
    with pytest.raises(Killed):
        driver.settle()
    driver.scheduler._replica = None
    beat()
    messages = queue.take()[::order]

    assert len(messages) == 2
    assert len({message.id for message in messages}) == 1
    assert len({message.copy for message in messages}) == 2
    assert ran(app, messages) == messages[:1]
    # Redelivered, or retried: the same copy again.
    assert ran(app, messages) == messages[:1]


# BEAT-02, BEAT-03
@pytest.mark.parametrize("step", ["before publish", "after publish"])
def test_what_came_due_after_a_tick_in_doubt_is_made_up_for(app, beat, queue, clock, step):
    driver = beat(a=every(10))
    clock.forward(10)
    kill_at(driver.scheduler, step)
    with pytest.raises(Killed):
        driver.settle()
    driver.scheduler._replica = None
    clock.forward(25)

    beat().run(10)

    assert seconds(ran(app, queue.take())) == [10, 20, 40]


# BEAT-03
def test_a_beat_that_sleeps_in_mid_send_and_wakes_after_the_others(app, beat, queue, clock):
    sleeper = beat(a=every(10))
    publisher = sleeper.scheduler._publisher
    publish = publisher.publish

    def sleep(message):
        # Meanwhile another one takes over, twice.
        beat()
        clock.forward(10)
        beat()
        return publish(message)

    publisher.publish = sleep
    clock.forward(10)
    sleeper.settle()
    publisher.publish = publish
    sleeper.run(10)

    messages = queue.take()
    assert sorted(seconds(messages)) == [10, 10, 20, 30]
    assert sorted(seconds(ran(app, messages))) == [10, 20, 30]


# BEAT-08
def test_beats_that_all_believe_to_own_it_send_it_once(app, beat, queue, clock):
    beats = [beat(a=every(10)) for _ in range(3)]

    for _ in range(5):
        clock.forward(10)
        for driver in beats:
            driver.settle()

    assert seconds(queue.take()) == [10, 20, 30, 40, 50]


class Apart:
    """A beat whose arbiter and broker are two servers, the latter behind a proxy."""

    def __init__(self, arbiter, broker, way, group, clock):
        self.arbiter = arbiter
        self.way = way
        self.app = app_of("shop", arbiter, group, broker=way.url, clock=clock)
        self.queue = Queue(self.app, broker.url)
        self.messages = []

    def begin(self, clock, **schedule):
        self.app.conf.beat_schedule = schedule
        self.scheduler = PartitionedScheduler(app=self.app)
        self.driver = Driver(self.scheduler, clock)
        self.driver.settle()

    def until(self, count):
        """Tick in real time until so many messages are there."""

        def there():
            self.scheduler.tick()
            self.messages += self.queue.take()
            return len(self.messages) >= count

        wait_until(there, 10, f"{count} messages")

    def close(self):
        self.scheduler.close()
        Atomicity.of(self.app).clients.close()
        self.app.close()


@pytest.fixture
def apart(servers, proxy, group, clock):
    broker = servers()
    apart = Apart(servers(persistent=True), broker, proxy(broker), group, clock)
    yield apart
    apart.close()


# -- what is away -------------------------------------------------------------------------------


# F80
def test_while_the_arbiter_is_away_nothing_is_sent_and_all_resumes(apart, clock, caplog):
    caplog.set_level(logging.INFO)
    apart.begin(clock, a=every(10))

    apart.arbiter.kill()
    caplog.clear()
    for _ in range(5):
        clock.forward(10)
        apart.scheduler.tick()
    silent = apart.queue.take()
    ours = [r for r in caplog.records if r.name.startswith(PACKAGE)]
    apart.arbiter.start()
    apart.until(1)

    assert silent == []
    assert [r.levelname for r in ours if r.levelname != "INFO"] == ["WARNING"]
    assert [r.event for r in ours].count("beat_waits") == 1
    assert seconds(apart.messages) == [10]
    apart.driver.run(20)
    assert seconds(apart.queue.take()) == [60, 70]


def test_an_emptied_arbiter_counts_anew(beat, queue, clock, server, app):
    driver = beat(a=every(10))
    driver.run(25)
    queue.take()
    keep = server.cli("KEYS", "atom:*")

    server.cli("DEL", *keep)
    driver.run(20)

    # At 30 it finds no record, and begins to count.
    assert seconds(queue.take()) == [40]


# BEAT-08, F94
def test_a_publish_that_raises_leaves_the_tick_open(apart, clock):
    apart.begin(clock, **{f"e{n}": every(10) for n in range(5)})
    apart.way.cut()

    clock.forward(10)
    for _ in range(3):
        apart.scheduler.tick()
    none = apart.queue.take()
    apart.way.heal()
    apart.until(5)

    assert none == []
    assert seconds(apart.messages) == [10] * 5
    assert ran(apart.app, apart.messages) == apart.messages


# BEAT-02, BEAT-08
def test_what_found_no_broker_is_one_late_tick_and_no_doubt(apart, clock, ledger_of):
    apart.begin(clock, a=every(10))
    apart.way.cut()
    clock.forward(10)
    apart.scheduler.tick()
    apart.scheduler.tick()
    opened = ledger_of(apart.app).record("a").open

    clock.forward(25)
    apart.way.heal()
    apart.until(1)
    apart.driver.run(10)

    assert opened == ()
    assert seconds(apart.messages + apart.queue.take()) == [10, 40]


# BEAT-03, BEAT-08, F94
@pytest.mark.parametrize("options", [{}, {"retry": True}])
def test_a_publish_whose_answer_is_lost_is_sent_again_and_runs_once(apart, clock, options):
    apart.begin(clock, a=every(10, options=options))
    apart.driver.run(10)
    assert seconds(apart.queue.take()) == [10]

    apart.way.drop_answers(1, match=b"LPUSH")
    clock.forward(10)
    apart.until(2)

    assert seconds(apart.messages) == [20, 20]
    assert len({message.id for message in apart.messages}) == 1
    assert len(ran(apart.app, apart.messages)) == 1


# BEAT-03
def test_that_a_copy_may_exist_is_not_forgotten_when_its_tick_is_left_to_another(apart, clock):
    apart.begin(clock, a=every(10))
    apart.driver.run(10)
    assert seconds(apart.queue.take()) == [10]
    replica = apart.scheduler._replica
    apart.way.drop_answers(1, match=b"LPUSH")
    clock.forward(10)
    apart.scheduler.tick()
    wait_until(lambda: not apart.scheduler._publisher.pause, 5, "the broker to be tried again")

    replica.asked = lambda _unit: replica.assign(None)
    apart.scheduler.tick()
    apart.scheduler.close()
    apart.begin(clock, a=every(10))
    apart.until(2)

    assert seconds(apart.messages) == [20, 20]
    assert len(ran(apart.app, apart.messages)) == 1


def test_a_message_that_cannot_be_made_holds_nobody_up(beat, queue, clock, caplog):
    driver = beat(
        a=every(10, args=(object(),)),
        b=every(10),
        c=every(10, args=(BeatLazyFunc(lambda: 1 / 0),)),
        d=every(10, task="sweep", args=(1, 2, 3)),
    )

    driver.run(60)

    assert seconds(queue.take()) == [10, 20, 30, 40, 50, 60]
    assert 4 < len([r for r in caplog.records if "Message Error" in r.message]) < 60


# -- what Celery's scheduler does ---------------------------------------------------------------


def test_arguments_are_made_at_each_send(beat, queue):
    numbers = iter(range(10))
    driver = beat(a=every(10, kwargs={"n": BeatLazyFunc(lambda: next(numbers))}))

    driver.run(30)

    assert [message.kwargs["n"] for message in queue.take()] == [0, 1, 2]


def test_options_of_the_entry_are_kept(beat, queue, app):
    options = {"priority": 0, "headers": {"mine": 1}, "queue": app.conf.task_default_queue}
    driver = beat(a=every(10, options=options))

    driver.run(20)

    assert [message.headers["mine"] for message in queue.take()] == [1, 1]
    assert driver.scheduler.schedule["a"].options == options
    assert driver.scheduler.schedule["a"].total_run_count == 2


def test_entries_that_are_added_changed_and_removed_at_run_time(beat, queue, clock, app):
    driver = beat(a=every(10), b=every(10))
    scheduler = driver.scheduler

    scheduler.add(name="c", task="work", schedule=timedelta(seconds=7))
    del scheduler.schedule["b"]
    scheduler.schedule["a"].schedule.run_every = timedelta(seconds=4)
    driver.run(300)
    queue.take()
    driver.run(56)

    counted = {}
    for message in queue.take():
        entry = message.headers["atomicity_beat"]["entry"]
        counted[entry] = counted.get(entry, 0) + 1
    assert counted == {"a": 14, "c": 8}


def test_beats_need_no_file_and_share_a_directory(beat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    for _ in range(3):
        beat(a=every(10))

    assert list(tmp_path.iterdir()) == []


def test_a_scheduler_that_is_only_looked_at_opens_nothing(app, server):
    scheduler = PartitionedScheduler(app=app, lazy=True)

    assert "ledger" in scheduler.info
    assert scheduler._replica is None
    assert server.cli("KEYS", "atom:*") == []


def test_closing_in_the_middle_of_a_pass_is_left_to_the_end_of_it(beat, queue, clock):
    driver = beat(a=every(10))
    scheduler = driver.scheduler
    publish = scheduler._publisher.publish

    def terminated(message):
        publish(message)
        scheduler.close()  # what Celery's signal handler does
        raise SystemExit

    scheduler._publisher.publish = terminated
    clock.forward(10)
    with pytest.raises(SystemExit):
        scheduler.tick()
    replica = scheduler._replica
    assert replica.open_

    scheduler.close()
    scheduler.close()

    assert not replica.open_


def test_what_was_sent_is_recorded_on_the_way_out(beat, app, clock, ledger):
    driver = beat(a=every(10))
    scheduler = driver.scheduler
    settle, ledger_ = scheduler._ledger.settle, scheduler._ledger

    def away(*_args):
        raise Unavailable("gone")

    ledger_.settle = away
    clock.forward(10)
    scheduler.tick()
    assert ledger.record("a").open == (None,)
    ledger_.settle = settle

    scheduler.close()

    assert ledger.record("a").open == ()


def test_a_failing_entry_is_put_off_and_the_others_go_on(beat, queue, caplog):
    driver = beat(a=every(10), b=every(10))
    driver.scheduler._plan.entries["b"].is_due = lambda: 1 / 0

    driver.run(30)

    assert seconds(queue.take()) == [10, 20, 30]
    assert any("cannot tell the next run" in r.message for r in caplog.records)


def test_all_it_logs_in_a_healthy_run_is_information(beat, caplog):
    driver = beat(a=every(10), b=every(10, task="sweep"))

    driver.run(60)

    # That the server has just been started is no affair of beat's.
    ours = [r for r in caplog.records if r.name.startswith(PACKAGE)]
    rest = [r for r in ours if r.event != "arbiter_sits_out"]
    assert {r.levelname for r in rest} <= {"INFO", "DEBUG"}


def test_the_ledger_stays_small(beat, server, clock):
    driver = beat(a=every(10), b=every(10, task="sweep"))

    driver.run(3600)

    keys = [key for key in server.cli("KEYS", "atom:*") if ":beat" in key]
    assert len(keys) == 3

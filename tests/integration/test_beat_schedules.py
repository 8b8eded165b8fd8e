"""Every type of schedule and option of an entry, sent pass by pass on a clock moved by hand."""

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from celery.exceptions import ImproperlyConfigured
from celery.schedules import crontab, solar
from support.beats import START, Clock, Driver, Owner, Queue, app_of

from celery_atomicity import Atomicity
from celery_atomicity.integration.beat import scheduler as module
from celery_atomicity.integration.beat.scheduler import PartitionedScheduler, partitioned_scheduler

UTC = timezone.utc
HOUR = 3600


class LocalClock(Clock):
    """A present that is moved in UTC and read in a zone, since a day there may have 25 hours."""

    zone = UTC

    def __call__(self):
        return self.now.astimezone(self.zone)


@pytest.fixture(autouse=True)
def _owners(monkeypatch):
    monkeypatch.setattr(module, "Replica", Owner)


@pytest.fixture
def clock():
    return LocalClock()


@pytest.fixture
def beats(server, clock, group):
    """A factory of beats: ``beats(schedule, group=..., zone=..., **settings)``."""
    apps, running = [], []

    def start(schedule, group=group, zone="UTC", **conf):
        clock.zone = ZoneInfo(zone)
        app = app_of("shop", server, group, clock=clock)
        apps.append(app)
        app.conf.update(timezone=zone, beat_schedule=schedule, **conf)
        scheduler = PartitionedScheduler(app=app)
        running.append(scheduler)
        driver = Driver(scheduler, clock)
        driver.settle()
        return driver

    yield start
    for scheduler in running:
        scheduler.close()
    for app in apps:
        Atomicity.of(app).clients.close()
        app.close()


@pytest.fixture
def take(server):
    """All that a beat has sent."""
    return lambda driver: Queue(driver.scheduler.app, server.url).take()


def of(schedule, **options):
    return {"a": {"task": "work", "schedule": schedule, **options}}


def dues(messages):
    return [f"{message.due:%d %H:%M:%S}" for message in messages]


def test_a_relative_interval_is_due_on_the_round_hour(beats, take):
    driver = beats(of(timedelta(hours=1), relative=True))

    driver.run(2.5 * HOUR)

    assert dues(take(driver)) == ["01 13:00:00", "01 14:00:00"]


def test_a_relative_interval_that_was_missed_is_late_and_then_round_again(beats, take, clock):
    beats(of(timedelta(hours=1), relative=True)).scheduler.close()
    clock.forward(3.5 * HOUR)

    driver = beats(of(timedelta(hours=1), relative=True))
    driver.run(HOUR)

    assert dues(take(driver)) == ["01 13:00:00", "01 16:00:00"]


def test_the_sun_sets_once_a_day_whichever_beat_looks(beats, take, clock):
    pytest.importorskip("ephem")
    entry = of(solar("sunset", 52.5, 13.4))
    driver = beats(entry)

    for _ in range(4 * 8):
        driver.run(3 * HOUR)
        driver.scheduler.close()
        driver = beats(entry)

    # In Berlin, in early March, two minutes later each day.
    sunsets = [message.due for message in take(driver)]
    assert [sunset.day for sunset in sunsets] == [1, 2, 3, 4]
    assert all(16.7 < sunset.hour + sunset.minute / 60 < 17.0 for sunset in sunsets)
    assert sunsets == sorted(sunsets)


def test_what_expires_does_so_from_its_sending(beats, take, clock):
    entry = of(600.0, options={"expires": 30})
    beats(entry).scheduler.close()
    clock.forward(1000)

    driver = beats(entry)

    [message] = take(driver)
    assert message.due == START + timedelta(seconds=600)
    assert datetime.fromisoformat(message.headers["expires"]) == clock.now + timedelta(seconds=30)


def test_a_crontab_that_missed_its_starting_deadline_waits_for_its_next_time(
    beats, take, clock, caplog
):
    settings = {"beat_cron_starting_deadline": 60}
    beats(of(crontab(minute=0)), **settings).scheduler.close()
    clock.forward(3 * HOUR + 120)

    driver = beats(of(crontab(minute=0)), **settings)
    late = take(driver)
    driver.run(2 * HOUR)

    assert late == []
    assert dues(take(driver)) == ["01 16:00:00", "01 17:00:00"]
    [warning] = [r.getMessage() for r in caplog.records if "dropped" in r.message]
    assert "2024-03-01T13:00:00" in warning
    assert "beat_cron_starting_deadline" in warning


def test_a_crontab_within_its_starting_deadline_is_sent_late(beats, take, clock):
    settings = {"beat_cron_starting_deadline": 300}
    beats(of(crontab(minute=0)), **settings).scheduler.close()
    clock.forward(HOUR)

    driver = beats(of(crontab(minute=0)), **settings)

    assert dues(take(driver)) == ["01 13:00:00"]


def test_results_are_cleaned_up_once_a_night(beats, take, tmp_path):
    settings = {"result_expires": HOUR, "result_backend": f"file://{tmp_path}"}
    both = [beats({}, **settings) for _ in range(2)]

    for driver in both:
        now = driver.clock.now
        driver.run(30 * HOUR)
        driver.clock.now = now

    [message] = take(driver)
    assert message.task == "celery.backend_cleanup"
    assert f"{message.due:%d %H:%M}" == "02 04:00"


DAYS = [
    ("America/New_York", (2024, 3, 10)),
    ("America/New_York", (2024, 11, 3)),
    ("Europe/London", (2024, 3, 31)),
    ("Europe/London", (2024, 10, 27)),
    ("Australia/Lord_Howe", (2024, 4, 7)),
    ("Australia/Lord_Howe", (2024, 10, 6)),
    ("Pacific/Chatham", (2024, 4, 7)),
    ("Pacific/Chatham", (2024, 9, 29)),
]
CRONTABS = {
    "hourly": {"minute": 0},
    "1:30": {"hour": 1, "minute": 30},
    "2:30": {"hour": 2, "minute": 30},
    "noon": {"hour": 12, "minute": 0},
}


def schedule_of_crontabs():
    # New ones each time: a crontab remembers the app whose scheduler has last looked at it.
    return {name: {"task": "work", "schedule": crontab(**at)} for name, at in CRONTABS.items()}


def told(messages):
    return sorted((message.headers["atomicity_beat"]["entry"], message.due) for message in messages)


# BEAT-01, BEAT-02, F90
@pytest.mark.parametrize(("zone", "day"), DAYS)
def test_beats_restarted_on_the_day_the_clocks_change_send_what_one_would(
    beats, take, clock, group, zone, day
):
    begin = datetime(*day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    clock.now = begin
    one = beats(schedule_of_crontabs(), group=f"{group}-one", zone=zone)
    one.run(8 * HOUR)
    alone = told(take(one))

    clock.now = begin
    for _ in range(24):
        driver = beats(schedule_of_crontabs(), zone=zone)
        driver.run(HOUR / 3)
        driver.scheduler.close()

    assert told(take(driver)) == alone
    assert len(set(alone)) == len(alone) >= 8


# F90
def test_beats_of_different_time_zones_share_an_hourly_entry(beats, take, clock):
    clock.now = begin = datetime(2024, 10, 26, 22, 30, tzinfo=UTC)

    for n in range(24):
        driver = beats(of(crontab(minute=0)), zone=("UTC", "Europe/London")[n % 2])
        driver.run(HOUR / 3)
        driver.scheduler.close()

    expected = [begin + timedelta(hours=n + 0.5) for n in range(8)]
    assert [message.due for message in take(driver)] == expected


# BEAT-04
def test_redbeat_which_ticks_in_its_own_way_is_refused():
    redbeat = pytest.importorskip("redbeat")

    with pytest.raises(ImproperlyConfigured, match="RedBeatScheduler has its own way to tick"):
        partitioned_scheduler(redbeat.RedBeatScheduler)

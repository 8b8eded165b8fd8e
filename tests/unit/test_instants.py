"""Celery's schedules as the rules of beat want to know them."""

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import celery
import pytest
from celery import Celery
from celery.schedules import crontab, schedule
from freezegun import freeze_time

from celery_atomicity.integration.beat.due import SECOND, judge
from celery_atomicity.integration.beat.instants import Schedule, moment, start, when

UTC = timezone.utc
BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2024, 3, 1, 12, 0, 30, 250_000, tzinfo=UTC)


@pytest.fixture
def app():
    app = Celery("frozen", broker="memory://", set_as_current=False)
    yield app
    app.close()


@pytest.fixture
def at(app, monkeypatch):
    """Set the app's clock; freezegun would lose the fold of a repeated hour."""

    def set_clock(now):
        monkeypatch.setattr(app, "now", lambda: now)

    return set_clock


def test_an_instant_survives_its_way_to_the_ledger_and_back():
    assert when(moment(START), START) == START
    assert when(moment(START), datetime.now(BERLIN)).tzinfo is BERLIN
    assert when(moment(START), datetime(2024, 1, 1)) == START.replace(tzinfo=None)  # noqa: DTZ001
    assert moment(START.replace(tzinfo=None)) == moment(START)


def test_an_interval_counts_from_the_last_run_to_the_microsecond(app):
    with freeze_time(START):
        instants = Schedule(schedule(timedelta(seconds=7.5), app=app))

    last = moment(START) - 3 * SECOND
    assert instants.every == 7_500_000
    assert instants.after(last) == last + 7_500_000


def test_a_crontab_is_due_at_its_minute_whenever_it_ran(app):
    with freeze_time(START):
        instants = Schedule(crontab(minute="*/5", app=app))

    noon = datetime(2024, 3, 1, 12, tzinfo=UTC)
    assert instants.every is None
    assert instants.after(moment(noon) - 1) == moment(noon)
    assert instants.after(moment(noon)) == moment(noon + timedelta(minutes=5))
    assert instants.after(moment(START)) == moment(noon + timedelta(minutes=5))


def test_a_relative_interval_keeps_to_the_clock(app):
    with freeze_time(START):
        instants = Schedule(schedule(timedelta(hours=1), relative=True, app=app))

    noon = datetime(2024, 3, 1, 12, tzinfo=UTC)
    assert instants.every is None
    assert instants.after(moment(START)) == moment(noon + timedelta(hours=1))


def test_a_schedule_of_ones_own_is_believed(app):
    class Odd(schedule):
        def remaining_estimate(self, last_run_at):
            return last_run_at + timedelta(seconds=3) - self.now()

    with freeze_time(START):
        instants = Schedule(Odd(timedelta(seconds=1), app=app))

    assert instants.every is None
    assert instants.after(moment(START)) == moment(START) + 3 * SECOND


def test_the_schedule_itself_keeps_its_clock(app):
    every = schedule(timedelta(seconds=1), app=app)

    Schedule(every)

    assert every.nowfun is None


DAYS = [
    ("Europe/Berlin", (2024, 3, 31)),
    ("Europe/Berlin", (2024, 10, 27)),
    ("America/New_York", (2024, 3, 10)),
    ("America/New_York", (2024, 11, 3)),
    ("Australia/Lord_Howe", (2024, 4, 7)),
    ("Australia/Lord_Howe", (2024, 10, 6)),
    ("Pacific/Chatham", (2024, 4, 7)),
    ("Pacific/Chatham", (2024, 9, 29)),
]
SPECS = [
    {"minute": 0},
    {"minute": "*/15"},
    {"hour": 1, "minute": 30},
    {"hour": 2, "minute": 30},
    {"hour": 12, "minute": 0},
]


def presents(app, at, zone, day):
    """A day in steps of five minutes, each as the app's present."""
    app.conf.timezone = zone
    begin = datetime(*day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    for minutes in range(0, 25 * 60, 5):
        now = (begin + timedelta(minutes=minutes)).astimezone(ZoneInfo(zone))
        at(now)
        yield now


# BEAT-01
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize(("zone", "day"), DAYS)
def test_daylight_saving_neither_doubles_nor_swallows_what_celery_decides(app, at, zone, day, spec):
    every = crontab(**spec, app=app)
    last = None
    celerys = []
    for now in presents(app, at, zone, day):
        if every.is_due(last := last or now).is_due:
            celerys.append(moment(now))
            last = now

    last = None
    ours, dues = [], []
    for now in presents(app, at, zone, day):
        last = moment(now) if last is None else last
        if every.is_due(when(last, now)).is_due:
            instants = Schedule(every)
            tick = judge(instants, last, instants.now)
            if tick is None and celery.VERSION[:2] < (5, 7):
                # It takes an hour that comes twice for one, and calls due what it says lies ahead.
                pytest.skip("this Celery counts by the wall clock across a change of offset")
            ours.append(moment(now))
            dues.append(tick.due)
            last = tick.becomes

    assert ours == celerys
    assert len(set(dues)) == len(dues) > 0


NOW = moment(START)


def entry(schedule, **model):
    found = SimpleNamespace(schedule=schedule)
    if model:
        found.model = SimpleNamespace(**model)
    return found


def test_counting_starts_now(app):
    assert start(entry(schedule(timedelta(seconds=9), app=app)), NOW) == NOW
    assert start(entry(crontab(app=app)), NOW) == NOW


def test_what_has_an_instant_of_its_own_is_due_at_it_however_late_it_is_found():
    past = SimpleNamespace(clocked_time=START - timedelta(minutes=3))
    future = SimpleNamespace(clocked_time=START + timedelta(minutes=3))

    assert start(entry(past), NOW) < moment(past.clocked_time)
    assert start(entry(future), NOW) == NOW


def test_a_start_time_is_the_first_instant(app):
    every = schedule(timedelta(seconds=9), app=app)
    later = START + timedelta(hours=1)

    assert start(entry(every, start_time=later), NOW) + 9 * SECOND == moment(later)
    assert start(entry(every, start_time=START - timedelta(hours=1)), NOW) == NOW

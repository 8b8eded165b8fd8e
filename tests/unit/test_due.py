"""The rules of beat: which tick is due, and whose it is."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from celery_atomicity.integration.beat.due import SECOND, Tick, Unit, judge, tick_id

NOW = 1_700_000_000 * SECOND

moments = st.integers(min_value=0, max_value=4_000_000_000 * SECOND)
lengths = st.integers(min_value=1, max_value=86_400 * SECOND)
waits = st.integers(min_value=0, max_value=7 * 86_400 * SECOND)


class Every:
    """Counts from the last run, as intervals do."""

    def __init__(self, every):
        self.every = every

    def after(self, last):
        return last + self.every


class Clockwork:
    """Is due at the multiples of *step*, as a crontab is at its minutes."""

    every = None

    def __init__(self, step):
        self.step = step

    def after(self, last):
        return last // self.step * self.step + self.step


schedules = st.one_of(st.builds(Every, lengths), st.builds(Clockwork, lengths))


@given(schedules, moments, waits)
def test_a_tick_is_due_from_its_instant_on_and_never_before(schedule, last, wait):
    now = last + wait

    tick = judge(schedule, last, now)

    assert (tick is not None) == (schedule.after(last) <= now)


# BEAT-02
@given(schedules, moments, waits)
def test_what_came_due_meanwhile_is_one_tick(schedule, last, wait):
    now = last + wait
    tick = judge(schedule, last, now)

    if tick is not None:
        assert tick.due == schedule.after(last)
        assert last < tick.due <= tick.becomes <= now
        assert schedule.after(tick.becomes) > now
        assert judge(schedule, tick.becomes, now) is None


# BEAT-02
@given(lengths, moments, st.lists(waits, min_size=1, max_size=20))
def test_intervals_keep_their_pace_however_late_they_are_sent(every, last, waits):
    first, now = last, last
    for wait in waits:
        now += wait
        tick = judge(Every(every), last, now)
        if tick is not None:
            last = tick.becomes

            assert (tick.due - first) % every == 0
            assert now - last < every


# BEAT-08
def test_an_instant_that_a_schedule_names_again_is_not_due_again():
    class Once:
        every = None

        def after(self, _last):
            return NOW

    tick = judge(Once(), NOW - 5, NOW + 3)

    assert tick == Tick(NOW, NOW + 3)
    assert judge(Once(), tick.becomes, NOW + 10 * SECOND) is None


def test_a_schedule_without_length_is_never_due():
    assert judge(Every(0), NOW, NOW + SECOND) is None


@given(schedules, moments, waits, st.floats(min_value=0, max_value=1e6))
def test_grace_gives_up_what_is_older_and_sends_the_first_that_is_not(schedule, last, wait, grace):
    now = last + wait
    horizon = now - round(grace * SECOND)

    tick = judge(schedule, last, now, grace)

    without = judge(schedule, last, now)
    assert (tick is None) == (without is None)
    if tick is None:
        return
    assert tick.becomes == without.becomes
    assert tick.sent == (horizon <= tick.due <= now)
    assert (tick.dropped is not None) == (without.due < horizon)
    if tick.dropped is not None:
        assert tick.dropped == without.due
    if tick.sent and tick.dropped is not None:
        assert tick.due == without.due or not schedule.every or tick.due - schedule.every < horizon


def test_grace_sends_what_is_late_by_no_more_than_it():
    every = Every(2 * SECOND)

    tick = judge(every, NOW, NOW + 20 * SECOND, grace=5)

    assert tick == Tick(NOW + 16 * SECOND, NOW + 20 * SECOND, dropped=NOW + 2 * SECOND)


def test_grace_drops_all_if_the_newest_is_too_old():
    daily = Clockwork(86_400 * SECOND)
    midnight = daily.after(NOW)

    tick = judge(daily, NOW, midnight + 61 * SECOND, grace=60)

    assert not tick.sent
    assert tick.dropped == midnight
    assert tick.becomes == midnight + 61 * SECOND


# BEAT-05
@given(st.text())
def test_an_entry_belongs_to_the_slot_of_its_name(name):
    assert Unit(name).place == (zlib.crc32(name.encode()) % 1024, 1024)


# BEAT-05
def test_a_partitioned_entry_belongs_to_the_slots_it_is_sent_for():
    assert [Unit("sweep", slot, 16).place for slot in (0, 15)] == [(0, 16), (15, 16)]


# BEAT-03
def test_the_task_id_follows_from_the_tick_alone():
    ids = {
        tick_id(group, unit, last)
        for group in ("shop", "shop.beat")
        for unit in (Unit("a"), Unit("a", 0, 4), Unit("a", 1, 4), Unit("b"))
        for last in (1, 2)
    }

    assert len(ids) == 16
    assert tick_id("shop", Unit("a", 1, 4), 2) == tick_id("shop", Unit("a", 1, 8), 2)


def test_task_ids_are_the_same_in_every_release():
    # A rollout mixes versions: both must give a tick the same id.
    unit = Unit("sweep", 3, 16)

    assert tick_id("shop", unit, NOW) == "008baefd-838a-5534-b9d2-5e9c0d047f86"

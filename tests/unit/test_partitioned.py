"""The mark by which beat knows what to fan out."""

import pytest
from celery import Celery, Task, shared_task

from celery_atomicity.integration.beat.partitioned import Fan, fan_of, partitioned


@pytest.fixture
def app():
    app = Celery("marked", broker="memory://", set_as_current=False)
    yield app
    app.close()


def test_it_stands_under_and_over_the_task_decorator(app):
    @app.task(name="under")
    @partitioned(slots=4)
    def under(slot): ...

    @partitioned(slots=5)
    @app.task(name="over")
    def over(slot): ...

    @partitioned(slots=6, argument="part")
    @app.task(name="bound", bind=True, autoretry_for=(ValueError,))
    def bound(self, part=None): ...

    assert fan_of(app.tasks["under"], {}) == Fan(4)
    assert fan_of(app.tasks["over"], {}) == Fan(5)
    assert fan_of(app.tasks["bound"], {}) == Fan(6, "part")


def test_it_marks_shared_tasks_of_every_app(app):
    @shared_task(name="tests.under")
    @partitioned(slots=4)
    def under(slot): ...

    @partitioned(slots=5)
    @shared_task(name="tests.over")
    def over(slot): ...

    assert fan_of(app.tasks["tests.under"], {}) == Fan(4)
    assert fan_of(app.tasks["tests.over"], {}) == Fan(5)


def test_it_marks_classes(app):
    @partitioned(slots=4)
    class Sweep(Task):
        name = "sweep"

        def run(self, slot): ...

    assert fan_of(app.register_task(Sweep()), {}) == Fan(4)


def test_over_a_shared_task_no_app_is_asked(app, monkeypatch):
    def fail():
        raise AssertionError("a current app is asked for")

    monkeypatch.setattr("celery._state.get_current_app", fail)

    @partitioned(slots=5)
    @shared_task(name="tests.unasked")
    def unasked(slot): ...

    assert fan_of(app.tasks["tests.unasked"], {}) == Fan(5)


def test_over_a_task_it_does_not_make_the_task_too_early(app):
    @partitioned(slots=4)
    @app.task(name="early")
    def early(slot): ...

    assert not app.configured
    assert "early" not in app._tasks

    app.conf.task_default_queue = "late"
    assert fan_of(app.tasks["early"], {}) == Fan(4)


def test_a_call_is_one_run(app):
    @app.task
    @partitioned(slots=4)
    def double(slot):
        return 2 * slot

    assert double(3) == 6
    assert double.apply(kwargs={"slot": 2}).get() == 4
    assert double.__wrapped__.__name__ == "double"


def test_without_the_mark_nothing_is_fanned_out(app):
    @app.task
    def plain(): ...

    assert fan_of(plain, {}) is None
    assert fan_of(None, {"headers": None}) is None


def test_an_entry_says_it_for_a_task_that_is_elsewhere():
    headers = {"atomicity_slots": 16}

    assert fan_of(None, {"headers": headers}) == Fan(16)
    assert fan_of(None, {"headers": {"atomicity_slots": "16"}}) == Fan(16)
    assert fan_of(None, {"headers": headers | {"atomicity_argument": "part"}}) == Fan(16, "part")


@pytest.mark.parametrize("slots", [0, -1, 1.5, True, None, "many", 65_537])
def test_a_number_of_slots_that_is_none_is_refused(slots):
    with pytest.raises(ValueError, match="from 1 to 65536"):
        partitioned(slots=slots)


def test_a_parameter_that_is_not_there_is_refused_where_it_is_applied(app):
    with pytest.raises(TypeError, match="no parameter 'slot'"):

        @partitioned(slots=4)
        def wrong(part): ...

    with pytest.raises(TypeError, match="by name"):

        @partitioned(slots=4)
        def positional(slot, /): ...

    @partitioned(slots=4)
    def anything(**kwargs): ...

    assert fan_of(anything, {}) == Fan(4)

"""What ``rate_limited`` takes, refuses, and does where there is no worker and no arbiter."""

import pytest
from celery import Celery
from celery._state import _task_stack

from celery_atomicity import Atomicity, AtomicityError, NotConfigured, hold_back, rate_limited
from celery_atomicity.integration.rate_limit.decorator import Rules
from celery_atomicity.integration.tasks.decoration import marks


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", set_as_current=False)
    app.conf.atomicity_redis = ""
    Atomicity(app)
    yield app
    app.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": "10/x"}, "rate"),
        ({"rate": 0}, "rate"),
        ({"burst": 0}, "burst"),
        ({"burst": float("nan")}, "burst"),
        ({"cost": 0}, "cost"),
        ({"cost": -1}, "cost"),
        ({"cost": 3, "burst": 2}, "raise burst"),
        ({"on_limit": "delays"}, "did you mean 'delay'"),
        ({"when_unavailable": "walk"}, "when_unavailable"),
        ({"max_delay": -1}, "max_delay"),
        ({"scope": ""}, "scope"),
        ({"key": "{nobody}"}, "nobody"),
        ({"key": ""}, "key"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_written(options, message):
    with pytest.raises(ValueError, match=message):

        @rate_limited(**{"rate": "1/s", **options})
        def task(tenant): ...


@pytest.mark.parametrize("options", [{"rate": None}, {"burst": "2"}, {"cost": "2"}, {"key": 7}])
def test_what_is_of_another_kind_is_refused_where_it_is_written(options):
    with pytest.raises(TypeError):

        @rate_limited(**{"rate": "1/s", **options})
        def task(tenant): ...


def test_a_task_keeps_what_it_is(app):
    @app.task
    @rate_limited("1/s", key="{tenant}")
    def under(tenant, mode="full"):
        """Say something."""

    @rate_limited("1/s", key="{tenant}")
    @app.task
    def over(tenant, mode="full"):
        """Say something."""

    for task in (under, over):
        assert task.__doc__ == "Say something."
        assert isinstance(marks(task.run)[0], Rules)
        with pytest.raises(TypeError, match="tenant"):
            task.delay()


def test_without_an_arbiter_a_direct_or_eager_call_just_runs(app):
    @app.task
    @rate_limited("1/h", burst=1)
    def task(number):
        hold_back(5)
        return number

    assert [task(1), task(2)] == [1, 2]
    assert task.apply((3,)).get() == 3
    app.conf.task_always_eager = True
    assert task.delay(4).get() == 4


def test_a_call_that_does_not_fit_fails_as_if_undecorated(app):
    @app.task
    @rate_limited("1/h", key="{tenant}")
    def task(tenant): ...

    with pytest.raises(TypeError, match="tenant"):
        task()


@pytest.mark.parametrize(
    ("cost", "error"), [(lambda size: -size, ValueError), (lambda size: f"{size}", TypeError)]
)
def test_a_computed_cost_that_cannot_work_fails_the_call(app, cost, error):
    @rate_limited("1/s", burst=10, cost=cost)
    def function(size): ...

    with pytest.raises(error, match="cost"):
        function(3)


def test_holding_back_is_for_a_rate_limited_task():
    with pytest.raises(AtomicityError, match="rate_limited"):
        hold_back(1)


def test_holding_back_a_scope_that_the_task_has_not(app):
    @rate_limited("1/s", scope="partner")
    def function():
        hold_back(1, scope="other")

    with pytest.raises(AtomicityError, match="'partner'"):
        function()


def test_in_a_worker_an_arbiter_is_needed(app):
    @app.task
    @rate_limited("1/s")
    def task():
        return 1

    _task_stack.push(task)
    task.push_request(id="1", called_directly=False, is_eager=False, args=(), kwargs={})
    try:
        with pytest.raises(NotConfigured):
            task.run()
    finally:
        task.pop_request()
        _task_stack.pop()

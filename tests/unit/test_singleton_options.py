"""``singleton_by`` without a server: what it refuses, and that unit tests of users need none."""

import uuid
from datetime import timedelta

import celery
import pytest
from celery import Celery, Task, shared_task
from celery.app.trace import build_tracer

from celery_atomicity import Atomicity, NotConfigured, singleton_by
from celery_atomicity.integration.tasks.decoration import marks


@pytest.fixture
def app(monkeypatch):
    for name in ("ATOMICITY_REDIS", "ATOMICITY_DEV"):
        monkeypatch.delenv(name, raising=False)
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=True)
    yield app
    app.close()


def run_as_worker(task, *args, **kwargs):
    """Run *task* as a worker's tracer does; its state and what it raised or returned."""
    tracer = build_tracer(task.name, task, app=task.app)
    task_id = uuid.uuid4().hex
    outcome = tracer(task_id, args, kwargs, {"id": task_id, "is_eager": False, "delivery_info": {}})
    if outcome.info is None:
        return "SUCCESS", outcome.retval
    return outcome.info.state, outcome.info.retval


class TestRefusedWhereItIsApplied:
    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"on_conflict": "skp"}, "did you mean 'skip'"),
            ({"on_conflict": None}, "is not one of 'wait', 'retry', 'skip', 'raise'"),
            ({"on_lost": "die"}, "'fail', 'interrupt', 'log'"),
            ({"ttl": 0}, "from 0.1 to 3600"),  # F35
            ({"ttl": -1}, "from 0.1 to 3600"),
            ({"ttl": 0.0004}, "from 0.1 to 3600"),
            ({"ttl": 1e12}, "from 0.1 to 3600"),
            ({"ttl": float("nan")}, "cannot work"),
            ({"ttl": timedelta(days=1)}, "from 0.1 to 3600"),
            ({"wait": -1}, "at least 0"),
            ({"wait": float("inf")}, "cannot work"),
            ({"min_hold": -1}, "at least 0"),
            ({"max_hold": 0}, "at least 0.001"),
            ({"min_hold": 5, "max_hold": 4}, "longer than max_hold"),
            ({"scope": ""}, "names something"),
            ({"scope": 5}, "names something"),
        ],
        ids=str,
    )
    def test_values_that_cannot_work(self, options, says):
        with pytest.raises(ValueError, match=says):
            singleton_by("all", **options)

    @pytest.mark.parametrize("options", [{"ttl": "5"}, {"wait": True}, {"max_hold": object()}])
    def test_kinds_that_cannot_work(self, options):
        with pytest.raises(TypeError, match="number of seconds or a timedelta"):
            singleton_by("all", **options)

    def test_durations_as_seconds_or_timedelta(self):
        @singleton_by("all", ttl=timedelta(seconds=2), wait=timedelta(minutes=1), min_hold=1)
        def task(): ...

        [rules] = marks(task)
        assert (rules.ttl, rules.wait, rules.min_hold, rules.max_hold) == (2.0, 60.0, 1.0, None)

    @pytest.mark.parametrize("over", [False, True])
    def test_a_name_that_is_no_parameter(self, app, over):
        def task(account_id): ...

        with pytest.raises(ValueError, match="did you mean 'account_id'"):
            singleton_by("{acount_id}")(app.task(shared=False)(task) if over else task)


class TestWithoutAServer:
    """An eager or direct call just runs; a worker says what is missing."""

    @pytest.fixture(params=["not installed", "off"])
    def bare(self, app, request):
        if request.param == "off":
            app.conf.atomicity_redis = ""
            Atomicity(app)
        return app

    @pytest.mark.parametrize("options", [{}, {"bind": True}, {"autoretry_for": (ValueError,)}])
    @pytest.mark.parametrize("over", [False, True])
    def test_eager_and_direct_calls_run(self, bare, over, options):
        def task(*args):
            return args[-1]

        if options.get("bind"):

            def function(self, x):
                return task(x)
        else:

            def function(x):
                return task(x)

        once = singleton_by("{x}", on_conflict="skip", on_lost="interrupt")
        make = bare.task(shared=False, **options)
        decorated = once(make(function)) if over else make(once(function))

        assert decorated.apply((1,)).get() == 1
        assert decorated(2) == 2
        assert decorated.run(3) == 3
        bare.conf.task_always_eager = True
        assert decorated.delay(4).get() == 4

    def test_a_worker_is_told(self, bare):
        @bare.task(shared=False, lazy=False)
        @singleton_by("all")
        def task(): ...

        state, error = run_as_worker(task)

        assert state == "FAILURE"
        assert isinstance(error, NotConfigured)

    def test_so_is_a_task_that_calls_another_one_inside_a_worker(self, bare):
        @bare.task(shared=False, lazy=False)
        @singleton_by("all")
        def inner(): ...

        @bare.task(shared=False, lazy=False)
        def outer():
            inner()

        state, error = run_as_worker(outer)

        assert state == "FAILURE"
        assert isinstance(error, NotConfigured)

    def test_a_call_that_does_not_fit_fails_as_it_would_undecorated(self, bare):  # F03
        def task(account_id): ...

        plain = bare.task(shared=False, lazy=False, name="plain")(task)
        once = bare.task(shared=False, lazy=False, name="once")(singleton_by("all")(task))

        for args, kwargs in (((), {}), ((1, 2), {}), ((1,), {"x": 2})):
            expected = plain.apply(args, kwargs).result
            result = once.apply(args, kwargs).result

            assert type(result) is type(expected) is TypeError
            assert str(result) == str(expected)
            assert run_as_worker(once, *args, **kwargs)[0] == "FAILURE"

    def test_class_based_and_shared(self, bare):
        class Base(Task):
            abstract = True

            @singleton_by("{self.name}:{x}")
            def run(self, x):
                return x

        class Mine(Base):
            name = "mine"

        @singleton_by("{x}")
        @shared_task(name=f"shared.{uuid.uuid4().hex}")
        def shared(x):
            return x

        assert bare.register_task(Mine()).apply((1,)).get() == 1
        assert shared.apply((2,)).get() == 2

    @pytest.mark.skipif(celery.VERSION < (5, 5), reason="Celery knows pydantic=True from 5.5 on")
    @pytest.mark.parametrize("over", [False, True])
    def test_pydantic(self, bare, over):
        pydantic = pytest.importorskip("pydantic")

        class Order(pydantic.BaseModel):
            id: int

        def handle(order):
            return order.id

        handle.__annotations__ = {"order": Order, "return": int}
        keys = []
        once = singleton_by(["{order.id}", lambda order: keys.append(order) or "x"])
        make = bare.task(shared=False, lazy=False, pydantic=True)
        task = once(make(handle)) if over else make(once(handle))

        assert task.apply(({"id": 5},)).get() == 5
        assert keys == [{"id": 5} if over else Order(id=5)]

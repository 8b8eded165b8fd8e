"""Our decorators around every kind of task, in any order of stacking, without a server."""

import functools
import gc
import inspect
import types
import weakref

import pytest
from celery import Celery, Task, current_task, shared_task
from celery.exceptions import Ignore

from celery_atomicity.integration.tasks.decoration import decorate, marks
from celery_atomicity.integration.tasks.execution import give_way, running


@pytest.fixture
def app():
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=True)
    app.conf.task_always_eager = True
    yield app
    app.close()


class Recorder:
    """A decorator that notes each execution, under a name."""

    def __init__(self):
        self.notes = []
        self.functions = []

    def __call__(self, label="one"):
        def compile_body(function):
            self.functions.append(function)

            def body(execution):
                arguments = inspect.signature(function).bind(
                    *execution.bound_args, **execution.kwargs
                )
                arguments.arguments.pop("self", None)
                self.notes.append(
                    (label, execution.name, execution.where, dict(arguments.arguments))
                )
                return execution.call()

            return body

        return decorate(compile_body, label)


@pytest.fixture
def record():
    return Recorder()


def double(x, y=0):
    """Twice x."""
    return 2 * x + y


def bound_double(self, x, y=0):
    """Twice x."""
    assert self.name
    return 2 * x + y


def make_under(app, record, **options):
    return app.task(shared=False, **options)(
        record()(bound_double if options.get("bind") else double)
    )


def make_over(app, record, **options):
    return record()(
        app.task(shared=False, **options)(bound_double if options.get("bind") else double)
    )


def make_over_existing(app, record, **options):
    return record()(
        app.task(shared=False, lazy=False, **options)(
            bound_double if options.get("bind") else double
        )
    )


ORDERS = pytest.mark.parametrize("make", [make_under, make_over, make_over_existing])


@ORDERS
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bind": True},
        {"typing": False},
        {"autoretry_for": (ValueError,)},
        {"bind": True, "autoretry_for": (ValueError,), "name": "named"},
        {"base": type("Base", (Task,), {"abstract": True})},
    ],
    ids=str,
)
class TestKindsOfTasks:
    def test_runs_through_the_decorator_once(self, app, record, make, options):
        task = make(app, record, **options)
        name = task.name

        assert task.delay(1, y=5).get() == 7
        assert task.apply((2,)).get() == 4
        assert task(3) == 6

        assert record.notes == [
            ("one", name, "eager", {"x": 1, "y": 5}),
            ("one", name, "eager", {"x": 2}),
            ("one", name, "direct", {"x": 3}),
        ]

    def test_looks_like_the_original(self, app, record, make, options):
        task = make(app, record, **options)

        assert task.__doc__ == "Twice x."
        names = [name for name in inspect.signature(task.run).parameters if name != "self"]
        assert names == ["x", "y"]
        if "name" not in options:
            assert task.name.endswith("double")
        assert callable(task.__wrapped__)

    def test_delay_still_checks_the_arguments(self, app, record, make, options):
        app.conf.task_always_eager = False  # an eager call is not checked by Celery at all
        task = make(app, record, **options)

        if options.get("typing", True):
            with pytest.raises(TypeError, match="missing 1 required positional argument"):
                task.delay()
            with pytest.raises(TypeError, match="unexpected keyword argument"):
                task.delay(1, z=2)
        else:
            task.delay()

        assert record.notes == []


@pytest.mark.parametrize("lazy", [True, False])
def test_decorating_over_a_task_does_not_finish_the_app(record, lazy):
    app = Celery("late", broker="memory://", set_as_current=False)

    record()(app.task(shared=False)(double) if lazy else app.task(shared=False, lazy=False)(double))

    assert not app.finalized
    if lazy:
        assert not app.configured


def test_over_a_lazy_task_that_is_used_before_its_app_is_finished(record):
    app = Celery("late", broker="memory://", set_as_current=True)
    task = app.task(shared=False)(double)
    assert task.name  # woken by this
    task = record()(task)

    assert task.run(1) == 2

    assert len(record.notes) == 1
    app.finalize()
    assert task.run(1) == 2
    assert len(record.notes) == 2


@pytest.mark.parametrize("order", ["under", "over", "late"])
def test_shared_task_in_every_app(record, order):
    first = Celery("first", set_as_current=True)
    if order != "late":
        first.finalize()

    def shared_double(x):
        return 2 * x

    shared_double.__qualname__ = shared_double.__name__ = f"shared_double_{order}"
    if order == "under":
        task = shared_task(record()(shared_double))
    else:
        task = record()(shared_task(shared_double))
    second = Celery("second", set_as_current=True)

    for app in (first, second):
        app.set_current()
        assert app.tasks[task.name].apply((2,)).get() == 4
        assert task.apply((3,)).get() == 6

    assert [note[2:] for note in record.notes] == [("eager", {"x": 2}), ("eager", {"x": 3})] * 2


def test_nothing_is_kept_of_an_app_that_is_gone(record):
    def make():
        app = Celery("gone", broker="memory://", set_as_current=False)
        function = types.FunctionType(double.__code__, globals(), "gone")
        task = record()(app.task(shared=False, name="gone")(function))
        app.finalize()
        assert task.run(1, 0) == 2
        app.close()
        return [weakref.ref(kept) for kept in (app, app.tasks["gone"], function)]

    gone = make()
    record.functions.clear()
    gc.collect()

    assert [ref() for ref in gone] == [None] * 3


def test_several_decorators_keep_their_order(app, record):
    under = app.task(shared=False, name="under")(record("outer")(record("inner")(double)))
    over = record("outer")(record("inner")(app.task(shared=False, name="over")(double)))
    both = record("outer")(app.task(shared=False, name="both")(record("inner")(double)))
    mixed = record("outer")(shared_task(name="mixed")(record("inner")(double)))
    twice = record("outer")(record("inner")(shared_task(name="twice")(double)))

    for task in (under, over, both, mixed, twice):
        record.notes.clear()
        assert task.apply((1,)).get() == 2
        assert [note[0] for note in record.notes] == ["outer", "inner"]
        assert marks(task.run) == ["outer", "inner"]


class TestClassBasedTasks:
    def test_on_run(self, app, record):
        class Double(Task):
            name = "class.double"

            @record()
            def run(self, x):
                assert self.request is not None
                return 2 * x

        task = app.register_task(Double())

        assert task.apply((2,)).get() == 4
        assert task(3) == 6
        assert task.run(4) == 8
        assert record.notes == [
            ("one", "class.double", where, {"x": x})
            for where, x in (("eager", 2), ("direct", 3), ("direct", 4))
        ]

    def test_on_the_class_and_inherited(self, app, record):
        class Base(Task):
            abstract = True

            @record()
            def run(self, x):
                return 2 * x

        class One(Base):
            name = "one"

        class Two(Base):
            name = "two"

            def run(self, x):
                return super().run(x) + 1

        @record("class")
        class Three(Base):
            name = "three"

        one, two, three = (app.register_task(kind()) for kind in (One, Two, Three))

        assert (one.apply((1,)).get(), two.apply((1,)).get(), three.apply((1,)).get()) == (2, 3, 2)
        assert [note[:2] for note in record.notes] == [
            ("one", "one"),
            ("one", "two"),
            ("class", "three"),
            ("one", "three"),
        ]

    def test_on_an_instance(self, app, record):
        class Double(Task):
            name = "instance.double"

            def run(self, x):
                return 2 * x

        task = app.register_task(record()(Double()))

        assert task.apply((2,)).get() == 4
        assert record.notes == [("one", "instance.double", "eager", {"x": 2})]

    def test_a_base_with_its_own_call(self, app, record):
        class Loud(Task):
            abstract = True

            def __call__(self, *args, **kwargs):
                return super().__call__(*args, **kwargs) + 100

        for make in (make_under, make_over):
            record.notes.clear()
            task = make(app, record, base=Loud, name=make.__name__)

            assert task.apply((1,)).get() == 102
            assert task(1) == 102
            assert [note[1] for note in record.notes] == [make.__name__] * 2


class TestForeignDecorators:
    def hiding(self, function):
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    def honest(self, function):
        return functools.wraps(function)(self.hiding(function))

    def test_above_ours(self, app, record):
        for name, foreign in (("hiding", self.hiding), ("honest", self.honest)):
            record.notes.clear()
            task = app.task(shared=False, name=name, lazy=False)(foreign(record()(double)))

            assert task.apply((1,)).get() == 2
            assert record.notes == [("one", name, "eager", {"x": 1})]

    def test_as_an_object(self, app, record):
        class Foreign:
            __name__ = "foreign"
            __annotations__ = {}

            def __init__(self, function):
                self.function = function

            def __call__(self, x):
                return self.function(x)

        task = app.task(shared=False, name="object", lazy=False)(Foreign(record()(double)))

        assert task.apply((1,)).get() == 2
        assert record.notes == [("one", "object", "eager", {"x": 1})]

    def test_below_ours(self, app, record):
        task = app.task(shared=False, name="below", lazy=False)(record()(self.honest(double)))

        assert task.apply((1,)).get() == 2
        assert record.notes == [("one", "below", "eager", {"x": 1})]


class TestWhoseExecutionItIs:
    def test_a_task_that_calls_another_ones_function(self, app, record):
        inner = app.task(shared=False, name="inner", lazy=False)(record()(double))

        @app.task(shared=False, name="outer", lazy=False)
        def outer(x):
            return inner.run(x) + inner(x) + inner.__wrapped__(x)

        assert outer.apply((1,)).get() == 6
        assert record.notes == [("one", "inner", "direct", {"x": 1})] * 3

    def test_a_task_that_calls_itself(self, app, record):
        @app.task(shared=False, name="deep", lazy=False)
        @record()
        def deep(x):
            return deep.run(x - 1) if x else "end"

        assert deep.apply((1,)).get() == "end"
        assert [note[2] for note in record.notes] == ["eager", "direct"]

    def test_a_helper_that_is_no_task(self, app, record):
        helper = record()(double)

        @app.task(shared=False, name="user", lazy=False)
        def user(x):
            return helper(x)

        assert user.apply((1,)).get() == 2
        assert helper(1) == 2
        assert record.notes == [("one", f"{__name__}.double", "direct", {"x": 1})] * 2

    def test_the_innermost_execution_is_known_while_it_runs(self, app):
        seen = []

        def task(x):
            seen.append(running())
            return current_task.name

        named = app.task(shared=False, name="seen", lazy=False)(
            decorate(lambda _: lambda e: e.call())(task)
        )

        assert named.apply((1,)).get() == "seen"
        assert seen[0].task is named
        assert running() is None

    def test_what_is_held_gives_way_before_the_same_task_is_published_again(self, app):
        """Only a worker's execution, and only the very same task id."""
        gone = []

        def body(execution):
            execution.where = "worker"
            execution.yields += [lambda: gone.append("first"), lambda: gone.append("last")]
            give_way("somebody else")
            assert gone == []
            give_way(execution.request.id)
            assert gone == ["last", "first"]
            return execution.call()

        task = app.task(shared=False, name="way", lazy=False)(decorate(lambda _: body)(double))

        assert task.apply((1,), task_id="way-1").get() == 2


class TestRefusals:
    async def coroutine(self):
        """Its body runs after it has returned."""

    def generator(self):
        yield

    @pytest.mark.parametrize("name", ["coroutine", "generator"])
    def test_what_has_not_run_when_it_returns(self, record, name):
        with pytest.raises(TypeError, match="before any of it has run"):
            record()(getattr(self, name))

    def test_what_cannot_be_called(self, record):
        with pytest.raises(TypeError, match="decorates a task or its function"):
            record()(5)

    def test_an_error_of_the_decorator_comes_where_it_is_applied(self, app):
        def refuse(function):
            raise ValueError(function.__name__)

        for target in (double, app.task(shared=False)(double), shared_task(name="x.y")(double)):
            with pytest.raises(ValueError, match="double"):
                decorate(refuse)(target)


def test_staticmethods_keep_their_kind(record):
    class Holder:
        @record()
        @staticmethod
        def double(x):
            return 2 * x

    assert Holder.double(2) == 4
    assert len(record.notes) == 1


def test_wrapping_keeps_attributes_of_the_function(record):
    double.extra = 5
    wrapped = record()(double)

    assert wrapped.extra == 5
    assert wrapped.__wrapped__ is double
    assert isinstance(wrapped, types.FunctionType)


def test_who_ends_as_ignored_brings_no_more_frames_than_it_has_to():
    """Celery formats each of them, twice, for each task that is given back to its queue."""

    def deep(depth):
        if depth:
            deep(depth - 1)
        raise Ignore

    outer, inner = (decorate(lambda _: lambda execution: execution.call()) for _ in range(2))

    with pytest.raises(Ignore) as caught:
        outer(inner(lambda: deep(20)))()

    assert len(caught.traceback) <= 3  # here, the wrapper, and what runs it
    assert caught.value.__context__ is None or caught.value.__suppress_context__

"""``bypass``: decorated tasks just run, whatever is configured; afterwards they do not."""

import threading

import pytest
from celery import Celery

from celery_atomicity import (
    Atomicity,
    AtomicityError,
    LockTimeout,
    current_lease,
    rate_limited,
    singleton_by,
)
from celery_atomicity.testing import bypass, free_port


@pytest.fixture
def app():
    with Celery("shop", broker="memory://", set_as_current=False) as app:
        app.conf.update(atomicity_redis=f"redis://127.0.0.1:{free_port()}/0", atomicity_timeout=0.1)
        Atomicity(app)
        yield app


@pytest.fixture
def book(app):
    @app.task(shared=False)
    @singleton_by(["{x}", "all"], scope="s", on_conflict="raise")
    @rate_limited("1/h", on_limit="raise")
    def book(x):
        current_lease.check()
        return current_lease.fence, current_lease.keys

    return book


@pytest.mark.parametrize("call", [lambda t, x: t(x), lambda t, x: t.apply((x,)).get()])
def test_a_task_runs_and_has_a_lease(book, call):
    with bypass():
        (first, keys), (second, _) = call(book, "a"), call(book, "a")

    assert keys == ("s:a", "s:all")
    assert first < second


def test_two_of_one_key_run_at_once(app):
    with bypass():
        meeting = threading.Barrier(2)

        @app.task(shared=False)
        @singleton_by("all")
        def meet():
            return meeting.wait(5)

        other = threading.Thread(target=meet)
        other.start()
        meet()
        other.join()


def test_after_it_everything_is_asked_for_again(book):
    with bypass():
        with bypass():
            pass
        book("a")

    with pytest.raises(LockTimeout):
        book("a")
    with pytest.raises(AtomicityError, match="No lease is held here"):
        current_lease.check()


def test_a_call_that_does_not_fit_fails_as_ever(book):
    with bypass(), pytest.raises(TypeError):
        book()


def test_its_lease_is_of_a_task_under_singleton_by_only(app):
    @app.task(shared=False)
    @rate_limited("1/h")
    def limited():
        return current_lease.fence

    with bypass(), pytest.raises(AtomicityError, match="No lease is held here"):
        limited()


@bypass()
def test_it_decorates_a_test(book):
    assert book("a")

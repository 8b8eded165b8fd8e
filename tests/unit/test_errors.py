import pickle

import pytest
from celery import Celery
from celery.backends.base import Backend

import celery_atomicity
from celery_atomicity import (
    AlreadyHeld,
    AtomicityError,
    LeaseLost,
    LockTimeout,
    NotConfigured,
    RateLimited,
    Unavailable,
)

ERRORS = [
    NotConfigured("off"),
    Unavailable("away"),
    LockTimeout("taken", keys=["a"], group="g", waited=1.5, holder="w1", remaining=2.0),
    LeaseLost("lost", keys=["a"], group="g", fence=7, reason="frozen"),
    AlreadyHeld("twice", keys=["a"], group="g"),
    RateLimited("over", keys=["a"], group="g", retry_after=0.5),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_pickle_with_their_data(error):
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
    assert isinstance(copy, AtomicityError)


@pytest.mark.parametrize("serializer", ["json", "pickle"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_keep_their_data_in_result_backends(error, serializer):
    app = Celery(set_as_current=False, result_serializer=serializer, accept_content=[serializer])
    backend = Backend(app)

    stored = backend.encode(backend.prepare_exception(error))
    copy = backend.exception_to_python(backend.decode(stored))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__


def test_errors_show_their_message_alone():
    assert str(RateLimited("over", keys=["a"], group="g", retry_after=0.5)) == "over"


def test_what_is_public_is_what_all_names():
    public = {name for name in vars(celery_atomicity) if not name.startswith("_")}
    submodules = {
        name for name in public if getattr(celery_atomicity, name).__class__.__name__ == "module"
    }

    assert public - submodules == set(celery_atomicity.__all__)

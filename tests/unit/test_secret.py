"""Every test is searched for a password that was told; here, that one would be found."""

import logging

import pytest
from support import secret
from support.secret import PASSWORD, look_at, look_at_record

from celery_atomicity import Unavailable
from celery_atomicity.errors import InvalidSetting


@pytest.mark.parametrize(
    "text",
    [
        f"redis://:{PASSWORD}@localhost",
        "redis://:pa55word%2Fof%40the%3Atests@localhost",
        f"first line\n{PASSWORD}\nlast line",
    ],
)
def test_it_is_found_as_it_is_and_as_it_stands_in_a_url(text):
    look_at("here", text)

    [told] = secret.found()
    assert told.startswith("here: ")
    assert PASSWORD not in told


def test_it_is_found_in_a_record_wherever_it_stands_there():
    try:
        raise ValueError(PASSWORD)  # noqa: TRY301 - it is what is looked for
    except ValueError as error:
        traceback = (type(error), error, error.__traceback__)
    plain = {"name": "ours", "msg": "something", "levelno": logging.INFO}

    for facts in ({"msg": PASSWORD}, {"address": PASSWORD}, {"exc_info": traceback}):
        look_at_record(logging.makeLogRecord(plain | facts))

    assert len(secret.found()) == 3


@pytest.mark.parametrize("kind", [Unavailable, InvalidSetting])
def test_it_is_found_in_an_error_that_somebody_catches(kind):
    kind(f"The arbiter at {PASSWORD} did not answer")

    assert len(secret.found()) == 1


def test_what_does_not_tell_it_is_not_found():
    look_at("here", "redis://:**@localhost")

    assert secret.found() == []

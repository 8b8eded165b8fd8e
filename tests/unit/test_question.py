"""One question and its answers, given by whichever thread reads them."""

from contextlib import suppress

import pytest
from support.strike import Strike, Struck

from celery_atomicity.connection.question import Question


@pytest.mark.parametrize("count", [1, 3])
def test_it_is_over_once_it_has_expired_whoever_was_torn_away_while_answering_it(count):
    # Its own thread would look for answers for ever, and keep a processor busy.
    late = TimeoutError("no answer")
    for number in range(100):
        question = Question(count, None, 0.0)
        with suppress(Struck), Strike(number) as strike:
            for index in range(count):
                question.answer(index, f"answer {index}", "run")

        question.expire(late)

        assert question.done, strike.where
        for index, reply in enumerate(question.replies):
            assert reply.value in (late, f"answer {index}"), strike.where
        if not strike.where:
            break
    assert number > 2

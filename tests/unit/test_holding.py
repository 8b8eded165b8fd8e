"""What one process knows of its lease."""

import pytest

from celery_atomicity import clock, keys
from celery_atomicity.primitives import quorum
from celery_atomicity.primitives.holding import Holding, Terms


@pytest.fixture
def hold():
    def make(**options):
        places = keys.lock_places("g", ("a",))
        terms = Terms("g", ("a",), places, "me", **{"ttl": 30.0, "grace": 0.0, **options})
        return Holding(terms, "id", "value", fence=1, sent=clock.monotonic(), runs=["run"])

    return make


def ttl_asked_for(holding):
    _, _, arguments = holding.renewal(0)
    return arguments[2] / 1000


def test_a_renewal_asks_for_the_ttl(hold):
    assert ttl_asked_for(hold()) == ttl_asked_for(hold(max_hold=60.0)) == 30.0


def test_the_last_renewal_lasts_until_max_hold_is_over(hold):
    # LOCK-12: on the server too, or somebody else may be let in while it is still believed in.
    holding = hold(max_hold=10.0)

    ttl = ttl_asked_for(holding)

    left = holding.ends - clock.monotonic()
    assert quorum.lasts(ttl) > left - 0.001
    assert ttl < 11.0

"""A deliberately broken build is convicted by what it does, and the same play without it is not."""

import pytest

from chaos.checker import judge
from chaos.directed import PLAYS, direct

# The two that take longest are part of the soak, and so are the same plays of what is not broken.
QUICK = {"renewal", "fence"}


MARKED = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.soak) for name in PLAYS]


# LOCK-06, PART-01, BEAT-03
@pytest.mark.parametrize("name", MARKED)
def test_a_broken_build_is_convicted(name):
    _, _, guarantees = PLAYS[name]

    violations = judge(direct(name, build=name))

    assert {violation.guarantee for violation in violations} == guarantees


@pytest.mark.soak
@pytest.mark.parametrize("name", PLAYS)
def test_what_is_not_broken_is_not_convicted(name):
    assert judge(direct(name)) == []

"""Six real processes under faults, for a short while here and for longer on demand."""

import random

import pytest
from soak.partition_soak import conflicts, run


def test_no_slot_has_two_owners_under_faults():  # PART-01
    seed = random.randrange(10**6)

    found = run(20, seed)

    assert found["conflicts"] == [], f"seed {seed}: {found}"
    assert found["spans"] > 6, f"seed {seed}: {found}"


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_no_slot_has_two_owners_for_minutes():  # PART-01, PART-02, PART-03
    """Also whole again after each fault; on a machine that has time for six processes."""
    seed = random.randrange(10**6)

    found = run(120, seed)

    assert found["conflicts"] == [], f"seed {seed}: {found}"
    assert found["incomplete"] == [], f"seed {seed}: {found}"


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        ((0, 10, 0, 2, "a"), (5, 6, 0, 2, "b"), True),
        # Slot 2 of 4 is among the even ones.
        ((0, 10, 0, 2, "a"), (5, 6, 2, 4, "b"), True),
        ((0, 10, 1, 2, "a"), (5, 6, 0, 3, "b"), True),
        ((0, 10, 0, 2, "a"), (5, 6, 1, 2, "b"), False),
        ((0, 10, 0, 2, "a"), (10, 16, 0, 2, "b"), False),
        ((0, 10, 0, 2, "a"), (5, 6, 0, 2, "a"), False),
    ],
)
def test_the_checker_knows_a_conflict(one, other, conflict):
    assert bool(conflicts([one, other])) == conflict

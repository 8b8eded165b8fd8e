"""Six real processes under faults, for a short while here and for longer on demand."""

import random

import pytest
from soak.partition_soak import run


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

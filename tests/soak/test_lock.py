"""The soak of locks, for some seconds; ``lock_soak.py`` runs for as long as one likes."""

import pytest

from soak.lock_soak import soak


@pytest.mark.parametrize(("servers", "seconds"), [(1, 6), (3, 8)])
def test_locks_under_everything_at_once(servers, seconds):
    # LOCK-01, LOCK-02, LOCK-05, LOCK-07, LOCK-11
    # A few faults in a row may leave hardly a moment for a lease, so it goes on until it had some.
    figures, complaints = soak(servers, 6, seconds, leases=10)

    assert not complaints, (figures, complaints)

"""What some tests need and not every machine has: skipped with a reason, summed up at the end."""

import os
from collections import Counter

import pytest

PREFIX = "needs "


class MissingError(Exception):
    """Something that a complete run may not lack."""


def missing(need, remedy, *, is_extra=False):
    """
    Skip the running test for want of *need*; with TEST_COMPLETE=1 fail it instead.

    What *is_extra* belongs to another world than Python's, and a complete run may do without it.
    """
    reason = f"{PREFIX}{need} ({remedy})"
    if os.environ.get("TEST_COMPLETE") == "1" and not is_extra:
        # Not pytest.fail: pytest-celery takes that for a wish to do without a broker.
        raise MissingError(reason)
    pytest.skip(reason)


def summary(skipped):
    """Return one line for each need that was missing, out of the *skipped* reports of a run."""
    reasons = (report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    counted = Counter(reason for reason in reasons if reason.startswith(PREFIX))
    return [
        f"missing: {reason.removeprefix(PREFIX)}: {count} test{'s' * (count > 1)} skipped"
        for reason, count in sorted(counted.items())
    ]

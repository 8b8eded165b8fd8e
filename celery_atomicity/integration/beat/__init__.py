"""Any number of beats: what is due, whose it is, and what has been sent."""

from typing import Any

from celery_atomicity.integration.beat.partitioned import partitioned
from celery_atomicity.integration.beat.scheduler import PartitionedScheduler, partitioned_scheduler

__all__ = ["PartitionedScheduler", "partitioned", "partitioned_scheduler"]


def __getattr__(name: str) -> Any:
    """``DatabaseScheduler``: django-celery-beat's, which may not be installed."""
    if name != "DatabaseScheduler":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from django_celery_beat.schedulers import (  # type: ignore[import-untyped] # noqa: PLC0415
        DatabaseScheduler,
    )

    return partitioned_scheduler(DatabaseScheduler)

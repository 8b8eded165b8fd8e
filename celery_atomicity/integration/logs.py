"""The fence as a fact of the task: in whatever it logs while it holds a key."""

from __future__ import annotations

import logging

from celery_atomicity.primitives.lease import held


class LeaseFilter(logging.Filter):
    """
    Gives each log record the attributes ``fence`` and ``lease``; lets every record through.

        @after_setup_task_logger.connect
        def show_fence(logger, **_):
            for handler in logger.handlers:
                handler.addFilter(LeaseFilter())

    They are the fence and the keys of the innermost lease that is held where the record is made,
    and empty texts elsewhere, so that a format such as ``"%(message)s %(lease)s %(fence)s"`` works
    for all records.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the two attributes, where nobody else has."""
        leases = held.get()
        if not hasattr(record, "fence"):
            record.fence = leases[-1].fence if leases else ""
        if not hasattr(record, "lease"):
            record.lease = ", ".join(leases[-1].keys) if leases else ""
        return True

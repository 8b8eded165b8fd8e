"""``celery atomicity``: how the fleet stands, on the command line."""

from celery_atomicity.integration.command import (  # noqa: F401 - each adds itself to the group
    doctor,
    locks,
    meter,
    slots,
)
from celery_atomicity.integration.command.group import atomicity

__all__ = ["atomicity"]

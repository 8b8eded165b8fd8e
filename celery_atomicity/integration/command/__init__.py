"""``celery atomicity``: how the fleet stands, on the command line."""

from celery_atomicity.integration.command import (  # noqa: F401 - each adds itself to the group
    doctor,
    locks,
    meter,
    slots,
)
from celery_atomicity.integration.command.group import atomicity
from celery_atomicity.integration.command.watch import command  # noqa: F401 - the same

__all__ = ["atomicity"]

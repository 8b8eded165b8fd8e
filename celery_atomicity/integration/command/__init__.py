"""``celery atomicity``: how the fleet stands, on the command line."""

from celery_atomicity.integration.command import meter  # noqa: F401 - adds itself to the group
from celery_atomicity.integration.command.group import atomicity

__all__ = ["atomicity"]

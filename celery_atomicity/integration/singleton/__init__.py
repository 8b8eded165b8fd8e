"""One run at a time of all that share a key."""

from celery_atomicity.integration.singleton.decorator import singleton_by

__all__ = ["singleton_by"]

"""One limit for the whole fleet."""

from celery_atomicity.integration.rate_limit.decorator import rate_limited
from celery_atomicity.integration.rate_limit.hold_back import hold_back

__all__ = ["hold_back", "rate_limited"]

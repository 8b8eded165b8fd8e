"""Decisions that several Celery processes make together, arbitrated by Redis or Valkey."""

from celery_atomicity.atom import Atom
from celery_atomicity.errors import (
    AlreadyHeld,
    AtomicityError,
    LeaseLost,
    LockTimeout,
    NotConfigured,
    RateLimited,
    Unavailable,
)
from celery_atomicity.integration.app import Atomicity, current_atom, current_lease
from celery_atomicity.integration.beat import partitioned
from celery_atomicity.integration.rate_limit import hold_back, rate_limited
from celery_atomicity.integration.signals import assigned, lease_lost, rate_delayed, tick_skipped
from celery_atomicity.integration.singleton import singleton_by
from celery_atomicity.keys import slot_of
from celery_atomicity.primitives.lease import Lease
from celery_atomicity.primitives.membership import Assignment

__all__ = [
    # the plugin and what it gives to tasks
    "Atomicity",
    "current_atom",
    "current_lease",
    # decorators
    "partitioned",
    "rate_limited",
    "singleton_by",
    # what a rate-limited task may say
    "hold_back",
    # raw decisions
    "Atom",
    "Assignment",
    "Lease",
    "slot_of",
    # Celery's signals
    "assigned",
    "lease_lost",
    "rate_delayed",
    "tick_skipped",
    # errors
    "AlreadyHeld",
    "AtomicityError",
    "LeaseLost",
    "LockTimeout",
    "NotConfigured",
    "RateLimited",
    "Unavailable",
]

"""Decisions that several Celery processes make together, arbitrated by Redis or Valkey."""

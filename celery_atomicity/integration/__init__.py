"""What makes the decisions part of Celery; the only package that imports it."""

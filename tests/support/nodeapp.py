"""
The module ``app`` of every node; pytest-celery puts imports, name and settings in place.

The three lines it looks for must stay as they are, to the letter.
"""

import faulthandler
import signal

from celery import Celery

from celery_atomicity import Atomicity

# What a process that does not end is asked with, as its end of patience; children inherit it.
faulthandler.register(signal.SIGUSR2)

imports = None

app = Celery("celery_test_app")
config = None

if config:
    app.config_from_object(config)

Atomicity(app)

if __name__ == "__main__":
    app.start()

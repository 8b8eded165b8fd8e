"""``celery atomicity`` in this process: an app for each test, and what a command has printed."""

from contextlib import suppress

from celery import Celery
from celery.bin.base import CLIContext
from celery.exceptions import ImproperlyConfigured
from click.testing import CliRunner

from celery_atomicity import Atomicity, NotConfigured
from celery_atomicity.integration.command import atomicity


class Apps:
    """Makes apps named ``shop``; *close* ends their connections."""

    def __init__(self):
        self.made = []

    def __call__(self, broker="memory://", *, install=True, **conf):
        app = Celery("shop", broker=broker, set_as_current=False)
        app.conf.update(conf)
        self.made.append(app)
        if install:
            Atomicity(app)
        return app

    def close(self):
        for app in self.made:
            with suppress(NotConfigured, ImproperlyConfigured):
                Atomicity.of(app).clients.close()
            app.close()


def run(app, *arguments, answer=None, colours=False, no_color=False):
    """
    Run the command with these *arguments*; *answer* is typed where it asks.

    With *colours* it takes its output for a terminal; *no_color* is Celery's own option.
    """
    context = CLIContext(app=app, no_color=no_color, workdir=None)
    return CliRunner().invoke(atomicity, arguments, obj=context, input=answer, color=colours)

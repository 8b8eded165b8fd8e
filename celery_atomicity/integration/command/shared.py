"""What the commands have in common: their options, their exit codes, and how they fail."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from celery.bin.base import CeleryCommand, CeleryOption
from celery.exceptions import ImproperlyConfigured
from kombu.exceptions import OperationalError

from celery_atomicity.errors import NotConfigured, Unavailable
from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.command.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from celery_atomicity.connection import Clients

# What a command exits with, beside 0. Click itself exits with 2 where it is used wrongly, and with
# 1 where it is interrupted.
SILENT, NOT_CONFIGURED, NO = 1, 2, 3

OPTIONS = "Atomicity Options"

NO_ARBITER = (
    "No arbiter is configured: set atomicity_redis on the app, or ATOMICITY_REDIS in the "
    "environment, to the URL of a Redis or Valkey server."
)

group_option = click.option(
    "-g",
    "--group",
    cls=CeleryOption,
    default=None,
    metavar="NAME",
    help_group=OPTIONS,
    help="Look into this group instead of the app's own.",
)

json_option = click.option(
    "-j",
    "--json",
    "as_json",
    cls=CeleryOption,
    is_flag=True,
    help_group=OPTIONS,
    help="Print it as JSON: durations in seconds, debts in milliseconds.",
)

yes_option = click.option(
    "-y",
    "--yes",
    cls=CeleryOption,
    is_flag=True,
    help_group=OPTIONS,
    help="Do not ask first.",
)

timeout_option = click.option(
    "-t",
    "--timeout",
    cls=CeleryOption,
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help_group=OPTIONS,
    help="Seconds to wait for what workers answer.",
)


class _WithExamples(click.Command):
    """A command whose help ends in *examples*, one a line, as they are typed."""

    def __init__(self, *args: Any, examples: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        del ctx
        with formatter.section("Examples"):
            for example in self._examples:
                formatter.write(f"  {example}\n")


class Command(_WithExamples, CeleryCommand):
    """A command of ours."""


class Group(_WithExamples, click.Group):
    """All of them."""


@contextmanager
def failing_well(ctx: click.Context) -> Iterator[None]:
    """Say what is wrong with the arbiter, the broker or the settings, and exit as the help says."""
    # Whatever the connection has to say is in the errors that are shown below.
    logging.getLogger("celery_atomicity").addHandler(logging.NullHandler())
    try:
        yield
    except (NotConfigured, ImproperlyConfigured) as error:
        ctx.obj.error(str(error))
        ctx.exit(NOT_CONFIGURED)
    except Unavailable as error:
        ctx.obj.error(str(error))
        ctx.exit(SILENT)
    except (OperationalError, OSError) as error:
        ctx.obj.error(f"The broker does not answer: {error or type(error).__name__}")
        ctx.exit(SILENT)


def arbiter(ctx: click.Context, group: str | None) -> tuple[Clients, str]:
    """The connections to the arbiter of the app, and the group that is meant."""
    installed = Atomicity.of(ctx.obj.app)
    return installed.clients, installed.atom(group).group


def show(lines: Iterable[str]) -> None:
    """Print *lines*; what another client has written into a key does nothing to the terminal."""
    for line in lines:
        click.echo(printable(line))


def show_json(told: Any) -> None:
    """Print *told* for a program."""
    click.echo(json.dumps(told, indent=2))

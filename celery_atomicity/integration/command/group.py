"""``celery -A proj atomicity ...``: commands of Celery's own command line."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from celery.bin.base import CeleryCommand, CeleryOption, handle_preload_options
from celery.exceptions import ImproperlyConfigured

from celery_atomicity import clock
from celery_atomicity.errors import NotConfigured
from celery_atomicity.integration.command.status import status_of
from celery_atomicity.integration.command.text import lines_of

if TYPE_CHECKING:
    from celery_atomicity.integration.command.status import Status

# What a command exits with, beside 0.
SILENT, NOT_CONFIGURED = 1, 2


@click.group()
@click.pass_context
@handle_preload_options
def atomicity(_ctx: click.Context, **_options: Any) -> None:
    """Decisions that the fleet makes together: who owns, holds and owes what."""


@atomicity.command(
    cls=CeleryCommand,
    epilog="Example: celery -A shop atomicity status --json | jq '.groups[0].arbiter.locks'",
)
@click.option(
    "-t",
    "--timeout",
    cls=CeleryOption,
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help_group="Atomicity Options",
    help="Seconds to wait for what workers answer.",
)
@click.option(
    "-j",
    "--json",
    "as_json",
    cls=CeleryOption,
    is_flag=True,
    help_group="Atomicity Options",
    help="Print it as JSON, with all there is; durations in seconds, debts in milliseconds.",
)
@click.pass_context
def status(ctx: click.Context, timeout: float, *, as_json: bool) -> None:
    """
    Show who owns what, who holds what, and who owes what.

    Workers are asked by remote control; locks, limits, debts and what beats have sent are read on
    the first address of the arbiter. Nothing is changed.

    Exits with 0; with 1 if the arbiter or the broker does not answer (what did answer is shown);
    with 2 if none is configured.
    """
    # Whatever the connection has to say is in the errors that are shown below.
    logging.getLogger("celery_atomicity").addHandler(logging.NullHandler())
    try:
        found = status_of(ctx.obj.app, timeout)
    except (NotConfigured, ImproperlyConfigured) as error:
        ctx.obj.error(str(error))
        ctx.exit(NOT_CONFIGURED)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        for line in lines_of(found, clock.wall()):
            click.echo(line)
    ctx.exit(_complain(ctx, found))


def _complain(ctx: click.Context, found: Status) -> int:
    if found.workers_error:
        ctx.obj.error(f"The broker does not answer, so no worker was asked: {found.workers_error}")
    if found.arbiter_error:
        ctx.obj.error(found.arbiter_error)
    return SILENT if found.workers_error or found.arbiter_error else 0

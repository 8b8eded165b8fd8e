"""``celery -A proj atomicity meter KEY``: what a name owes, and when its limits have room."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from typing import Any

import click
from celery.bin.base import CeleryCommand, CeleryOption
from celery.exceptions import ImproperlyConfigured

from celery_atomicity import overview
from celery_atomicity.errors import NotConfigured, Unavailable
from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.command.group import NOT_CONFIGURED, SILENT, atomicity
from celery_atomicity.integration.command.text import account_lines


@atomicity.command(
    cls=CeleryCommand,
    epilog="Example: celery -A shop atomicity meter acme",
)
@click.argument("key")
@click.option(
    "-g",
    "--group",
    cls=CeleryOption,
    default=None,
    help_group="Atomicity Options",
    help="Look into this group instead of the app's own.",
)
@click.option(
    "-j",
    "--json",
    "as_json",
    cls=CeleryOption,
    is_flag=True,
    help_group="Atomicity Options",
    help="Print it as JSON: durations in seconds, debts in milliseconds.",
)
@click.pass_context
def meter(ctx: click.Context, key: str, group: str | None, *, as_json: bool) -> None:
    """
    Show what KEY owes, and how its limits stand.

    That is the debt of the meter of that key, and every limit used lately whose name is KEY,
    whose scope is KEY (by default a task's name), or whose key is KEY in whatever scope. All is
    read on the first address of the arbiter, and nothing is changed.

    Exits with 0; with 1 if the arbiter does not answer; with 2 if none is configured.
    """
    # Whatever the connection has to say is in the error that is shown below.
    logging.getLogger("celery_atomicity").addHandler(logging.NullHandler())
    try:
        account = _account(ctx.obj.app, group, key)
    except (NotConfigured, ImproperlyConfigured) as error:
        ctx.obj.error(str(error))
        ctx.exit(NOT_CONFIGURED)
    except Unavailable as error:
        ctx.obj.error(str(error))
        ctx.exit(SILENT)
    if as_json:
        click.echo(json.dumps(asdict(account), indent=2))
    else:
        for line in account_lines(account):
            click.echo(line)


def _account(app: Any, group: str | None, key: str) -> overview.Account:
    atomicity = Atomicity.of(app)
    return overview.look_up(atomicity.clients, group or atomicity.settings.group, key)

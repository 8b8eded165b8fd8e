"""The command."""

from __future__ import annotations

import sys

import click
from celery.bin.base import CeleryOption

from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.command import shared
from celery_atomicity.integration.command.group import atomicity
from celery_atomicity.integration.command.watch.loop import watch_app


@atomicity.command(
    cls=shared.Command,
    short_help="The status, live.",
    examples=("celery -A shop atomicity watch", "celery -A shop atomicity watch --every 10"),
)
@click.option(
    "-n",
    "--every",
    cls=CeleryOption,
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help_group=shared.OPTIONS,
    help="How often everybody is asked.",
)
@shared.timeout_option
@click.option(
    "--plain",
    cls=CeleryOption,
    is_flag=True,
    help_group=shared.OPTIONS,
    help="Draw without rich, even where that is installed.",
)
@click.pass_context
def watch(ctx: click.Context, every: float, timeout: float, *, plain: bool) -> None:
    """
    Show the status on the whole screen, and keep it up to date.

    \b
    Keys:
      q         quit
      s         sort by the next: name, time (held, behind, owed, due), waiting
      n, t, w   sort by name, by time, by how many wait
      up, down  scroll, as do page up and page down
      p         pause, and go on

    Exits with 0 when you quit; with 2 if it is not on a terminal, or nothing is configured.
    What does not answer is shown, and asked again.
    """  # noqa: D301 - an escaped backspace is how click is told not to wrap
    with shared.failing_well(ctx):
        configured = Atomicity.of(ctx.obj.app).settings.configured
    if not configured:
        ctx.obj.error(shared.NO_ARBITER)
        ctx.exit(shared.NOT_CONFIGURED)
    if not sys.stdout.isatty():
        ctx.obj.error("watch needs a terminal; use status, or status --json for a program.")
        ctx.exit(shared.NOT_CONFIGURED)
    watch_app(
        ctx.obj.app,
        interval=every,
        timeout=timeout,
        colours=not ctx.obj.no_color,
        rich=not plain,
    )

"""``celery -A proj atomicity ...``: commands of Celery's own command line."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from celery.bin.base import handle_preload_options

from celery_atomicity import clock
from celery_atomicity.integration.command import shared
from celery_atomicity.integration.command.status import status_of
from celery_atomicity.integration.command.text import lines_of

if TYPE_CHECKING:
    from celery_atomicity.integration.command.status import Status


@click.group(
    cls=shared.Group,
    examples=(
        "celery -A shop atomicity status",
        "celery -A shop atomicity doctor",
        "celery -A shop atomicity locks --help",
    ),
)
@click.pass_context
@handle_preload_options
def atomicity(_ctx: click.Context, **_options: Any) -> None:
    """
    Decisions that the fleet makes together: who owns, holds and owes what.

    \b
    Every command exits with
      0  if all is well;
      1  if the arbiter or the broker does not answer;
      2  if it was called wrongly, or nothing is configured;
      3  if the answer is no: not held, not all owned, not confirmed, not healthy.

    Colours are for terminals; --no-color or NO_COLOR turns them off there, too.
    """  # noqa: D301 - an escaped backspace is how click is told not to wrap


@atomicity.command(
    cls=shared.Command,
    short_help="Who owns, holds and owes what.",
    examples=(
        "celery -A shop atomicity status",
        "celery -A shop atomicity status --json | jq '.groups[0].arbiter.locks'",
    ),
)
@shared.timeout_option
@shared.json_option
@click.pass_context
def status(ctx: click.Context, timeout: float, *, as_json: bool) -> None:
    """
    Show who owns what, who holds what, and who owes what.

    Workers are asked by remote control; limits, debts and what beats have sent are read on the
    first address of the arbiter, locks on all. Nothing is changed.

    Exits with 0; with 1 if the arbiter or the broker does not answer (what did answer is shown);
    with 2 if none is configured.
    """
    with shared.failing_well(ctx):
        found = status_of(ctx.obj.app, timeout)
    if as_json:
        shared.show_json(asdict(found))
    else:
        shared.show(lines_of(found, clock.wall()))
    ctx.exit(_complain(ctx, found))


def _complain(ctx: click.Context, found: Status) -> int:
    if found.workers_error:
        ctx.obj.error(f"The broker does not answer, so no worker was asked: {found.workers_error}")
    if found.arbiter_error:
        ctx.obj.error(found.arbiter_error)
    return shared.SILENT if found.workers_error or found.arbiter_error else 0

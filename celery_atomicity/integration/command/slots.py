"""``celery -A proj atomicity slots TOTAL``: which worker owns which slots."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.command import shared
from celery_atomicity.integration.command.group import atomicity
from celery_atomicity.integration.command.shares import share_lines, shares_of
from celery_atomicity.integration.command.status import ask_workers

if TYPE_CHECKING:
    from celery_atomicity.integration.command.shares import Shares


@atomicity.command(
    cls=shared.Command,
    short_help="Which worker owns which of TOTAL slots.",
    examples=(
        "celery -A shop atomicity slots 128",
        "celery -A shop atomicity slots 128 --json | jq .unowned",
    ),
)
@click.argument("total", type=click.IntRange(min=1, max=1_000_000))
@shared.group_option
@shared.timeout_option
@shared.json_option
@click.pass_context
def slots(
    ctx: click.Context, total: int, group: str | None, timeout: float, *, as_json: bool
) -> None:
    """
    Show which worker owns which of TOTAL slots, as current_atom.slots(TOTAL) answers there.

    Workers are asked by remote control, and what they say is true at the moment when they say it:
    while somebody comes or goes, a slot may be shown as nobody's, or twice. Nothing is changed.

    Exits with 0 if every slot has one owner; with 3 if not; with 1 if the broker does not answer;
    with 2 if Atomicity is not configured.
    """
    with shared.failing_well(ctx):
        found = _shares(ctx, total, group, timeout)
    if as_json:
        shared.show_json(asdict(found))
    else:
        shared.show(share_lines(found))
    ctx.exit(0 if found.settled else shared.NO)


def _shares(ctx: click.Context, total: int, group: str | None, timeout: float) -> Shares:
    installed = Atomicity.of(ctx.obj.app)
    name = installed.atom(group).group
    asked = ask_workers(ctx.obj.app, timeout)
    if asked.error:
        raise ConnectionError(asked.error)
    return shares_of(name, asked.replicas.get(name, ()), total)

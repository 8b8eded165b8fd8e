"""``celery -A proj atomicity meter KEY``: what a name owes, when its limits have room."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from celery.bin.base import CeleryOption

from celery_atomicity import intervention, overview
from celery_atomicity.integration.command import shared
from celery_atomicity.integration.command.group import atomicity
from celery_atomicity.integration.command.text import account_lines, duration

if TYPE_CHECKING:
    from celery_atomicity.overview import Account


@atomicity.command(
    cls=shared.Command,
    short_help="What KEY owes; set or forgive it.",
    examples=(
        "celery -A shop atomicity meter acme",
        "celery -A shop atomicity meter shop.call_partner:acme --forgive",
        "celery -A shop atomicity meter shop.call_partner --set 60 --yes",
    ),
)
@click.argument("key")
@click.option(
    "--set",
    "seconds",
    cls=CeleryOption,
    type=click.FloatRange(min=0, max=1e9),
    metavar="SECONDS",
    help_group=shared.OPTIONS,
    help="Have it owe just that: the next start of a limit comes in so many seconds.",
)
@click.option(
    "--forgive",
    cls=CeleryOption,
    is_flag=True,
    help_group=shared.OPTIONS,
    help="Have it owe nothing: the same as --set 0.",
)
@shared.group_option
@shared.yes_option
@shared.json_option
@click.pass_context
def meter(
    ctx: click.Context,
    key: str,
    seconds: float | None,
    group: str | None,
    *,
    forgive: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """
    Show what KEY owes and how its limits stand, or change that.

    That is the debt of the meter of that key, and every limit used lately whose name is KEY,
    whose scope is KEY (by default a task's name), or whose key is KEY in whatever scope. All is
    read on the first address of the arbiter, which alone keeps it.

    With --set or --forgive all that is shown without them is changed, and it is asked first if that
    is more than one. A forgiven limit lets its whole burst start at once; tasks that were given a
    place in time keep it and come back no sooner.

    Exits with 0; with 3 if you said no; with 1 if the arbiter does not answer; with 2 if none is
    configured.
    """
    if forgive and seconds is not None:
        raise click.UsageError("--set and --forgive are two things; give one of them.")
    with shared.failing_well(ctx):
        clients, name = shared.arbiter(ctx, group)
        account = overview.look_up(clients, name, key)
        if forgive or seconds is not None:
            wanted = seconds or 0.0
            if not yes and not _agreed(account, wanted):
                ctx.exit(shared.NO)
            try:
                intervention.set_debts(clients, account, wanted)
            except ValueError as error:  # not a number, which no range of click's excludes
                raise click.BadParameter(str(error), param_hint="--set") from None
            if wanted and not account.limits:
                click.echo(
                    f"No limit of the name {key!r} was used lately; this is the debt of "
                    "current_atom.meter().",
                    err=True,
                )
            account = overview.look_up(clients, name, key)
    if as_json:
        shared.show_json(asdict(account))
    else:
        shared.show(account_lines(account))


def _agreed(account: Account, seconds: float) -> bool:
    """Whether *account* may be changed: what is more than one thing is shown and asked for."""
    if len(account.limits) + (account.debt > 0) <= 1:
        return True
    shared.show(account_lines(account))
    to = f"set to {duration(seconds)}" if seconds > 0 else "forgiven"
    return click.confirm(f"All of these are {to}. Go on?", err=True)

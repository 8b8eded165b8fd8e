"""``celery -A proj atomicity locks [KEY]`` and ``release KEY``: who holds what, and taking it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from celery_atomicity import clock, custody, intervention
from celery_atomicity.errors import Unavailable
from celery_atomicity.integration.command import shared
from celery_atomicity.integration.command.group import atomicity
from celery_atomicity.integration.command.text import custody_lines, lock_lines

if TYPE_CHECKING:
    from celery_atomicity.connection import Clients
    from celery_atomicity.custody import Custody, Held
    from celery_atomicity.intervention import Freed


@atomicity.command(
    cls=shared.Command,
    short_help="What is held, or all about KEY.",
    examples=(
        "celery -A shop atomicity locks",
        "celery -A shop atomicity locks shop.sync:17",
    ),
)
@click.argument("key", required=False)
@shared.group_option
@shared.json_option
@click.pass_context
def locks(ctx: click.Context, key: str | None, group: str | None, *, as_json: bool) -> None:
    """
    Show what is held, or all that is known of KEY.

    That is its holder, since when, when it is free at the latest, the last fence that the group was
    given, and who stands in line. A task's key is "SCOPE:KEY", where the scope is the task's name
    unless it says otherwise. All addresses of the arbiter are asked, and nothing is changed.

    Exits with 0; with 3 if a KEY is given that nobody holds; with 1 if no address answers, or one
    does not (what did answer is shown); with 2 if none is configured.
    """
    with shared.failing_well(ctx):
        clients, name = shared.arbiter(ctx, group)
        if key is None:
            ctx.exit(_list(ctx, clients, name, as_json=as_json))
        told = custody.look_up(clients, name, key)
    if as_json:
        shared.show_json(_as_data(told))
    else:
        shared.show(custody_lines(told, clock.wall()))
    _complain(ctx, told.silent)
    ctx.exit(_verdict(told))


@atomicity.command(
    cls=shared.Command,
    short_help="Take KEY from its holder.",
    examples=(
        "celery -A shop atomicity release shop.sync:17",
        "celery -A shop atomicity release shop.sync:17 --yes",
    ),
)
@click.argument("key")
@shared.group_option
@shared.yes_option
@click.pass_context
def release(ctx: click.Context, key: str, group: str | None, *, yes: bool) -> None:
    """
    Take KEY from whoever holds it, on every address of the arbiter.

    It shows the holder and asks first. The next in line is let in at once; the holder is told that
    it lost the key, but only at its next renewal, so that the two run beside each other until then.
    What compares fences refuses what the old one still writes. Whoever got the key after it was
    shown keeps it.

    Exits with 0 if the key is taken from a majority of the addresses; with 3 if nobody holds it or
    you said no; with 1 if too few addresses answer; with 2 if none is configured.
    """
    with shared.failing_well(ctx):
        clients, name = shared.arbiter(ctx, group)
        held = custody.look_up(clients, name, key)
        shared.show(custody_lines(held, clock.wall()))
        _complain(ctx, held.silent)
        if not held.held:
            ctx.exit(_verdict(held))
        if not yes and not click.confirm(f"Take {key!r} from its holder?", err=True):
            ctx.exit(shared.NO)
        freed = intervention.free(clients, held)
    ctx.exit(_tell(ctx, held, freed))


def _list(ctx: click.Context, clients: Clients, group: str, *, as_json: bool) -> int:
    prefix = f"atom:{group}:lock:"
    found = custody.scan_each(clients, prefix)
    silent = [str(one) for one in found if isinstance(one, Unavailable)]
    if len(silent) == len(found):
        raise next(one for one in found if isinstance(one, Unavailable))
    names = [
        one if isinstance(one, Unavailable) else [name.removeprefix(prefix) for name in one]
        for one in found
    ]
    held: list[Held] = custody.locks(clients, group, names)
    if as_json:
        told = {"group": group, "locks": [asdict(one) for one in held], "silent": silent}
        shared.show_json(told)
    else:
        shared.show(lock_lines(held, clock.wall()))
    _complain(ctx, silent)
    return shared.SILENT if silent else 0


def _as_data(told: Custody) -> dict[str, Any]:
    data = asdict(told)
    # A lease's id is its holder's secret.
    del data["values"]
    return data


def _complain(ctx: click.Context, silent: tuple[str, ...] | list[str]) -> None:
    for error in silent:
        ctx.obj.error(error)


def _verdict(told: Custody) -> int:
    if told.silent:
        return shared.SILENT
    return 0 if told.held else shared.NO


def _tell(ctx: click.Context, held: Custody, freed: Freed) -> int:
    key = held.key
    if not freed.done:
        ctx.obj.error(
            f"{key!r} could not be taken from a majority of the {freed.of} addresses: "
            f"{freed.silent} did not answer, and {freed.left} still have it. Its holder may go on."
        )
        return shared.SILENT
    ours = any(one.holder for one in held.held)
    told = "who is told at its next renewal" if ours else "another client, which is not told"
    lines = [f"{key}: taken from its holder, {told}"]
    lines += [f"{key}: now held by {one.holder or 'another client'}" for one in freed.custody.held]
    shared.show(lines)
    return 0

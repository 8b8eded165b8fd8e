"""``celery -A proj atomicity doctor``: whether everything is fit, and what to do if not."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from celery_atomicity.checkup import BrokerFacts, Level, examine, judge
from celery_atomicity.errors import NotConfigured
from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.command import shared
from celery_atomicity.integration.command.doctor_text import finding_lines
from celery_atomicity.integration.command.group import atomicity
from celery_atomicity.integration.command.text import printable
from celery_atomicity.integration.tasks.requeue import visibility_timeout

if TYPE_CHECKING:
    from celery import Celery

    from celery_atomicity.checkup import Finding

_COLOURS = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.FAULT: "red"}


@atomicity.command(
    cls=shared.Command,
    short_help="Check addresses and settings, with remedies.",
    examples=(
        "celery -A shop atomicity doctor",
        "celery -A shop atomicity doctor --json | jq '.findings[].remedy'",
    ),
)
@shared.json_option
@click.pass_context
def doctor(ctx: click.Context, *, as_json: bool) -> None:
    """
    Check the arbiter's addresses and the settings, and say what to do about what is wrong.

    Every address is asked PING, TIME, INFO, CONFIG GET, ACL WHOAMI, and what decisions need; what
    the user may not ask is left out and said. Under names of their own the commands that decisions
    write with are tried, in one step that leaves nothing behind. No other key is changed.

    Exits with 0, also with warnings; with 3 if there is a fault; with 2 if none is configured.
    """
    with shared.failing_well(ctx):
        findings = _findings(ctx.obj.app)
    faults = sum(finding.level is Level.FAULT for finding in findings)
    warnings = sum(finding.level is Level.WARNING for finding in findings)
    if as_json:
        told = [asdict(finding) for finding in findings]
        shared.show_json({"faults": faults, "warnings": warnings, "findings": told})
    else:
        for line, level in finding_lines(findings):
            # Not Celery's own secho, which cannot do without colours.
            click.echo(ctx.obj.style(printable(line), fg=_COLOURS[level]) if level else line)
        click.echo(f"\n{_counted(faults, 'fault')}, {_counted(warnings, 'warning')}")
    ctx.exit(shared.NO if faults else 0)


def _findings(app: Celery) -> list[Finding]:
    settings = Atomicity.of(app).settings
    if not settings.configured:
        raise NotConfigured(shared.NO_ARBITER)
    return judge(examine(settings, _broker(app)))


def _broker(app: Celery) -> BrokerFacts:
    return BrokerFacts(
        visibility_timeout=visibility_timeout(app),
        time_limit=app.conf.task_time_limit,
        acks_late=bool(app.conf.task_acks_late),
    )


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"

"""
Decides each guarantee from what was written down, and from nothing else.

It imports nothing of the package, so that an error of the package cannot excuse itself.
"""

from chaos.checker import fleet, locks, rates, slots, ticks
from chaos.checker.evidence import Evidence, Violation

__all__ = ["Evidence", "Violation", "judge"]

CHECKS = (
    locks.one_holder,
    locks.fences_grow,
    locks.late_writes,
    locks.living_refused,
    locks.kept_while_calm,
    slots.one_owner,
    slots.settles,
    rates.within_limits,
    ticks.one_run,
    ticks.one_tick_an_instant,
    ticks.none_lost,
    ticks.not_late_for_ever,
    fleet.keys_run_out,
    fleet.nobody_gave_up,
)


def judge(evidence):
    """Every violation that *evidence* holds, by time."""
    found = [violation for check in CHECKS for violation in check(evidence)]
    return sorted(found, key=lambda violation: violation.at)

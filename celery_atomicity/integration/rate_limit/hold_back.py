"""Holding a rate back for a while: a partner has answered that it has had enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.worker.control import control_command

from celery_atomicity.errors import AtomicityError
from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.rate_limit.admission import admitted

if TYPE_CHECKING:
    from celery_atomicity.atom import Atom


def hold_back(seconds: float, *, scope: str | None = None) -> None:
    """
    Let nothing more start under the limits of the running task for so many *seconds*, fleet-wide.

        response = partner.call(payload)
        if response.status_code == 429:
            hold_back(float(response.headers["Retry-After"]))

    Afterwards the fleet goes on at the pace of the rate, without a burst. Holding back twice at
    once is holding back for the longer time. Blocks for one round trip.

    Args:
        seconds: How long; positive.
        scope: Hold back only the limits of this scope; None: all of the running task.

    Raises:
        AtomicityError: No rate-limited task runs here, or it has no limit of that scope.
        ValueError: *seconds* is not positive and finite.
        Unavailable: The arbiter did not answer.
    """
    gates = admitted.get()
    chosen = [gate for gate in gates if scope in (None, gate.scope)]
    if not chosen:
        known = ", ".join(sorted({repr(gate.scope) for gate in gates}))
        raise AtomicityError(
            f"hold_back(scope={scope!r}) fits none of the running task's limits: {known}"
            if gates
            else "hold_back() is for a task under @rate_limited while it runs; none runs here"
        )
    atom = chosen[0].atom
    if atom is not None:
        atom.rates.hold_back([limit for gate in chosen for limit in gate.limits], seconds)


@control_command(
    args=[("key", str), ("seconds", float)],
    signature="[scope:key] [seconds]",
)
def atomicity_hold_back(
    state: Any, key: str, seconds: float, group: str | None = None, **_options: Any
) -> dict[str, str]:
    """
    Let nothing start under the limit of *key* for so many *seconds*, fleet-wide.

    All workers that are told do the same, which is no more than one of them doing it.
    """
    atom: Atom = Atomicity.of(state.app).atom(group)
    try:
        atom.rates.hold_back_key(key, float(seconds))
    except (ValueError, AtomicityError) as error:
        return {"error": str(error)}
    return {"ok": f"{key} of the group {atom.group} is held back for {seconds} s"}

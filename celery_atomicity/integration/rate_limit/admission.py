"""An execution in front of its limits: let through, given back, refused, or made to wait."""

from __future__ import annotations

import random
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from celery_atomicity import clock, events
from celery_atomicity.errors import RateLimited, Unavailable
from celery_atomicity.integration.tasks.requeue import give_back, may_be_given_back, seconds_left
from celery_atomicity.integration.tasks.skipped import skip
from celery_atomicity.integration.tasks.stopping import sleep_unless_stopping
from celery_atomicity.primitives.rate import SHORT, SLEEP, Kind, Question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from celery_atomicity.atom import Atom
    from celery_atomicity.integration.rate_limit.decorator import Rules
    from celery_atomicity.integration.tasks.execution import Execution
    from celery_atomicity.primitives.limit import Limit

#: The header that tells what a task was promised, and how often it asked in vain.
TICKET = "atomicity_rate"

#: Seconds before one whom the arbiter did not answer asks again: at first and at most; and by
#: how much each pause differs at random.
FIRST_PAUSE, LONGEST_PAUSE, JITTER = 1.0, 30.0, 0.25

#: What is told of an answer.
_DECISIONS = {
    Kind.START: "start",
    Kind.PLACE: "promise",
    Kind.AGAIN: "again",
    Kind.REFUSED: "refusal",
}

#: Seconds that a task is given back for at the least.
_SHORTEST = 0.001


@dataclass
class Gate:
    """One ``rate_limited`` of one execution: its rules, and what they come to for its arguments."""

    rules: Rules
    scope: str
    atom: Atom | None
    limits: tuple[Limit, ...] = ()


#: The gates of the outermost rate-limited execution whose function does not run yet.
waiting: ContextVar[list[Gate] | None] = ContextVar("celery_atomicity_gates", default=None)

#: Those that the running function was let through.
admitted: ContextVar[tuple[Gate, ...]] = ContextVar("celery_atomicityadmitted", default=())


class Skipped(Exception):
    """Ends a direct call that is skipped, with its result."""

    def __init__(self, result: Any) -> None:
        super().__init__(result)
        self.result = result


class Admission:
    """One execution in front of its gates."""

    def __init__(self, execution: Execution, gates: list[Gate]) -> None:
        self._execution = execution
        self._gates = tuple(gates)
        # One per limit: a gate may have several keys. No key is asked twice.
        asked = {limit.key: (gate, limit) for gate in gates for limit in gate.limits}
        self._asked = list(asked.values())
        self._queued = execution.where == "worker" and may_be_given_back(execution.task)
        ticket = self._ticket()
        self._promises: Mapping[str, str] = ticket.get("promises") or {}
        self._unanswered = int(ticket.get("unanswered") or 0)

    def pass_through(self) -> None:
        """
        Return when the function may run; raises what ends the execution otherwise.

        Blocks for a round trip and a short sleep, and where the task cannot be given back or shall
        not be, for the whole wait.
        """
        atom = self._gates[0].atom
        while atom is not None and self._asked:
            questions = self._questions()
            try:
                answer = atom.rates.admit(questions, self._promises)
            except Unavailable as error:
                if self._runs_unasked(error):
                    break
                self._unanswered += 1
                self._say(self._asked[0][0], "unanswered")
                self._over_the_limit(self._asked[0][0], self._pause(), error)
                continue
            _outage.over()
            if answer.kind is Kind.START:
                for gate in self._gates:
                    self._say(gate, _DECISIONS[answer.kind])
                break
            self._unanswered = 0
            self._promises = answer.promises(questions, self._promises)
            gate, limit = self._asked[answer.which]
            wait = answer.wait / 1000.0
            self._say(gate, _DECISIONS[answer.kind])
            if answer.kind is Kind.REFUSED:
                self._refused(gate, limit, wait, atom)
                wait = self._later(questions[answer.which].longest / 1000.0)
            self._over_the_limit(gate, wait)
        self._forget_ticket()
        # The function may run rate-limited ones in its turn.
        waiting.set(None)
        admitted.set(self._gates)

    def _questions(self) -> list[Question]:
        left = None
        if self._queued:
            left = seconds_left(self._execution.task)
        questions = []
        for gate, limit in self._asked:
            rules = gate.rules
            if rules.on_limit in ("raise", "skip"):
                questions.append(Question(limit, 0.0, -1.0))
                continue
            in_place = rules.on_limit == "wait" or not self._queued
            longest = rules.max_delay if left is None else min(rules.max_delay, max(0.0, left))
            patience = SLEEP if self._promises or in_place else SHORT
            questions.append(Question(limit, patience, longest * 1000.0))
        return questions

    def _over_the_limit(self, gate: Gate, wait: float, error: Unavailable | None = None) -> None:
        """Come back after *wait* seconds: through the queue, or right here."""
        if error is not None and gate.rules.on_limit == "raise":
            self._raise(gate, gate.limits[0], wait, gate.atom, error)
        execution = self._execution
        events.rate_delayed.tell(
            group="" if gate.atom is None else gate.atom.group,
            task=execution.name,
            task_id=execution.task_id,
            scope=gate.scope,
            keys=tuple(limit.key for limit in gate.limits),
            seconds=wait,
        )
        if not self._queued:
            clock.wait(threading.Event(), wait)
            return
        if gate.rules.on_limit == "wait" and (wait := sleep_unless_stopping(wait)) <= 0:
            return
        ticket = {"promises": dict(self._promises), "unanswered": self._unanswered}
        give_back(execution.task, max(wait, _SHORTEST), headers={TICKET: ticket})

    def _say(self, gate: Gate, decision: str) -> None:
        if events.rate_decided.listeners and gate.limits and gate.atom is not None:
            events.rate_decided.tell(
                group=gate.atom.group,
                task=self._execution.name,
                scope=gate.scope,
                decision=decision,
            )

    def _refused(self, gate: Gate, limit: Limit, wait: float, atom: Atom) -> None:
        """End the execution, where the gate has it ended."""
        if gate.rules.on_limit == "raise":
            self._raise(gate, limit, wait, atom)
        if gate.rules.on_limit == "skip":
            result = skip(
                self._execution,
                f"{limit.key} is over its limit; there is room in {wait:.3f} s",
                key=limit.key,
                group=atom.group,
                retry_after=wait,
            )
            raise Skipped(result)

    def _raise(
        self,
        gate: Gate,
        limit: Limit,
        wait: float,
        atom: Atom | None,
        error: Unavailable | None = None,
    ) -> NoReturn:
        group = "" if atom is None else atom.group
        reason = (
            f"is over its limit of {gate.rules.rate:g} a second"
            if error is None
            else "counts as over its limit, since the arbiter did not answer"
        )
        raise RateLimited(
            f"{limit.key} of the group {group} {reason}; try again in {wait:.3f} s",
            keys=[limit.key],
            group=group,
            retry_after=wait,
        ) from error

    def _later(self, longest: float) -> float:
        """
        Seconds until one for whom there is no place within *longest* asks again.

        Spread out, so that those who were refused together do not ask together. One that is about
        to expire comes when it has, for Celery to say so.
        """
        left = seconds_left(self._execution.task) if self._queued else None
        if left is not None and left < 1.0:
            return left + 0.1
        return max(1.0, longest * random.uniform(0.5, 1.0))  # noqa: S311

    def _pause(self) -> float:
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._unanswered - 1, 10))
        return pause * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311

    def _runs_unasked(self, error: Unavailable) -> bool:
        if any(gate.rules.when_unavailable != "run" for gate, _ in self._asked):
            return False
        _outage.note(error)
        return True

    def _ticket(self) -> dict[str, Any]:
        if not self._queued:
            return {}
        ticket = (self._execution.request.headers or {}).get(TICKET)
        return ticket if isinstance(ticket, dict) else {}

    def _forget_ticket(self) -> None:
        """A retry of this task is a new arrival."""
        request = self._execution.request
        if request is not None and request.headers:
            request.headers.pop(TICKET, None)


class _Outage:
    """Says once per outage that limits are not kept."""

    def __init__(self) -> None:
        self._noted = False

    def note(self, error: Unavailable) -> None:
        if not self._noted:
            self._noted = True
            events.limits_not_kept.tell(reason=str(error))

    def over(self) -> None:
        self._noted = False


_outage = _Outage()

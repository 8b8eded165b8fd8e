"""``rate_limited``: one limit for the whole fleet."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from celery_atomicity.errors import NotConfigured
from celery_atomicity.integration.app import Atomicity
from celery_atomicity.integration.arguments.template import compile_key
from celery_atomicity.integration.rate_limit.admission import (
    Admission,
    Gate,
    Skipped,
    admitted,
    waiting,
)
from celery_atomicity.integration.tasks.bypass import is_bypassed
from celery_atomicity.integration.tasks.decoration import decorate, marks
from celery_atomicity.integration.tasks.options import choice, seconds, text
from celery_atomicity.primitives.limit import Limit, per_second

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_atomicity.atom import Atom
    from celery_atomicity.integration.arguments.template import Key, KeySpec
    from celery_atomicity.integration.tasks.execution import Execution
    from celery_atomicity.integration.tasks.options import Seconds

T = TypeVar("T")

OnLimit = Literal["delay", "wait", "raise", "skip"]
WhenUnavailable = Literal["delay", "run"]


def rate_limited(
    rate: str | float,
    *,
    key: KeySpec | None = None,
    scope: str | None = None,
    burst: float = 1,
    cost: float | Callable[..., float] = 1,
    on_limit: OnLimit = "delay",
    max_delay: Seconds = 900,
    when_unavailable: WhenUnavailable = "delay",
) -> Callable[[T], T]:
    """
    Let at most *burst* + *rate* * t executions start in any window of t seconds, fleet-wide.

        @app.task
        @rate_limited("10/s", key="{tenant}", burst=20)
        def call_partner(tenant, payload): ...

    A task over the limit is given its own place in time and comes back then; nothing is asked in
    between, and it is no retry: ``request.retries``, ``max_retries`` and everything else about
    the message stay as they were. Several of these on one task are charged all or none. Called
    directly or eagerly, the task waits in the calling process where it would be given back; with
    no arbiter configured it then just runs, so that unit tests need none.

    Args:
        rate: ``"10/s"``, ``"100/m"``, ``"5/h"``, ``"1/d"``, or a number a second.
        key: What has a limit of its own, as for ``singleton_by``; None: all calls share one.
        scope: The namespace of the key; the task's name by default. Tasks of one scope share
            their limits.
        burst: How many may start at once.
        cost: How much of the rate one execution takes: a number, or a callable given the
            arguments. What it answers may be 0: nothing to limit.
        on_limit: ``"delay"`` gives the pool slot back and comes back at its place in time,
            ``"wait"`` sleeps in the pool slot, ``"raise"`` fails with RateLimited, ``"skip"`` ends
            the task as SKIPPED. The last two charge nothing.
        max_delay: Seconds that a place may lie ahead. A task for which there is none so near is
            asked again later, uncharged; so is one that would expire before it.
        when_unavailable: ``"delay"`` takes a task that cannot ask for one that is over the limit,
            and asks again later; ``"run"`` lets it through.

    Raises:
        TypeError: An argument is not of a kind that can work.
        ValueError: It cannot work, or the key names what is not a parameter of the task.
    """
    per = per_second(rate)
    if not callable(cost):
        Limit("", per, _number("burst", burst), _number("cost", cost))
    else:
        Limit("", per, _number("burst", burst), float(burst))
    longest = seconds("max_delay", max_delay)
    rules = Rules(
        rate=per,
        key=key,
        scope=text("scope", scope),
        burst=float(burst),
        cost=cost if callable(cost) else float(cost),
        on_limit=choice("on_limit", on_limit, get_args(OnLimit)),
        max_delay=900.0 if longest is None else longest,
        when_unavailable=choice("when_unavailable", when_unavailable, get_args(WhenUnavailable)),
    )
    return decorate(rules.compile, rules)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is a number, not {value!r}")
    return float(value)


@dataclass(frozen=True)
class Rules:
    """What one ``rate_limited`` says; the attributes are its arguments."""

    rate: float
    key: KeySpec | None
    scope: str | None
    burst: float
    cost: float | Callable[..., float]
    on_limit: str
    max_delay: float
    when_unavailable: str

    def compile(self, function: Callable[..., Any]) -> Callable[[Execution], Any]:
        """What runs each execution of *function*."""
        return functools.partial(
            self._run,
            key=None if self.key is None else compile_key(self.key, function),
            cost=_compile_cost(self.cost, function) if callable(self.cost) else self.cost,
        )

    def _run(
        self,
        execution: Execution,
        key: Callable[[Any, Any], Key] | None,
        cost: float | Callable[[Any, Any], float],
    ) -> Any:
        # First of all: a call that does not fit the signature fails and is charged nothing.
        args, kwargs = execution.bound_args, execution.kwargs
        keys: Key | None = None if key is None else key(args, kwargs)
        amount = cost(args, kwargs) if callable(cost) else cost
        if is_bypassed():
            return execution.call()
        inside = marks(execution.function)
        gate = Gate(self, self.scope or execution.name, _atom(execution))
        if amount:
            gate.limits = self._limits(gate.scope, keys, amount, inside)
        gates = waiting.get()
        if gates is not None:  # an outer one asks for all of us
            gates.append(gate)
            return execution.call()
        gates = [gate]
        before, token = admitted.get(), waiting.set(gates)
        # Not before the last of our decorators lets the function run: a start that had to wait for
        # its lock after it was charged would fall into somebody else's time.
        execution.before_function(len(inside), lambda: Admission(execution, gates).pass_through())
        try:
            return execution.call()
        except Skipped as skipped:
            return skipped.result
        finally:
            waiting.reset(token)
            admitted.set(before)

    def _limits(
        self, scope: str, keys: Key | None, amount: float, inside: list[object]
    ) -> tuple[Limit, ...]:
        # Two of one scope on one task are two limits, even if their keys are the same text.
        same = sum(isinstance(mark, Rules) and mark.scope == self.scope for mark in inside)
        scope = f"{scope}#{same + 1}" if same else scope
        if keys is None:
            names = [scope]
        else:
            names = [f"{scope}:{each}" for each in ([keys] if isinstance(keys, str) else keys)]
        return tuple(Limit(name, self.rate, self.burst, amount) for name in names)


def _compile_cost(
    cost: Callable[..., float], function: Callable[..., Any]
) -> Callable[[Any, Any], float]:
    @functools.wraps(cost)
    def written(*args: Any, **kwargs: Any) -> str:
        number = _number("cost", cost(*args, **kwargs))
        if number < 0:
            raise ValueError(f"a cost cannot be negative: {number!r}")
        return repr(number)

    compute = compile_key(written, function)

    def read(args: Any, kwargs: Any) -> float:
        answer = compute(args, kwargs)
        assert isinstance(answer, str)
        return float(answer)

    return read


def _atom(execution: Execution) -> Atom | None:
    """The atom to ask; None where the task just runs, since nothing is configured for a test."""
    try:
        atomicity = Atomicity.of(execution.app)
        if atomicity.settings.configured or execution.in_worker:
            return atomicity.atom()
    except NotConfigured:
        if execution.in_worker:
            raise
    return None

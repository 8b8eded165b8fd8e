"""The limits that a group keeps together: asking the server, and sleeping out short waits."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from celery_atomicity import clock
from celery_atomicity.connection import Script, makes_sense
from celery_atomicity.keys import rate_key
from celery_atomicity.primitives.limit import Limit
from celery_atomicity.primitives.rate import REMEMBERED, SLEEP, Answer, Kind, Question

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from celery_atomicity.connection import Clients, Reply

# Seconds that a start may come after its time and still be in it; the scheduler's share.
LATE = 0.03

# Seconds and factor by which the quickest round trip seen is taken to be slower, a question later.
_SLOWER, _SLOWER_BY = 0.001, 1.25

# What *standing* reads of a limit's hash.
FIELDS = ("s", "e", "p", "a", "r", "b")

# Seconds for which what was seen of a state is sure to be there still, and how many are remembered.
_SURE = REMEMBERED / 1000.0 * 0.9
_MEMORY = 2_000

# The largest number of milliseconds that a script reads exactly.
_MOST = 2.0**53


# Looking one up in the enumeration itself takes ten times as long.
_KINDS = {int(kind): kind for kind in Kind}


@lru_cache(maxsize=1024)
def _text(number: float) -> str:
    """*number* with all its bits; mostly, the same few are asked for."""
    return f"{number:.17g}"


@dataclass(frozen=True, slots=True)
class Standing:
    """
    Where a limit stands, for a person.

    Args:
        rate: Units a second, as of the last call.
        burst: Units, as of the last call.
        behind: Seconds until one who arrived now would start.
        waiting: Units that have a place and have not started.
    """

    rate: float
    burst: float
    behind: float
    waiting: float


def standing(fields: object, now_ms: float) -> Standing | None:
    """Where a limit stands whose hash holds *fields*; None: nothing that makes sense is there."""
    try:
        started, ahead, promised, at, rate, burst = map(float, cast("list[bytes]", fields))
    except (TypeError, ValueError):
        return None
    if not rate > 0:
        return None
    elapsed = max(0.0, now_ms - at)
    started = max(0.0, started - rate * max(0.0, elapsed - ahead))
    ahead = max(0.0, ahead - elapsed)
    promised = max(started + rate * ahead, promised - rate * elapsed)
    return Standing(
        rate=rate * 1000.0,
        burst=burst,
        behind=max(ahead, (promised + 1.0 - burst) / rate, 0.0) / 1000.0,
        waiting=max(0.0, promised - started - rate * ahead),
    )


class Rates:
    """
    The rates of one group.

    Thread-safe. A question costs one round trip, the same whatever rate, burst and history.
    """

    def __init__(self, clients: Clients, group: str) -> None:
        self._clients = clients
        self._group = group
        self._script = Script("rate")
        self._quickest = 0.0
        self._seen: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def admit(
        self, questions: Sequence[Question], promises: Mapping[str, str] | None = None
    ) -> Answer:
        """
        Ask for a start under all of *questions*, and sleep until it if it is near.

        Blocks for a round trip, and for the wait of a start: at most the questions' patience. If
        the process was kept from its start in time (frozen), it asks again.

        Args:
            questions: The limits, no key twice.
            promises: What an earlier answer promised.

        Returns:
            A START is to be made now. Of everything else, when to come back.

        Raises:
            NotConfigured: There is no arbiter.
            Unavailable: It did not answer; whether anything was charged is not known.
        """
        promises = promises or {}
        while True:
            answer, sent, quickest = self._judge(questions, promises)
            if answer.kind is not Kind.START:
                return answer
            seconds = answer.wait / 1000.0
            # The wait counts from the server's moment: at the latest when its answer was there.
            if seconds > 0:
                clock.wait(threading.Event(), seconds)
            if clock.monotonic() - sent - seconds <= LATE + quickest:
                return answer
            promises = answer.promises(questions, promises)

    def hold_back(self, limits: Sequence[Limit], seconds: float) -> None:
        """
        Let nothing start under *limits* for so many *seconds*, then at the pace of the rate.

        Raises:
            ValueError: *seconds* is not positive and finite.
            NotConfigured: There is no arbiter.
            Unavailable: It did not answer.
        """
        if not 0 < seconds < _MOST / 1000:
            raise ValueError(f"a rate is held back for a positive time, not for {seconds!r} s")
        self._ask(_text(seconds * 1000.0), [Question(limit) for limit in limits], {})

    def hold_back_key(self, key: str, seconds: float) -> None:
        """Hold back the limit of *key*, whose rate is known from its last call; raises likewise."""
        standing = self.look(key)
        # Where nobody has called lately, whoever does next brings the rate.
        rate, burst = (1.0, 1.0) if standing is None else (standing.rate, standing.burst)
        self.hold_back([Limit(key, rate, burst, min(1.0, burst))], seconds)

    @makes_sense
    def look(self, key: str) -> Standing | None:
        """
        Where the limit of *key* stands; None: nobody has used it lately.

        Raises:
            NotConfigured: There is no arbiter.
            Unavailable: It did not answer.
        """
        return self._look(rate_key(self._group, key))

    def _look(self, name: str) -> Standing | None:
        fields = self._clients.command("HMGET", name, *FIELDS)
        seconds, micros = cast("list[bytes]", self._clients.command("TIME"))
        return standing(fields, int(seconds) * 1000.0 + int(micros) / 1000.0)

    def _judge(
        self, questions: Sequence[Question], promises: Mapping[str, str]
    ) -> tuple[Answer, float, float]:
        reply = self._ask("0", questions, promises)
        try:
            kind, wait, which, *born = cast("list[Any]", reply.value)
            answer = Answer(_KINDS[kind], float(wait), which - 1, tuple(map(bytes.decode, born)))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self._clients.unexpected(reply.value) from None
        longest = max(SLEEP, *(question.patience for question in questions))
        if (
            len(born) != len(questions)
            or not 0 <= answer.wait < math.inf
            or (answer.kind is Kind.START and answer.wait > longest + 1.0)
        ):
            raise self._clients.unexpected(reply.value)
        for question, each in zip(questions, answer.born, strict=True):
            self._remember(question.limit.key, reply.received, each)
        # A network's own delay shifts all starts alike, so only what goes beyond it is late.
        # An outlier hardly moves this, a lasting change does within some questions.
        quickest = min(reply.received - reply.sent, self._quickest * _SLOWER_BY + _SLOWER)
        self._quickest = quickest
        return answer, reply.sent, quickest

    def _remember(self, key: str, now: float, born: str) -> None:
        # In the order of last use, so that the oldest is found at once however many there are.
        self._seen.pop(key, None)
        self._seen[key] = now, born
        if len(self._seen) > _MEMORY:
            self._seen.popitem(last=False)

    def reset(self, stored: str, seconds: float) -> None:
        """
        Let the next start under a limit come in so many *seconds*, and forget what it owed.

        What has a place already keeps that. What was charged and sleeps out its last moments is
        waited for, as after a loss of data.

        Args:
            stored: The limit's key as it stands on the server, see *keys.safe*.
            seconds: At the pace of the rate from then on; 0: from now on, with the whole burst.

        Raises:
            ValueError: *seconds* is negative or not finite.
            NotConfigured: There is no arbiter.
            Unavailable: It did not answer; the limit may owe nothing now.
        """
        if not 0 <= seconds < _MOST / 1000:
            raise ValueError(f"a limit cannot be set to {seconds!r} s")
        name = rate_key(self._group, stored, is_safe=True)
        stands = self._look(name)
        self._clients.command("DEL", name)
        if seconds > 0:
            rate, burst = (1.0, 1.0) if stands is None else (stands.rate, stands.burst)
            limit = Limit(stored, rate, burst, min(1.0, burst))
            said = self._said(Question(limit), "", "")
            self._clients.ask(self._script, [name], [_text(seconds * 1000.0), _text(SLEEP), *said])

    def _ask(self, held: str, questions: Sequence[Question], promises: Mapping[str, str]) -> Reply:
        keys, arguments = [], [held, _text(SLEEP)]
        now = clock.monotonic()
        for question in questions:
            key = question.limit.key
            when, born = self._seen.get(key, (-math.inf, ""))
            keys.append(rate_key(self._group, key))
            arguments += self._said(
                question, promises.get(key, ""), born if now - when < _SURE else ""
            )
        return self._clients.ask(self._script, keys, arguments)

    def _said(self, question: Question, promise: str, born: str) -> tuple[str, ...]:
        """What the script is told of one limit."""
        limit = question.limit
        return (
            _text(limit.rate / 1000.0),
            _text(limit.burst),
            _text(limit.cost),
            promise,
            _text(question.patience),
            _text(min(question.longest, _MOST)),
            born,
        )

"""
For each rule of membership a history in which, without that rule, a slot has two owners.

They were found by *breed* and made as small as they go.
"""

from __future__ import annotations

from dataclasses import replace

from celery_atomicity.primitives.membership import Membership
from simulation.membership_world import Event, History, World


class OneInterval(Membership):
    """Takes the pair of one interval for the assignment."""

    def registered(self, answer):
        self._pair = self._pair_of(self._last, answer)
        super().registered(answer)


class BeginsAtOnce(Membership):
    """Does not wait for older assignments to end."""

    def _own(self, pair, last, answer):
        super()._own(pair, last, answer)
        self.begins = 0.0


class EndsAfterAnswer(Membership):
    """Counts the deadline from the answer's arrival."""

    def _own(self, pair, last, answer):
        super()._own(pair, last, replace(answer, sent=answer.received))


class AnyRun(Membership):
    """Goes on after the server was restarted or failed over."""

    def registered(self, answer):
        super().registered(replace(answer, run=""))


class AnyClock(Membership):
    """Goes on after the server's clock has stepped."""

    def _continues(self, last, answer):
        return last.run == answer.run


class AnyIndex(Membership):
    """Uses an index that came with no count before it."""

    def _pair_of(self, last, answer):
        return super()._pair_of(last and replace(last, previous=0), answer)


class AnyInterval(Membership):
    """Uses an index of an interval that the clock had not come to."""

    def _pair_of(self, last, answer):
        return super()._pair_of(last and replace(last, now=last.now + 1e6), answer)


class MissedInterval(Membership):
    """Takes the last index for that of the interval before, however old it is."""

    def _pair_of(self, last, answer):
        if last and last.interval < answer.interval:
            last = replace(last, interval=answer.interval - 1, now=answer.now)
        return super()._pair_of(last, answer)


class OpenServer(World):
    """Its script counts into intervals whose count may have been read."""

    def __init__(self, history, kind=Membership):
        super().__init__(history, kind, guard=False)


def _events(*events):
    return [Event(*event) for event in events]


FREEZE_AND_SLIP = History(
    joins=[0.3, 0.5, 0.7],
    events=_events((6.5, "freeze", 0, 1.2), (7.6, "step", 0, -0.4), (7.8, "step", 0, 0.4)),
    until=14.0,
    timeout=1.0,
    there=0.0,
    back=0.0,
    seed=19,
)

WITNESSES = {
    OneInterval: History(
        joins=[0.9], events=_events((8.0, "join")), until=14.0, gap=0.05, there=0, back=0, seed=317
    ),
    BeginsAtOnce: History(
        joins=[0.6],
        events=_events(
            (4.2, "freeze", 0, 0.5), (4.5, "join"), (4.9, "lost answer"), (5.2, "step", 0, 0.2)
        ),
        until=14.0,
        gap=0.3,
        timeout=1.0,
        there=0.0,
        back=0.0,
        seed=13,
    ),
    EndsAfterAnswer: History(
        joins=[0.7],
        events=_events(
            (3.2, "join"),
            (4.2, "join"),
            (6.3, "frozen answer", 0, 2.5),
            (7.3, "late read", 0, 3.1),
        ),
        until=14.0,
        gap=0.3,
        there=0.0,
        back=0.0,
        seed=22,
    ),
    AnyRun: History(
        joins=[0.3, 0.6],
        events=_events(
            (6.7, "join"), (6.9, "failover", 201), (7.3, "crash", 1), (7.8, "freeze", 0, 0.3)
        ),
        until=14.0,
        timeout=1.0,
        there=0.0,
        back=0.0,
        seed=25,
    ),
    AnyIndex: History(
        joins=[0.3, 0.6],
        events=_events((6.4, "flush"), (6.56, "join"), (7.1, "crash", 1), (7.2, "freeze", 0, 0.3)),
        until=14.0,
        timeout=1.0,
        there=0.0,
        back=0.0,
        seed=32,
    ),
    AnyClock: History(
        joins=[0.3, 0.6, 0.1],
        events=_events(
            (3.0, "step", 0, -0.2),
            (3.01, "failover", 0, 1.0),
            (4.7, "crash", 1),
            (6.2, "step", 0, -0.1),
            (7.2, "flush"),
            (7.3, "step", 0, -2.0),
            (7.4, "freeze", 2, 2.2),
            (7.9, "join"),
            (9.8, "crash", 2),
        ),
        until=15.0,
        timeout=1.0,
        there=0.0,
        back=0.0,
        seed=38,
    ),
    AnyInterval: History(
        joins=[0.3, 0.7, 0.6],
        events=_events(
            (2.6, "join"),
            (3.7, "step", 0, -0.45),
            (4.6, "crash", 0),
            (5.1, "join"),
            (5.3, "step", 0, -1.9),
            (5.5, "flush"),
            (6.8, "slow request", 2, 0.9),
            (6.9, "slow request", 2, 0.1),
        ),
        until=14.0,
        gap=0.05,
        timeout=0.5,
        there=0.0,
        back=0.0,
        seed=483,
    ),
    MissedInterval: History(
        joins=[0.3, 0.9],
        events=_events((6.9, "freeze", 1, 2.5), (7.7, "lost request", 1), (7.9, "join")),
        until=14.0,
        gap=0.05,
        timeout=0.5,
        there=0.0,
        back=0.0,
        seed=317,
    ),
}

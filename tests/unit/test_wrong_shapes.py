"""Whatever a script is answered with is served or is one of our errors; nothing else happens."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_atomicity import clock, overview
from celery_atomicity.connection import Clients, ErrorReply, Reply
from celery_atomicity.errors import AtomicityError, LockTimeout, Unavailable
from celery_atomicity.integration.beat.copies import admits
from celery_atomicity.integration.beat.due import Unit
from celery_atomicity.integration.beat.ledger import Begun, Claim, Ledger, Outcome
from celery_atomicity.primitives.keeper import Keeper
from celery_atomicity.primitives.limit import Limit
from celery_atomicity.primitives.lock import Locks
from celery_atomicity.primitives.meter import Meter
from celery_atomicity.primitives.rate import Question
from celery_atomicity.primitives.rates import Rates
from celery_atomicity.primitives.registration import register
from celery_atomicity.settings import Settings

INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 4)
TEXTS = st.binary(max_size=20) | st.sampled_from(
    [b"1", b"-1", b"nan", b"inf", b"1e999", b"9" * 400, b"\xff\xfe", b"", b"0"]
)
SCALARS = st.none() | INTEGERS | TEXTS | st.builds(ErrorReply, st.text(max_size=20))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=5), max_leaves=12)

# Nearly right is nastier than wrong.
NEARLY = st.one_of(
    VALUES,
    st.lists(INTEGERS | TEXTS, min_size=3, max_size=5),
    st.tuples(st.integers(-1, 5), INTEGERS | TEXTS, INTEGERS | TEXTS, TEXTS).map(list),
    st.tuples(TEXTS, st.lists(TEXTS, max_size=3)).map(list),
)

CLAIM = Claim(Unit("nightly"), 1, "one")
TICK = {"group": "g", "entry": "nightly", "slot": None, "last": "1", "copy": "one"}


class Nonsense(Clients):
    """Clients whose addresses answer *value* to everything."""

    def __init__(self, count):
        urls = [f"redis://nowhere:{port}" for port in range(1, count + 1)]
        super().__init__(Settings.read({"atomicity_redis": urls}, {}))
        self.value = None

    def _ask_first(self, commands):
        return [self._reply()] * len(commands)

    def _ask_each(self, commands, decided, enough, *, up):
        return [self._reply()] * (len(commands) * len(commands[0]))

    def _reply(self):
        now = clock.monotonic()
        return Reply(self.value, now, now, "run")


ONE, THREE = Nonsense(1), Nonsense(3)


def answered(value):
    ONE.value = THREE.value = value


def served(function, *args, **kwargs):
    """Call *function*, to which one of our errors may happen."""
    with contextlib.suppress(AtomicityError):
        return function(*args, **kwargs)


@settings(deadline=None, max_examples=300)
@given(NEARLY)
def test_whatever_it_is_an_answer_is_served_or_is_our_error(value):
    answered(value)
    ledger = Ledger(ONE, "g")

    debts = served(Meter(ONE, "g"), ["a", "b"], [1, 2])
    assert debts is None or len(debts) == 2
    served(Rates(ONE, "g").admit, [Question(Limit("a", 1.0, 1.0, 1.0), patience=20.0)])
    served(Rates(ONE, "g").hold_back_key, "a", 1.0)
    served(lambda: register(ONE, "g", 5.0))
    served(ledger.load, {Unit("a"): 1, Unit("b"): 2})
    served(ledger.claim, [CLAIM])
    served(ledger.settle, [Outcome(Begun(CLAIM, alone=True), 2)], 3)
    served(ledger.entries)
    served(ledger.record, "nightly")
    served(admits, ONE, TICK)
    served(overview.registered, ONE, "g")
    served(overview.look_up, ONE, "g", "a")
    served(overview.look, ONE, "g")


@settings(deadline=None, max_examples=150)
@given(NEARLY, st.sampled_from([ONE, THREE]))
def test_a_lock_is_granted_by_nothing_but_a_grant(value, clients):
    answered(value)

    try:
        lease = Locks(clients, Keeper(clients), "g").lock("a", wait=0, ttl=60).acquire()
    except LockTimeout:
        return
    assert value[0] == 1
    lease.release()


@pytest.mark.parametrize("value", [b"OK", [1], [b"x"] * 4, None, [[], [], [], []], [1, 0, -1, 5]])
def test_what_makes_no_sense_is_shown_in_short(value):
    answered(value)

    for ask in (
        lambda: Meter(ONE, "g")(["a", "b"], [1, 2]),
        lambda: Rates(ONE, "g").admit([Question(Limit("a", 1.0, 1.0, 1.0))]),
        lambda: register(ONE, "g", 5.0),
        lambda: Ledger(ONE, "g").load({Unit("a"): 1, Unit("b"): 2, Unit("c"): 3}),
    ):
        with pytest.raises(Unavailable, match=r"answered|serve"):
            ask()

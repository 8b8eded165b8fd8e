"""What is told: in one form, with the same names everywhere, and without harm."""

import ast
import logging
import re
from pathlib import Path

import pytest

import celery_atomicity
from celery_atomicity import events
from celery_atomicity.events import EVENTS, Event

ROOT = Path(celery_atomicity.__file__).parent

MODULES = sorted(path for path in ROOT.rglob("*.py") if "testing" not in path.parts)


def calls(path):
    """Every call of a method in a module: the method's name, on what, and the call."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, ast.unparse(node.func.value), node


def test_each_event_is_told_with_just_its_facts():
    told = set()
    for path in MODULES:
        for method, on, call in calls(path):
            name = on.removeprefix("events.")
            if method == "tell" and name in EVENTS:
                told.add(name)
                given = {keyword.arg for keyword in call.keywords}
                assert given == set(EVENTS[name].facts), f"{path.name}:{call.lineno} {name}"

    # Which of several it is, is chosen where they are told.
    chosen = {"lock_acquired", "lock_timed_out", "left_by_dead", "stuck_by_dead"}
    chosen |= {"stood_down", "resumed"}
    assert told | chosen == set(EVENTS)


def test_whatever_is_logged_is_an_event():
    for path in MODULES:
        if path.name != "events.py":
            loggers = [
                f"{path.name}:{call.lineno}" for _, on, call in calls(path) if "logger" in on
            ]
            assert not loggers, "declare what is said in events.py, and tell it here"


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_a_line_says_what_the_event_has_and_nothing_that_a_record_has_itself(event):
    own = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "event"}

    assert not own & set(event.facts)
    assert set(re.findall(r"%\((\w+)\)", event.text)) <= set(event.facts) - {"error"}
    assert (event.level is None) == (not event.text)


def test_a_line_has_its_facts_as_attributes(caplog):
    caplog.set_level(logging.DEBUG)

    events.lease_lost.tell(
        group="shop", keys=("a", "b"), fence=7, holder="task t[1] on one", reason="it was deleted"
    )

    [record] = caplog.records
    assert record.name == "celery_atomicity.locks"
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "Group shop: the lease of 'a', 'b' was lost by task t[1] on one: it was deleted"
    )
    assert (record.event, record.group, record.keys, record.fence) == (
        "lease_lost",
        "shop",
        ("a", "b"),
        7,
    )
    assert record.filename == "test_events.py"


def test_a_line_without_facts(caplog):
    events.started_off.tell()

    [record] = caplog.records
    assert record.getMessage().startswith("Atomicity is off")


def test_an_error_is_shown_with_its_traceback(caplog):
    try:
        _ = 1 / 0
    except ZeroDivisionError as error:
        events.renewing_broke.tell(error=error)

    assert "ZeroDivisionError: division by zero" in caplog.text


def test_a_listener_hears_until_it_is_taken_off():
    event, heard = Event("tests", "one"), []

    off = event.hear(lambda **facts: heard.append(facts["one"]))
    event.tell(one=1)
    off()
    event.tell(one=2)
    off()

    assert heard == [1]
    assert not event.listeners


def test_a_listener_that_raises_harms_nobody(caplog):
    event, heard = Event("tests", "one"), []
    event.name = "something"
    event.hear(lambda **_: 1 / 0)
    event.hear(lambda **facts: heard.append(facts["one"]))

    event.tell(one=1)

    assert heard == [1]
    assert "What listens to something raised" in caplog.text
    assert "ZeroDivisionError" in caplog.text

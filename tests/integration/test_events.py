"""What is told of real locks and registrations, once for each that happens."""

import os
import threading

import pytest

from celery_atomicity import Atom, LeaseLost, LockTimeout, events, keys
from celery_atomicity.clock import monotonic
from celery_atomicity.connection import outages
from celery_atomicity.settings import Settings
from celery_atomicity.testing import wait_until


@pytest.fixture
def heard():
    """A list of what is told of each event by its name, from now on: ``heard("lease_lost")``."""
    offs = []

    def hear(name):
        told = []
        offs.append(events.EVENTS[name].hear(lambda **facts: told.append(facts)))
        return told

    yield hear
    for off in offs:
        off()


@pytest.fixture
def atom(server, group):
    settings = {
        "atomicity_redis": server.url,
        "atomicity_restart_grace": 0,
        "atomicity_interval": 0.5,
        "atomicity_timeout": 0.2,
    }
    atom = Atom(group, settings=Settings.read(settings, {}))
    yield atom
    atom.close()


def test_a_lock_says_how_long_it_was_waited_for(atom, heard):
    acquired = heard("lock_acquired")
    began = monotonic()

    with atom.lock("a"):
        waiter = threading.Thread(target=lambda: atom.lock("a").acquire().release())
        waiter.start()
        wait_until(lambda: waits(atom, "a"), what="the other one stands in line")
    waiter.join()

    alone, in_line = acquired
    assert set(alone) == set(events.lock_acquired.facts)
    assert (alone["group"], alone["contended"]) == (atom.group, False)
    assert in_line["contended"] is True
    assert 0 < alone["waited"] <= monotonic() - began
    assert 0 < in_line["waited"] <= monotonic() - began


def waits(atom, key):
    clients = atom._arbiter.clients
    return clients.command("EXISTS", keys.line_key(atom.group, key))


def test_a_lock_that_is_not_to_be_had_says_so_and_which_of_two_it_was(atom, heard, server):
    timed_out = heard("lock_timed_out")

    with atom.lock("a"), pytest.raises(LockTimeout):
        threaded(lambda: atom.lock("a", wait=0).acquire())
    server.kill()
    with pytest.raises(LockTimeout):
        atom.lock("b", wait=0).acquire()

    assert [one["unreachable"] for one in timed_out] == [False, True]
    assert set(timed_out[0]) == set(events.lock_timed_out.facts)


def threaded(function):
    """Run *function* in another thread, which holds nothing, and raise what it raises."""
    raised = []

    def run():
        try:
            function()
        except Exception as error:  # noqa: BLE001 - it is raised again
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    for error in raised:
        raise error


def test_a_loss_is_told_once_whoever_notices_it(atom, heard, server):
    lost, failed = heard("lease_lost"), heard("renewal_failed")

    with pytest.raises(LeaseLost), atom.lock("a", ttl=0.3, holder="me") as lease:  # noqa: PT012
        server.cli("DEL", keys.lock_key(atom.group, "a"))
        wait_until(lambda: lost, what="its keeper notices")
    with pytest.raises(LeaseLost), atom.lock("b", max_hold=0.001):
        wait_until(lambda: len(lost) > 1 or threading.Event().wait(0.01), what="it is over")

    assert [(one["keys"], one["group"]) for one in lost] == [
        (("a",), atom.group),
        (("b",), atom.group),
    ]
    assert (lost[0]["fence"], lost[0]["holder"]) == (lease.fence, "me")
    assert failed == [{"group": atom.group, "refused": True}]


def test_a_loss_that_its_keeper_has_not_seen_is_told_when_it_is_let_go(atom, heard):
    lost = heard("lease_lost")
    lease = atom.lock("a").acquire()
    lease._holding.fail("as if it were")

    lease.release()
    lease.release()

    assert [one["reason"] for one in lost] == ["as if it were"]


def test_renewals_are_told_one_by_one(atom, heard):
    renewed = heard("lease_renewed")

    with atom.lock("a", ttl=0.3), atom.lock("b", ttl=0.3):
        wait_until(lambda: len(renewed) >= 4, what="both are renewed twice")

    assert {one["group"] for one in renewed} == {atom.group}


def test_registrations_are_told_and_those_that_fail(atom, heard, server):
    registered, failed = heard("registered"), heard("registration_failed")
    unclear = heard("registration_unclear")

    with atom:
        wait_until(lambda: registered, what="it registers")
        server.kill()
        wait_until(lambda: failed, what="it cannot")

    assert 0 < registered[0]["seconds"] < failed[0]["seconds"] + 5
    assert registered[0]["group"] == failed[0]["group"] == atom.group
    assert failed[0]["reason"]
    assert unclear == []


def test_the_processes_of_a_worker_say_once_that_an_address_is_away(heard):
    away, back = heard("arbiter_away"), heard("arbiter_back")
    address = f"redis://{os.getpid()}"

    outages.note(address, "refused", first=True)
    told_by_child = in_child(lambda: outages.note(address, "refused", first=True), away)
    outages.note(address, "refused", first=False)
    back_by_child = in_child(lambda: outages.end(address, noticed=False), back)
    outages.end(address, noticed=True)
    outages.note(address, "again", first=True)

    assert (told_by_child, back_by_child) == (1, 1)
    assert [one["reason"] for one in away] == ["refused", "again"]
    assert back == []


def in_child(function, told):
    """Run *function* in a forked child; how many of *told* there are in it then."""
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(len(told))
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_what_a_dead_process_noticed_is_said_again_some_time(heard, monkeypatch):
    away = heard("arbiter_away")
    address = f"redis://stale-{os.getpid()}"
    outages.note(address, "refused", first=True)

    monkeypatch.setattr(outages, "STALE", -1.0)
    outages.note(address, "refused", first=True)

    assert len(away) == 2


def test_a_restart_is_said_once_a_run(heard):
    sits_out = heard("arbiter_sits_out")
    address = f"redis://restarted-{os.getpid()}"

    outages.sits_out(address, "run 1", 10.0)
    outages.sits_out(address, "run 1", 9.2)
    outages.sits_out(address, "run 2", 10.0)

    assert [one["seconds"] for one in sits_out] == [10.0, 10.0]

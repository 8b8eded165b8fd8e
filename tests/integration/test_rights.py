"""Everything runs under the rights that docs/security.md asks for, and with no others."""

import re
import threading
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from celery import Celery
from support.cli import Apps, run

from celery_atomicity import Atomicity, LockTimeout, Unavailable, keys, overview
from celery_atomicity.atom import Atom
from celery_atomicity.connection import Clients
from celery_atomicity.integration.beat.copies import admits
from celery_atomicity.integration.beat.due import Unit
from celery_atomicity.integration.beat.ledger import Claim, Ledger, Outcome
from celery_atomicity.integration.command.status import status_of
from celery_atomicity.primitives.limit import Limit
from celery_atomicity.primitives.rate import Kind, Question
from celery_atomicity.settings import Settings
from celery_atomicity.testing import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
NEEDED, LOOKING = (
    " ".join(block.split())
    for block in re.findall(r"(?s)```\w*\n(ACL SETUSER .*?)```", PAGE.read_text())
)
PASSWORD = "p@ss/word"

# What the page says that nothing of ours needs to have been used.
UNUSED = {"select", "config|get", "acl|whoami", "script|load"}


@pytest.fixture
def site(group):
    return Site(group)


class Site:
    """Servers with a user of the rights that are asked for, in a group of our own."""

    def __init__(self, group):
        self.group = group

    def url(self, server, *, looks=False, without=()):
        """Make the user on *server*, and give the URL that it logs in by."""
        for line in (NEEDED, LOOKING) if looks else (NEEDED,):
            words = line.replace("PASSWORD", PASSWORD).replace("shop", self.group).split()
            server.cli(*(word for word in words if word.lstrip("+") not in without))
        server.cli("ACL", "LOG", "RESET")
        return f"redis://atomicity:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/0"

    def settings(self, *urls, **conf):
        return Settings.read(
            {
                "atomicity_redis": list(urls),
                "atomicity_group": self.group,
                "atomicity_interval": 0.2,
                "atomicity_restart_grace": 0,
                **conf,
            },
            {},
        )


def refusals(server):
    """What the server's own log says that it refused for want of a right."""
    return [
        entry["object"]
        for entry in (
            dict(zip(fields[::2], fields[1::2], strict=True)) for fields in server.cli("ACL", "LOG")
        )
    ]


def decide(server, settings, group):
    """All that workers and beats do."""
    atom = Atom(group, settings=settings)
    with atom:
        wait_until(lambda: atom.slots(3) == [0, 1, 2], what="the slots are owned")
    hold(server, atom)
    assert atom.meter(["spent", "x"], [1000, 2.5])[0] == pytest.approx(1000, abs=1)
    limit = Limit("calls", 10.0, 2.0, 1.0)
    # What each of them ends in depends on how busy the machine is; that it is served does not.
    kinds = [atom.rates.admit([Question(limit)]).kind for _ in range(3)]
    assert Kind.START in kinds
    atom.rates.hold_back([limit], 1.0)
    assert atom.rates.look("calls").waiting >= 0
    send(settings, group)


def hold(server, atom):
    """Take a lock, stand in line for it, be rung, be renewed, and let go."""
    fences = []
    lease = atom.lock(["a", "b"], ttl=0.6).acquire()

    def wait():
        with atom.lock("b", min_hold=0.01) as mine:
            fences.append(mine.fence)

    with pytest.raises(LockTimeout):
        atom.lock("a", wait=0).acquire()
    waiter = threading.Thread(target=wait)
    waiter.start()
    line = keys.line_key(atom.group, "b")
    # Asked by a command that we do not use ourselves.
    wait_until(lambda: server.cli("ZCOUNT", line, "-inf", "+inf"), what="the waiter stands in line")
    ends = lease.remaining
    wait_until(lambda: lease.remaining > ends or lease.lost, what="the lease is renewed")
    fences.insert(0, lease.fence)
    lease.release()
    waiter.join(20)
    assert fences == sorted(set(fences))
    assert len(fences) == 2


def send(settings, group):
    """Own a beat's entries, and send a tick."""
    clients = Clients(settings)
    with Atom(f"{group}.beat", settings=settings) as beats:
        wait_until(lambda: beats.slots(1) == [0], what="the entries are owned")
    ledger = Ledger(clients, group, "beat@here:1")
    unit = Unit("nightly")
    assert ledger.load({unit: 1_000_000}) == {unit: 1_000_000}
    [begun] = ledger.claim([Claim(unit, 1_000_000, "one")])
    [again] = ledger.claim([Claim(unit, 1_000_000, "two")])
    assert (begun.alone, again.alone) == (True, False)
    tick = {"group": group, "entry": "nightly", "slot": None, "last": "1000000", "copy": "two"}
    assert admits(clients, tick)
    assert ledger.settle([Outcome(again, 2_000_000, 1_500_000)], 2_000_000) == [True]
    [alone] = ledger.claim([Claim(unit, 2_000_000, "three")])
    assert ledger.settle([Outcome(alone, 3_000_000)], 3_000_000) == [True]
    clients.close()


# F60
def test_everything_runs_on_one_server_and_can_be_looked_at(every_server, site, group):
    url = site.url(every_server)

    decide(every_server, site.settings(url), group)

    assert refusals(every_server) == []
    site.url(every_server, looks=True)
    app = Celery(group, broker="memory://", set_as_current=False)
    app.conf.update(atomicity_redis=url, atomicity_group=group, atomicity_interval=0.2)
    Atomicity(app)
    status = status_of(app, timeout=0.1)
    account = overview.look_up(Atomicity.of(app).clients, group, "calls")
    assert status.arbiter_error == ""
    assert status.groups[0].entries[0].name == "nightly"
    assert account.limits
    assert refusals(every_server) == []


# F60
def test_everything_runs_on_three_servers(servers, site, group):
    three = [servers() for _ in range(3)]
    settings = site.settings(*(site.url(each) for each in three))
    # Their fences differ, so that one has to be raised.
    three[1].cli("SET", keys.fence_key(group), 2 * 10**15)

    decide(three[0], settings, group)

    assert [refusals(each) for each in three] == [[], [], []]


# F60
def test_every_command_runs_under_the_rights_of_an_operator(every_server, site, group):
    url = site.url(every_server, looks=True)
    with closing(Apps()) as apps:
        app = apps(atomicity_redis=url, atomicity_group=group, atomicity_restart_grace=0)
        atom = Atomicity.of(app).atom()
        lease = atom.lock("books").acquire()
        for _ in range(2):
            atom.rates.admit([Question(Limit("calls", 10.0), patience=0.0)])
        codes = {
            command: run(app, *command.split()).exit_code
            for command in (
                "status --timeout 0.1",
                "locks",
                "locks books",
                "release books --yes",
                "locks books --json",
                "meter calls --set 5",
                "meter calls --forgive",
                "meter sam --set 5",
                "slots 2 --timeout 0.1",
                "doctor",
            )
        }
        lease.release()

    assert refusals(every_server) == []
    assert {command for command, code in codes.items() if code} == {
        "locks books --json",  # free by then
        "slots 2 --timeout 0.1",  # nobody's
    }


def test_nothing_is_asked_for_that_is_not_needed(server, site, group):
    url = site.url(server, looks=True)
    server.cli("CONFIG", "RESETSTAT")
    decide(server, site.settings(url), group)
    clients = Clients(site.settings(url))
    clients.command("PING")
    with Atom(group, settings=site.settings(url)).lock("a"):
        overview.look(clients, group)
    Ledger(clients, group).record("nightly")
    clients.close()

    used = set(re.findall(r"cmdstat_(\S+?):", server.cli("INFO", "commandstats")))
    asked = {word[1:] for word in f"{NEEDED} {LOOKING}".split() if word.startswith("+")}

    # Redis 6.2 counts no subcommands.
    assert {one for one in asked - UNUSED if not {one, one.partition("|")[0]} & used} == set()


def test_without_info_all_but_one_thing_works_and_is_said_once(server, site, group, caplog):
    settings = site.settings(site.url(server, without=("info",)))

    decide(server, settings, group)

    said = [record for record in caplog.records if "INFO" in record.getMessage()]
    assert len(said) == 1
    assert set(refusals(server)) <= {"info"}
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == said


def test_a_right_that_is_missing_is_named_once_and_not_tried_faster(server, site, group, caplog):
    settings = site.settings(site.url(server, without=("evalsha",)))
    atom = Atom(group, settings=settings)
    with atom, pytest.raises(LockTimeout, match=r"evalsha.*docs/security\.md"):
        atom.lock("a", wait=2).acquire()
    with pytest.raises(Unavailable, match="evalsha"):
        atom.meter(["k"], [0])

    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    # One of the arbiter's refusal, and one that no slot is owned for it.
    assert len(said) <= 2, said
    assert any("evalsha" in line for line in said)
    # A lock's attempts end a second apart, a registration's an eighth of an interval.
    assert int(server.cli("ACL", "LOG")[0][1]) < 60


def test_a_group_beside_the_users_own_is_refused_by_name(server, site, group, caplog):
    settings = site.settings(site.url(server))

    with pytest.raises(Unavailable, match=r"(?i)permissions?"):
        Atom(f"{group}-other", settings=settings).meter(["k"], [0])

    assert PASSWORD not in caplog.text

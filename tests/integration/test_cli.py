"""``celery atomicity`` against a real server that is arbiter and broker."""

import json
import re

import pytest
from support.cli import Apps, run

from celery_atomicity import Atomicity
from celery_atomicity.integration.beat.due import Unit
from celery_atomicity.integration.beat.ledger import Claim, Ledger, Outcome
from celery_atomicity.primitives.limit import Limit
from celery_atomicity.primitives.rate import Question
from celery_atomicity.testing import free_port

NOW = 1_700_000_000_000_000


@pytest.fixture
def make_app():
    made = Apps()
    yield made
    made.close()


@pytest.fixture
def app(make_app, server):
    return make_app(server.url, atomicity_restart_grace=0)


def status(app, *arguments):
    return run(app, "status", "--timeout", "0.2", *arguments)


def test_status_of_an_idle_fleet(app, server):
    result = status(app)

    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        f"arbiter  redis://:**@127.0.0.1:{server.port} (from broker_url)",
        "",
        "group    shop",
        "  workers: none",
        "  locks held: none",
    ]


def test_status_shows_what_is_held_and_owed(app):
    atom = Atomicity.of(app).atom()
    atom.meter(["sam"], [30_000])

    with atom.lock("books", holder="the accountant"):
        result = status(app)

    assert re.search(
        r"^    books  the accountant, for \d+\.\d s, free", result.stdout, re.MULTILINE
    )
    assert re.search(r"^    sam  (30\.0|2\d\.\d) s \(", result.stdout, re.MULTILINE)


def test_status_shows_what_beats_have_sent(app):
    ledger = Ledger(Atomicity.of(app).clients, "shop", "beat@here:1")
    units = [Unit("sweep", slot, 2) for slot in range(2)]
    ledger.load(dict.fromkeys(units, NOW))
    first, _ = ledger.claim([Claim(unit, NOW, "copy") for unit in units])
    ledger.settle([Outcome(first, NOW + 1)], NOW)

    result = status(app)

    said = " ".join(result.stdout.split())
    assert "sweep 2 slots, owned by beat@here:1, last sent " in said
    assert said.endswith(" ago by beat@here:1, 1 being sent")


def test_status_shows_further_groups(app):
    Atomicity(app, groups=["mail.sender"])

    shown = [line for line in status(app).stdout.splitlines() if line.startswith("group")]

    assert shown == ["group    shop", "group    mail.sender"]


def test_status_as_json_tells_all(app):
    atom = Atomicity.of(app).atom()

    with atom.lock("books", holder="the accountant"):
        told = json.loads(status(app, "--json").stdout)

    [group] = told["groups"]
    assert (told["source"], told["arbiter_error"], told["workers_error"]) == ("broker_url", "", "")
    assert (group["name"], group["replicas"], group["beats"]) == ("shop", [], 0)
    [held] = group["arbiter"]["locks"]
    assert (held["key"], held["holder"], held["waiting"]) == ("books", "the accountant", 0)


def test_an_arbiter_that_does_not_answer_exits_with_1(make_app, server):
    app = make_app(server.url, atomicity_redis=f"redis://127.0.0.1:{free_port()}")

    result = status(app)

    assert result.exit_code == 1
    assert "did not serve a request" in result.stderr
    assert "  workers: none" in result.stdout


def test_a_broker_that_does_not_answer_exits_with_1_and_the_arbiter_is_shown(make_app, server):
    app = make_app(
        f"redis://127.0.0.1:{free_port()}", atomicity_redis=server.url, atomicity_restart_grace=0
    )

    with Atomicity.of(app).atom().lock("books"):
        result = status(app)

    assert result.exit_code == 1
    assert "The broker does not answer" in result.stderr
    assert "  locks held: 1" in result.stdout


def test_without_an_arbiter_it_exits_with_2(make_app):
    app = make_app("memory://")

    result = status(app)

    assert result.exit_code == 2
    assert "set atomicity_redis" in result.stderr
    assert result.stdout == ""


def test_where_atomicity_is_not_installed_it_exits_with_2(make_app):
    result = status(make_app(install=False))

    assert result.exit_code == 2
    assert "Atomicity(app)" in result.stderr


def test_a_setting_that_cannot_work_exits_with_2(make_app, server):
    app = make_app("memory://", atomicity_redis=[server.url, "redis://127.0.0.1:1"])

    result = status(app)

    assert result.exit_code == 2
    assert "have no majority" in result.stderr


@pytest.mark.parametrize(
    "command", ["", "status", "watch", "locks", "release", "meter", "slots", "doctor"]
)
def test_help_has_examples_and_exit_codes(app, command):
    result = run(app, *command.split(), "--help")

    assert result.exit_code == 0
    assert f"Examples:\n  celery -A shop atomicity {command}" in result.stdout
    assert "exits with" in result.stdout.lower()
    assert max(map(len, result.stdout.splitlines())) <= 80


class TestSlots:
    """How workers answer is tested with workers; here nobody does."""

    def test_slots_that_nobody_owns_exit_with_3(self, app):
        result = run(app, "slots", "4", "--timeout", "0.1")

        assert result.exit_code == 3
        assert result.stdout.splitlines() == [
            "group shop: 4 slots, no worker answered",
            "  nobody  4: 0, 1, 2, 3",
        ]

    def test_as_json_it_tells_all(self, app):
        told = json.loads(run(app, "slots", "2", "--timeout", "0.1", "--json").stdout)

        assert told == {"group": "shop", "total": 2, "shares": [], "unowned": [0, 1], "doubled": []}

    def test_a_broker_that_does_not_answer_exits_with_1(self, make_app, server):
        app = make_app(f"redis://127.0.0.1:{free_port()}", atomicity_redis=server.url)

        result = run(app, "slots", "2", "--timeout", "0.1")

        assert (result.exit_code, result.stdout) == (1, "")
        assert "The broker does not answer" in result.stderr

    def test_no_total_or_a_wrong_one_exits_with_2(self, app):
        assert run(app, "slots").exit_code == 2
        assert run(app, "slots", "0").exit_code == 2


class TestMeter:
    @pytest.fixture
    def behind(self, app):
        """Ten a second of which 40 have arrived at once; and another tenant's one."""
        rates = Atomicity.of(app).atom().rates
        for _ in range(40):
            rates.admit([Question(Limit("shop.partner:acme", 10.0))])
        rates.admit([Question(Limit("shop.partner:other", 10.0))])
        rates.admit([Question(Limit("acmes", 10.0))])

    def test_a_debt_and_the_limits_of_a_key_are_shown(self, app, behind):
        Atomicity.of(app).atom().meter(["acme"], [30_000])

        result = run(app, "meter", "acme")

        assert (result.exit_code, result.stderr) == (0, "")
        owed, limit = result.stdout.splitlines()
        assert re.fullmatch(r"acme: owes (30\.0|29\.\d) s \([\d.,]+ ms\)", owed)
        assert re.fullmatch(r"shop\.partner:acme: 10/s, [34]\.\d s behind, 3\d waiting", limit)

    def test_all_of_a_scope_are_shown_who_is_furthest_behind_first(self, app, behind):
        lines = run(app, "meter", "shop.partner").stdout.splitlines()

        assert [line.partition(": ")[0] for line in lines] == [
            "shop.partner:acme",
            "shop.partner:other",
        ]

    def test_as_json_it_tells_all(self, app, behind):
        told = json.loads(run(app, "meter", "shop.partner:acme", "--json").stdout)

        assert (told["group"], told["key"], told["debt"]) == ("shop", "shop.partner:acme", 0.0)
        [limit] = told["limits"]
        assert limit["key"] == "shop.partner:acme"
        assert limit["standing"]["rate"] == pytest.approx(10)
        assert 2 < limit["standing"]["behind"] <= 4

    def test_another_group_is_looked_into(self, app):
        Atomicity.of(app).atom("mail").meter(["sam"], [7_200_000])

        assert "sam: owes nothing" in run(app, "meter", "sam").stdout
        assert "sam: owes 2.0 h" in run(app, "meter", "sam", "--group", "mail").stdout

    def test_a_key_that_is_no_readable_name_is_found(self, app):
        key = "a long one " * 30
        Atomicity.of(app).atom().meter([key], [7_200_000])

        assert "owes 2.0 h" in run(app, "meter", key).stdout

    def test_an_arbiter_that_does_not_answer_exits_with_1(self, make_app):
        app = make_app("memory://", atomicity_redis=f"redis://127.0.0.1:{free_port()}")

        result = run(app, "meter", "acme")

        assert (result.exit_code, result.stdout) == (1, "")
        assert "did not serve a request" in result.stderr

    def test_without_an_arbiter_it_exits_with_2(self, make_app):
        app = make_app("memory://")

        result = run(app, "meter", "acme")

        assert (result.exit_code, result.stdout) == (2, "")
        assert "set atomicity_redis" in result.stderr

    def test_where_atomicity_is_not_installed_it_exits_with_2(self, make_app):
        result = run(make_app(install=False), "meter", "acme")

        assert result.exit_code == 2
        assert "Atomicity(app)" in result.stderr

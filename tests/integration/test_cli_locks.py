"""``celery atomicity locks``, ``release`` and ``meter --set``, on one server and on three."""

import json
import threading

import pytest
from support.cli import Apps, run

from celery_atomicity import Atomicity, LeaseLost
from celery_atomicity.primitives.limit import Limit
from celery_atomicity.primitives.rate import Kind, Question
from celery_atomicity.testing import free_port, wait_until


@pytest.fixture
def apps():
    made = Apps()
    yield made
    made.close()


@pytest.fixture
def app(apps, server):
    return apps(atomicity_redis=server.url, atomicity_restart_grace=0, atomicity_lock_ttl=3)


@pytest.fixture
def three(servers):
    return [servers() for _ in range(3)]


@pytest.fixture
def wide(apps, three):
    """An app with three addresses."""
    return apps(
        atomicity_redis=[server.url for server in three],
        atomicity_restart_grace=0,
        atomicity_lock_ttl=3,
        atomicity_timeout=0.5,
    )


def atom(app):
    return Atomicity.of(app).atom()


class Waiting:
    """A thread that waits for *key*; *held* is set once it has it, and kept until *enough*."""

    def __init__(self, app, key):
        self.held, self.enough = threading.Event(), threading.Event()
        threading.Thread(target=self._wait, args=(atom(app).lock(key),), daemon=True).start()
        wait_until(lambda: "1. for" in run(app, "locks", key).stdout, what="it is in line")

    def _wait(self, lock):
        with lock:
            self.held.set()
            self.enough.wait(20)


class TestLocks:
    def test_all_are_listed(self, app):
        with atom(app).lock(["a", "b"], holder="the accountant"):
            result = run(app, "locks")

        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("locks held: 2\n  a  the accountant, for ")

    def test_of_a_key_all_is_told(self, app):
        with atom(app).lock("books", holder="the accountant") as lease:
            other = Waiting(app, "books")
            result = run(app, "locks", "books")

        assert result.exit_code == 0
        first, *lines = result.stdout.splitlines()
        assert first == "books: held"
        assert "  holder   the accountant" in lines
        assert f"  fence    {lease.fence} or less: the last that the group was given" in lines
        assert sum("process" in line for line in lines) == 1
        assert lease.id not in result.stdout
        other.enough.set()
        assert other.held.wait(10)

    def test_who_was_given_it_out_of_the_line_does_not_wait(self, app):
        with atom(app).lock("books"):
            other = Waiting(app, "books")
        assert other.held.wait(10)

        told = json.loads(run(app, "locks", "books", "--json").stdout)
        listed = json.loads(run(app, "locks", "--json").stdout)

        other.enough.set()
        assert len(told["held"]) == 1
        assert told["waiters"] == []
        assert [held["waiting"] for held in listed["locks"]] == [0]

    def test_as_json_no_lease_s_id_is_told(self, app):
        with atom(app).lock("books", holder="me") as lease:
            one = run(app, "locks", "books", "--json").stdout
            all_of_them = run(app, "locks", "--json").stdout

        assert lease.id not in one + all_of_them
        [held] = json.loads(one)["held"]
        assert (held["holder"], held["at"], held["of"]) == ("me", 1, 1)
        assert json.loads(all_of_them)["locks"] == [{**held, "remaining": pytest.approx(3, abs=3)}]

    def test_a_free_key_exits_with_3(self, app):
        result = run(app, "locks", "books")

        assert (result.exit_code, result.stderr) == (3, "")
        assert result.stdout.startswith("books: free")

    def test_a_long_key_is_found_by_its_own_name_and_by_the_one_that_is_shown(self, app):
        key = "a long one " * 30
        lease = atom(app).lock(key).acquire()
        [held] = json.loads(run(app, "locks", "--json").stdout)["locks"]

        assert held["key"] != key
        assert [run(app, "locks", name).exit_code for name in (key, held["key"])] == [0, 0]
        assert run(app, "release", held["key"], "--yes").exit_code == 0
        assert run(app, "locks", key).exit_code == 3
        lease.release()

    def test_another_group_is_looked_into(self, app):
        with Atomicity.of(app).atom("mail").lock("books"):
            assert run(app, "locks", "books").exit_code == 3
            assert run(app, "locks", "books", "--group", "mail").exit_code == 0

    def test_what_another_client_wrote_does_nothing_to_the_terminal(self, app, server):
        server.cli("SET", "atom:shop:lock:books", f"{'0' * 32}.1 \x1b[2Jme, since what")
        server.cli("SET", "atom:shop:lock:b\x1b[2J", "foreign")

        result = run(app, "locks", colours=True)

        assert result.exit_code == 0, result.output
        assert "\x1b" not in result.stdout + run(app, "locks", "books", colours=True).stdout

    def test_with_one_of_three_down_the_others_tell(self, wide, three):
        with atom(wide).lock("books", holder="me"):
            three[2].kill()
            result = run(wide, "locks", "books")
            listed = run(wide, "locks")

        assert (result.exit_code, listed.exit_code) == (1, 1)
        assert f"127.0.0.1:{three[2].port} did not serve a request" in result.stderr
        assert "  held on  2 of 3 addresses" in result.stdout
        assert listed.stdout.startswith("locks held: 1\n  books  me, for")

    def test_with_the_first_of_three_down_who_waits_is_not_known(self, wide, three):
        with atom(wide).lock("books", holder="me"):
            three[0].kill()
            result = run(wide, "locks", "books")

        assert result.exit_code == 1
        assert "  holder   me" in result.stdout
        assert "waiting  not known" in result.stdout

    def test_what_a_minority_holds_is_pointed_out(self, wide, three):
        three[1].cli("SET", "atom:shop:lock:books", "left behind", "PX", 9000)

        result = run(wide, "locks", "books")

        assert "1 of 3 addresses, no majority" in result.stdout

    @pytest.mark.parametrize("command", [("locks",), ("locks", "books"), ("release", "books")])
    def test_with_all_down_it_exits_with_1(self, apps, command):
        app = apps(atomicity_redis=f"redis://:s3cret@127.0.0.1:{free_port()}")

        result = run(app, *command)

        assert (result.exit_code, result.stdout) == (1, "")
        assert "did not serve a request" in result.stderr
        assert "s3cret" not in result.output


class TestRelease:
    def test_the_holder_is_told_within_a_renewal_and_the_next_is_let_in(self, app):
        lease = atom(app).lock("books").acquire()
        other = Waiting(app, "books")

        result = run(app, "release", "books", answer="y\n")

        assert result.exit_code == 0, result.output
        assert "books: held" in result.stdout
        assert "books: taken from its holder, who is told at its next renewal" in result.stdout
        # By a push: the holder's ttl would still run for long.
        assert other.held.wait(2.5)
        other.enough.set()
        wait_until(lambda: lease.lost, what="the holder is told")
        with pytest.raises(LeaseLost, match="deleted"):
            lease.check()

    # LOCK-11
    def test_a_key_that_was_released_is_not_put_back(self, wide, three):
        lease = atom(wide).lock("books").acquire()

        assert run(wide, "release", "books", "--yes").exit_code == 0

        wait_until(lambda: lease.lost, what="the holder is told")
        assert [one.cli("GET", "atom:shop:lock:books") for one in three] == [None] * 3

    def test_it_asks_first_and_no_is_no(self, app):
        with atom(app).lock("books") as lease:
            result = run(app, "release", "books", answer="n\n")

            assert result.exit_code == 3
            assert run(app, "locks", "books").exit_code == 0
            assert not lease.lost

    def test_a_key_that_nobody_holds_exits_with_3(self, app):
        result = run(app, "release", "books", "--yes")

        assert result.exit_code == 3
        assert "books: free" in result.stdout

    def test_whoever_got_it_after_it_was_shown_keeps_it(self, app, server, monkeypatch):
        first = atom(app).lock("books").acquire()
        seconds = []

        def confirm(*_args, **_options):
            first.release()
            seconds.append(atom(app).lock("books", holder="the second").acquire())
            return True

        monkeypatch.setattr("click.confirm", confirm)
        result = run(app, "release", "books")

        assert "books: now held by the second" in result.stdout
        [second] = seconds
        assert server.cli("GET", "atom:shop:lock:books").startswith(second.id)
        second.release()

    def test_another_client_s_lock_is_freed_too(self, app, server):
        server.cli("SET", "atom:shop:lock:books", "a redlock's token")

        result = run(app, "release", "books", "--yes")

        assert result.exit_code == 0
        assert "which is not told" in result.stdout
        assert server.cli("GET", "atom:shop:lock:books") is None

    def test_with_one_of_three_down_a_majority_is_freed(self, wide, three):
        lease = atom(wide).lock("books").acquire()
        three[0].kill()

        result = run(wide, "release", "books", "--yes")

        assert result.exit_code == 0, result.output
        assert "did not serve" in result.stderr
        wait_until(lambda: lease.lost, what="the holder is told")

    def test_with_two_of_three_down_it_says_that_it_is_not_done(self, wide, three):
        with atom(wide).lock("books"):
            three[1].kill()
            three[2].kill()

            result = run(wide, "release", "books", "--yes")

        assert result.exit_code == 1
        assert "could not be taken from a majority of the 3 addresses: 2 did not" in result.stderr


class TestSet:
    def ask(self, app, key="shop.partner:acme", rate=10.0):
        return atom(app).rates.admit([Question(Limit(key, rate), patience=0.0)])

    @pytest.fixture
    def behind(self, app):
        for _ in range(300):
            self.ask(app)

    def test_a_debt_is_set_whatever_it_was(self, app):
        atom(app).meter(["sam"], [900_000])

        result = run(app, "meter", "sam", "--set", "7200")

        assert result.exit_code == 0
        assert "No limit of the name 'sam' was used lately" in result.stderr
        assert result.stdout.startswith("sam: owes 2.0 h")
        assert 7_100_000 < atom(app).meter(["sam"], [0])[0] <= 7_200_000

    def test_a_debt_is_forgiven(self, app, server):
        atom(app).meter(["sam"], [900_000])

        result = run(app, "meter", "sam", "--forgive")

        assert result.exit_code == 0
        assert "sam: owes nothing" in result.stdout
        assert atom(app).meter(["sam"], [0]) == [0.0]

    def test_both_debts_of_a_limit_are_forgiven(self, app, behind):
        assert self.ask(app).kind is Kind.PLACE

        result = run(app, "meter", "shop.partner:acme", "--forgive")

        assert (result.exit_code, result.stderr) == (0, "")
        assert "owes nothing" in result.stdout
        # Who has seen the limit before lets those finish who sleep out their last moments.
        assert self.ask(app).wait <= 500

    def test_a_limit_is_set_to_a_time(self, app, behind):
        result = run(app, "meter", "shop.partner:acme", "--set", "600")

        assert result.exit_code == 0
        assert "shop.partner:acme: 10/s, 10.0 min behind" in result.stdout
        assert 590_000 < self.ask(app).wait <= 600_000
        run(app, "meter", "shop.partner:acme", "--set", "5")
        assert 0 < self.ask(app).wait <= 5_100

    def test_a_limit_whose_name_is_shortened_is_set(self, app):
        key = "shop.partner:" + "a long one " * 30
        for _ in range(50):
            self.ask(app, key, rate=0.1)

        result = run(app, "meter", key, "--set", "7200")

        assert "2.0 h behind" in result.stdout
        assert 7_100_000 < self.ask(app, key, rate=0.1).wait <= 7_200_000

    def test_a_debt_is_set_by_the_name_that_is_shown(self, app):
        key = "a long one " * 30
        atom(app).meter([key], [900_000])
        shown = run(app, "status", "--timeout", "0.1", "--json").stdout
        [owed] = json.loads(shown)["groups"][0]["arbiter"]["debts"]

        assert run(app, "meter", owed["key"], "--set", "7200").exit_code == 0
        assert 7_100_000 < atom(app).meter([key], [0])[0] <= 7_200_000

    def test_several_are_asked_for_first(self, app, behind):
        atom(app).meter(["acme"], [900_000])

        no = run(app, "meter", "acme", "--forgive", answer="n\n")
        assert no.exit_code == 3
        assert atom(app).meter(["acme"], [0])[0] > 0

        yes = run(app, "meter", "acme", "--forgive", answer="y\n")
        assert yes.exit_code == 0
        assert "shop.partner:acme: 10/s" in yes.stdout
        assert yes.stdout.endswith("owes nothing, and no limit of that name was used lately\n")

    @pytest.mark.parametrize(
        "arguments",
        [("--set", "-1"), ("--set", "nan"), ("--set", "x"), ("--set", "1", "--forgive")],
    )
    def test_what_makes_no_sense_exits_with_2(self, app, arguments):
        atom(app).meter(["sam"], [900_000])

        assert run(app, "meter", "sam", *arguments).exit_code == 2
        assert atom(app).meter(["sam"], [0])[0] > 0

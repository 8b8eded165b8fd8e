"""What is shown of a group, on a real server."""

import pytest

from celery_atomicity import Atom, overview
from celery_atomicity.errors import NotConfigured, Unavailable
from celery_atomicity.primitives.limit import Limit
from celery_atomicity.primitives.rate import Question
from celery_atomicity.settings import Settings
from celery_atomicity.testing import wait_until


def settings_of(server, **values):
    return Settings.read({"atomicity_redis": server.url, "atomicity_interval": 0.5, **values}, {})


@pytest.fixture
def settings(server):
    return settings_of(server, atomicity_restart_grace=0)


@pytest.fixture
def atom(settings, group):
    atom = Atom(group, settings=settings)
    yield atom
    atom.close()
    clients_of(atom).close()


def clients_of(atom):
    return atom._arbiter.clients


def look(atom):
    return overview.look(clients_of(atom), atom.group)


def test_of_a_group_that_nobody_uses_nothing_is_shown(atom):
    assert look(atom) == overview.Overview(atom.group, 0, 0.0, (), (), ())


def test_a_held_key_is_shown_with_its_holder(atom):
    with atom.lock("books", holder="me, of course", ttl=30):
        [held] = look(atom).locks

    assert (held.key, held.holder, held.waiting) == ("books", "me, of course", 0)
    assert 0 < held.remaining <= 30
    assert held.since.startswith("20")
    assert look(atom).locks == ()


def test_the_id_of_a_lease_is_not_shown(atom):
    with atom.lock("books") as lease:
        assert lease.id not in repr(look(atom))


def test_those_in_line_are_counted(atom, server):
    with atom.lock("books"):
        server.cli("ZADD", f"atom:{atom.group}:line:books", 1, "a", 2, "b")

        [held] = look(atom).locks

    assert held.waiting == 2


def test_a_lock_of_another_client_is_shown_without_a_holder(atom, server):
    server.cli("SET", f"atom:{atom.group}:lock:books", "0a1b2c", "PX", 9000)
    server.cli("SET", f"atom:{atom.group}:lock:for ever", "0a1b2c")

    books, for_ever = look(atom).locks

    assert (books.holder, books.since) == ("", "")
    assert for_ever.remaining is None


def test_what_is_no_lock_under_a_lock_s_key_is_left_out(atom, server):
    server.cli("LPUSH", f"atom:{atom.group}:lock:books", "what")

    assert look(atom).locks == ()


def test_a_limit_is_shown_until_it_is_forgotten(atom):
    atom.rates.admit([Question(Limit("partner:acme", rate=0.5, burst=2.0, cost=2.0))])

    [limited] = look(atom).limits

    assert limited.key == "partner:acme"
    assert (limited.standing.rate, limited.standing.burst) == (pytest.approx(0.5), 2.0)
    assert 0 < limited.standing.behind <= 2


def test_a_long_key_is_found_under_its_shortened_name(atom):
    atom.rates.admit([Question(Limit("x" * 300, rate=0.5))])

    [limited] = look(atom).limits

    assert limited.key.startswith("xxx")
    assert limited.standing.burst == 1.0


def test_a_debt_is_shown_while_it_drains(atom):
    atom.meter(["sam", "eve"], [60_000, 0])

    [owed] = look(atom).debts

    assert owed.key == "sam"
    assert 0 < owed.debt <= 60_000


def test_replicas_are_counted_by_their_registrations(atom):
    with atom:
        wait_until(lambda: look(atom).registered == 1, what="one is registered")
        assert overview.registered(clients_of(atom), atom.group) == 1

    wait_until(lambda: look(atom).registered == 0, what="it is gone")


def test_a_server_that_sits_out_its_restart_says_so(server, group):
    atom = Atom(group, settings=settings_of(server, atomicity_restart_grace=60))
    atom.meter(["sam"], [0])

    assert 0 < look(atom).sits_out <= 60
    clients_of(atom).close()


def test_other_groups_and_other_keys_are_not_looked_at(atom, server):
    server.cli("SET", "atom:other:lock:books", "x")
    server.cli("SET", f"atom:{atom.group}x:lock:books", "x")
    server.cli("SET", "celery", "x")

    assert look(atom).locks == ()


def test_a_name_with_a_pattern_in_it_is_only_a_name(server, settings):
    server.cli("SET", "atom:shop:lock:books", "x")
    atom = Atom("sho[a-z]*?", settings=settings)

    with atom.lock("other"):
        assert [held.key for held in look(atom).locks] == ["other"]

    clients_of(atom).close()


def test_many_keys_are_all_found(atom, server):
    prefix = f"atom:{atom.group}:lock:"
    script = "for n = 1, 2500 do redis.call('SET', KEYS[1] .. n, 'x', 'PX', 60000) end"
    server.cli("EVAL", script, 1, prefix)

    assert len(look(atom).locks) == 2500


def test_looking_writes_nothing(atom, server):
    look(atom)
    before = server.cli("INFO", "stats")

    look(atom)

    # Among what a server counts, only its reads have grown.
    assert server.cli("KEYS", "*") == ["atom:server"]
    assert "total_commands_processed" in before


def test_without_an_arbiter_there_is_nothing_to_look_at(group):
    atom = Atom(group, settings=Settings.read({"atomicity_redis": ""}, {}))

    with pytest.raises(NotConfigured, match="atomicity_redis"):
        look(atom)


def test_an_arbiter_that_does_not_answer_is_an_error(atom, server):
    server.stop()

    with pytest.raises(Unavailable, match="did not serve"):
        look(atom)

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from celery_atomicity import NotConfigured, Unavailable, clock, threads
from celery_atomicity.connection import Clients, ErrorReply, Script
from celery_atomicity.connection.exchange import HELLO
from celery_atomicity.settings import Settings
from celery_atomicity.testing import free_port, wait_until

METER = Script("meter")


@pytest.fixture
def clients():
    made = []

    def make(*urls, **conf):
        values = {"atomicity_redis": list(urls), "atomicity_timeout": 0.3, **conf}
        made.append(Clients(Settings.read(values, {})))
        return made[-1]

    yield make
    for one in made:
        one.close()


def meter(clients, key="k", delta=0):
    return clients.ask(METER, [key], [delta]).value


def majority(replies):
    return sum(reply is not None and isinstance(reply.value, list) for reply in replies) >= 2


def ask_all(clients):
    return clients.ask_each([[(METER, ["k"], [0])]] * clients.count, decided=majority)


def test_no_address_is_said_so(clients):
    with pytest.raises(NotConfigured, match="atomicity_redis"):
        clients().ask(METER, ["k"], [0])


def test_a_script_is_run_where_it_is_not_known_yet_and_after_it_was_forgotten(clients, server):
    # F58
    it = clients(server.url)
    assert meter(it) == [0]

    server.cli("SCRIPT", "FLUSH")
    assert meter(it) == [0]

    server.restart()
    assert meter(it) == [0]


def test_many_scripts_and_commands_take_one_round_trip(clients, server):
    it = clients(server.url)
    # A script that the server does not know yet takes one round trip more for each.
    meter(it)
    server.cli("SET", "text", "x")
    before = int(server.cli("INFO", "stats").split("total_reads_processed:")[1].split()[0])

    replies = it.ask_many([(METER, [f"k{n}"], [n]) for n in range(50)])
    values = it.command_many([["GET", "text"], ["LPUSH", "text", "y"]])

    after = int(server.cli("INFO", "stats").split("total_reads_processed:")[1].split()[0])
    assert [reply.value[0] for reply in replies][::10] == [0, 10, 20, 30, 40]
    assert values[0] == b"x"
    assert isinstance(values[1], ErrorReply)
    # A read of the server takes what has come, which may be a part; and our own questions count.
    assert after - before < 20


def test_an_address_that_refuses_is_told_and_comes_back_by_itself(clients, server, caplog):
    it = clients(server.url)
    meter(it)
    caplog.clear()  # another test's server may have had this port, and not come back
    server.kill()

    for _ in range(5):
        with pytest.raises(Unavailable, match=str(server.port)):
            meter(it)
    server.start()
    wait_until(lambda: _answers(it), what="the client finds the server again")

    outages = [record for record in caplog.records if "does not answer" in record.message]
    returns = [record for record in caplog.records if "answers again" in record.message]
    assert (len(outages), len(returns)) == (1, 1)


def test_a_frozen_server_costs_the_timeout_and_no_more(clients, server):
    it = clients(server.url)
    meter(it)
    server.freeze()
    before = clock.monotonic()

    with pytest.raises(Unavailable, match="no answer within"):
        meter(it)

    # Thrice the timeout, on a machine that is busy with other tests.
    assert clock.monotonic() - before < 3 * 0.3 + 2
    server.thaw()
    wait_until(lambda: _answers(it), what="the client finds the server again")


def test_answers_are_never_mixed_up_after_a_lost_one(clients, server, proxy):
    between = proxy(server)
    it = clients(between.url)
    meter(it)
    between.drop_answers(1, match=b"EVALSHA")

    with pytest.raises(Unavailable):
        it.ask(METER, ["lost"], [1000])
    wait_until(lambda: _answers(it), what="the client is connected again")

    assert it.command("ECHO", "mine") == b"mine"


def test_fifty_threads_share_one_connection_and_each_gets_its_own_answer(clients, server):  # F99
    it = clients(server.url)
    wrong = []

    def ask(number):
        for count in range(20):
            text = f"{number}-{count}"
            if it.command("ECHO", text) != text.encode():
                wrong.append(text)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert _connections(server) == 1


def test_a_forked_child_connects_for_itself(clients, server):  # F28
    it = clients(server.url)
    meter(it)
    reader, writer = os.pipe()

    child = os.fork()
    if child == 0:
        os.write(writer, it.command("ECHO", "child"))
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reader, 100) == b"child"
    assert it.command("ECHO", "parent") == b"parent"
    os.close(reader)
    os.close(writer)


def test_connections_carry_a_name(clients, server):
    it = clients(server.url)
    meter(it)

    assert f"name=atomicity-{os.getpid()} " in server.cli("CLIENT", "LIST")


@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_a_majority_is_enough(clients, servers, fault):  # LOCK-10
    three = [servers() for _ in range(3)]
    it = clients(*(server.url for server in three))
    wait_until(lambda: _all_answer(it), what="all are connected")

    getattr(three[1], fault)()
    for _ in range(20):
        replies = ask_all(it)
        assert majority(replies), replies


def test_a_straggler_is_not_taken_for_an_outage(clients, servers, proxy, caplog):
    three = [servers() for _ in range(3)]
    slow = proxy(three[2])
    it = clients(three[0].url, three[1].url, slow.url)
    wait_until(lambda: _all_answer(it), what="all are connected")
    slow.delay(0.1)

    ask_all(it)
    wait_until(lambda: slow.connections, what="the straggler is there")
    # Longer than the timeout, in which nobody looks at what the straggler has answered.
    threading.Event().wait(0.5)
    ask_all(it)

    assert [record for record in caplog.records if "does not answer" in record.message] == []


def test_a_server_in_cluster_mode_is_refused(clients, servers):
    # Its bus listens 10,000 ports higher; Redis 6.2 cannot be told another.
    port = next(port for port in iter(free_port, None) if port < 55_000)
    cluster = servers(port=port, arguments=("--cluster-enabled", "yes"))
    it = clients(cluster.url)

    with pytest.raises(Unavailable, match="cluster mode"):
        meter(it)


def test_a_wrong_password_is_said_without_it(clients, servers):
    server = servers(arguments=("--requirepass", "right"))
    it = clients(f"redis://:wr0ng@127.0.0.1:{server.port}")

    with pytest.raises(Unavailable) as refused:
        meter(it)

    assert "wr0ng" not in str(refused.value)
    assert "password" in str(refused.value)


def _answers(clients):
    try:
        return meter(clients) is not None
    except Unavailable:
        return False


def _all_answer(clients):
    replies = clients.ask_each([[(METER, ["k"], [0])]] * clients.count, decided=lambda _: False)
    return all(isinstance(reply.value, list) for reply in replies)


def _connections(server):
    return server.cli("CLIENT", "LIST").count("name=atomicity-")


def test_where_no_thread_can_be_started_it_is_an_outage(clients, server, monkeypatch):
    it = clients(server.url)
    with monkeypatch.context() as patch:

        def refuse(*_):
            raise RuntimeError("can't start new thread")

        patch.setattr(threads, "start", refuse)
        with pytest.raises(Unavailable, match="no thread could be started"):
            meter(it)

    wait_until(lambda: _answers(it), what="it is connected to later")


def _answers(it):
    try:
        return meter(it) == [0]
    except Unavailable:
        return False


def test_an_address_that_hangs_while_it_is_connected_to_is_waited_for_once(clients, servers, proxy):
    # LOCK-10: looking a name up may take many seconds.
    three = [servers() for _ in range(3)]
    it = clients(*(server.url for server in three))
    hangs = threading.Event()

    def hang():
        hangs.wait(30)
        raise ConnectionError("no such name")

    it._exchange.servers[2].connect = hang
    ask_all(it)

    began = clock.monotonic()
    for _ in range(20):
        assert majority(ask_all(it))
    took = clock.monotonic() - began
    hangs.set()

    assert took < 20 * HELLO / 2


@pytest.mark.parametrize("greenlets", ["gevent", "eventlet"])
def test_greenlets_lock_on_several_addresses(servers, greenlets):
    # eventlet refuses a second one that waits for the same socket, and does so in the middle
    if importlib.util.find_spec(greenlets) is None:  # importing eventlet has every fork warn
        pytest.skip(f"{greenlets} is not installed")
    urls = [servers().url for _ in range(3)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.many_addresses", greenlets, *urls],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.splitlines()[-1:] == ["[] 300"], done.stdout + done.stderr

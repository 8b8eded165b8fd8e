import os
import signal
import socket
import subprocess
import sys
import threading

import psutil
import pytest
import redis

from celery_atomicity.testing import (
    Server,
    ServerError,
    dies_with_us,
    find_server,
    free_port,
    wait_until,
)

pytest_plugins = ["celery_atomicity.testing"]


@pytest.fixture
def client():
    """A factory of clients that neither retry nor wait for long."""
    made = []

    def connect(place, **options):
        made.append(redis.Redis.from_url(place.url, socket_timeout=0.5, retry=None, **options))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def test_server_answers_and_leaves_nothing_behind():
    with Server() as server:
        pid, directory = server.pid, server.directory
        assert server.cli("SET", "key", "value") == "OK"
        assert server.cli("EVAL", "return {1, 'x', {2}, false}", 0) == [1, "x", [2], None]

    assert not server.alive
    assert not directory.exists()
    with pytest.raises(ServerError, match="not running"):
        _ = server.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_fixture_for_users_is_a_running_server(arbiter):
    assert arbiter.cli("PING") == "PONG"


def test_server_with_a_password_has_it_in_its_url(servers, client):
    server = servers(arguments=["--requirepass", "p@ss/word"])

    assert client(server).ping()
    assert server.cli("PING") == "PONG"


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_persistent_server_keeps_what_it_acknowledged(servers, end):
    server = servers(persistent=True)
    port = server.port
    server.cli("SET", "key", "value")

    getattr(server, end)()
    assert not server.alive
    server.start()
    assert server.cli("GET", "key") == "value"
    server.restart(data=True)

    assert server.cli("GET", "key") == "value"
    assert server.port == port


def test_restart_without_data_forgets_everything(servers):
    server = servers(persistent=True)
    server.cli("SET", "key", "value")
    sha = server.cli("SCRIPT", "LOAD", "return 1")

    server.restart()

    assert server.cli("GET", "key") is None
    assert server.cli("SCRIPT", "EXISTS", sha) == [0]


def test_a_server_that_keeps_nothing_refuses_to_restart_with_data(server):
    with pytest.raises(ServerError, match="persistent=True"):
        server.restart(data=True)

    server.cli("SET", "key", "value")
    server.kill()
    server.start()
    assert server.cli("GET", "key") is None


def test_a_frozen_server_answers_only_after_the_thaw(server):
    server.freeze()

    assert server.alive
    with pytest.raises(TimeoutError):
        server.cli("PING", timeout=0.2)
    server.thaw()
    assert server.cli("PING") == "PONG"


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_frozen_server_can_be_ended(server, end):
    server.freeze()

    getattr(server, end)()

    assert not server.alive
    assert ("ready to exit" in server.log) == (end == "stop")


def test_a_server_that_does_not_start_shows_its_log():
    server = Server(arguments=["--no-such-option", "1"])

    with pytest.raises(ServerError, match="no-such-option"):
        server.start()
    server.close()


def test_a_server_outlives_the_thread_that_started_it(servers):
    started = []
    thread = threading.Thread(target=lambda: started.append(servers()))
    thread.start()
    thread.join()
    me = psutil.Process()
    wait_until(lambda: thread.native_id not in {each.id for each in me.threads()})

    # The kernel would have killed it by the time a new connection is answered.
    assert started[0].cli("PING") == "PONG"
    assert started[0].alive


def test_the_server_to_use_can_be_named(monkeypatch):
    monkeypatch.setenv("ATOMICITY_TEST_SERVER", str(find_server()))
    assert find_server().is_file()

    monkeypatch.setenv("ATOMICITY_TEST_SERVER", "/no/such/server")
    with pytest.raises(ServerError, match="/no/such/server"):
        find_server()


def test_without_any_server_the_error_names_the_remedy(monkeypatch):
    monkeypatch.delenv("ATOMICITY_TEST_SERVER", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ServerError, match=r"celery-atomicity\[server\]"):
        find_server()


def test_every_kind_of_server_runs_scripts(every_server):
    answer = every_server.cli("EVAL", "return redis.call('TIME')", 0)

    assert len(answer) == 2


def test_wait_until_answers_what_came_true_or_says_what_did_not():
    answers = iter([0, None, "there"])

    assert wait_until(lambda: next(answers)) == "there"
    with pytest.raises(AssertionError, match=r"the moon: not within 0.1 s"):
        wait_until(lambda: False, timeout=0.1, what="the moon")


def test_proxy_passes_everything_on(server, proxy, client):
    front = proxy(server)
    big = "x" * 1_000_000

    direct = client(front)
    direct.set("key", big)

    assert direct.get("key") == big.encode()
    assert front.connections == 1
    direct.close()
    wait_until(lambda: front.connections == 0)
    assert front.accepted == 1


def test_cut_closes_connections_and_refuses_until_healed(server, proxy, client):
    front = proxy(server)
    direct = client(front)
    direct.ping()

    front.cut()

    wait_until(lambda: front.connections == 0)
    with pytest.raises(redis.ConnectionError):
        direct.ping()
    with pytest.raises(redis.ConnectionError, match="refused"):
        client(front).ping()
    front.heal()
    assert direct.ping()


def test_hang_accepts_and_never_answers_nor_passes_anything_on(server, proxy, client):
    front = proxy(server)
    before, idle = client(front), client(front)
    before.ping()
    idle.ping()

    front.hang()

    for each in (before, client(front)):
        with pytest.raises(redis.TimeoutError):
            each.set("key", "value")
    assert server.cli("GET", "key") is None
    front.heal()
    assert idle.ping()
    assert before.ping()


def test_a_link_that_lost_a_request_is_closed_when_healed(server, proxy):
    front = proxy(server)
    front.hang()
    # A client that goes on waiting must not read a later answer as that of the lost request.
    with socket.create_connection(("127.0.0.1", front.port), timeout=5) as raw:
        raw.sendall(b"PING\r\n")
        wait_until(lambda: any(link.swallowed for link in list(front._links)))

        front.heal()

        assert raw.recv(10) == b""


def test_hang_needs_no_server_behind_it(server, proxy, client):
    front = proxy(server)
    server.kill()
    front.hang()

    with pytest.raises(redis.TimeoutError):
        client(front).ping()


def test_delay_holds_requests_back_until_the_next_switch(server, proxy, client):
    front = proxy(server)
    direct = client(front)
    direct.ping()

    front.delay(3600)
    with pytest.raises(redis.TimeoutError):
        direct.set("key", "value")
    # Still held: the next switch lets it go on, as a network does that recovers.
    assert server.cli("GET", "key") is None
    waiting = client(front)
    thread = threading.Thread(target=lambda: waiting.set("late", "value"))
    thread.start()
    wait_until(lambda: front.connections >= 2)
    front.heal()
    thread.join()

    assert server.cli("GET", "late") == "value"


def test_a_short_delay_only_delays(server, proxy, client):
    front = proxy(server)
    direct = client(front)
    front.delay(0.05)

    assert direct.set("key", "value")
    assert direct.get("key") == b"value"


def test_drop_answers_executes_the_request_and_closes_its_connection(server, proxy, client):
    front = proxy(server)
    direct, other = client(front), client(front)
    direct.ping()
    other.ping()

    front.drop_answers(1, match=b"INCR")
    assert direct.ping()
    with pytest.raises(redis.ConnectionError):
        direct.incr("counter")

    assert server.cli("GET", "counter") == "1"
    assert front.left_to_drop == 0
    assert other.incr("counter") == 2
    assert direct.incr("counter") == 3


def test_drop_answers_counts_requests_over_all_connections(server, proxy, client):
    front = proxy(server)
    front.drop_answers(2, match=b"INCR")

    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            client(front).incr("counter")
    assert client(front).incr("counter") == 3


def test_proxy_follows_a_server_that_restarts(server, proxy, client):
    front = proxy(server)
    direct = client(front)
    direct.ping()

    server.restart()

    wait_until(lambda: front.connections == 0)
    assert direct.ping()


def test_groups_are_unique(group, request):
    assert group.startswith("test_groups_are_unique-")
    assert len(group) <= 70


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_server_by_hand_runs_until_it_is_ended_and_takes_no_port_of_another(end):
    port = str(free_port())
    command = [sys.executable, "-m", "celery_atomicity.testing", "--port", port]
    with subprocess.Popen(
        [*dies_with_us(), *command], stdout=subprocess.PIPE, text=True
    ) as running:
        assert f" at redis://127.0.0.1:{port}/0, " in running.stdout.readline()
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        running.send_signal(end)

    assert (second.returncode, running.returncode) == (1, 0)
    assert f"port {port} is taken" in second.stderr
    with pytest.raises(OSError, match=r".*"):
        socket.create_connection(("127.0.0.1", int(port)), timeout=1)

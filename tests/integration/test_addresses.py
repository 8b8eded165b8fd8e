"""Every form of an address, on a real server: whatever works as a broker URL works as ours."""

import os
import socket
from urllib.parse import quote

import pytest
from kombu import Connection
from support import needs

from celery_atomicity import Unavailable
from celery_atomicity.connection import Clients, Script
from celery_atomicity.settings import Settings
from celery_atomicity.testing import Server

METER = Script("meter")
AWKWARD = ["#", "%", "@", ":", "/", "?", "+", " ", "ü", "%41", "a#%@:/?+ üb", "?db=3@x/5;,"]
PASSWORD = "o#%@:/?+ üo"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with a password and a unix socket."""
    path = tmp_path_factory.mktemp("socket") / "a@b?.sock"
    with Server(arguments=("--requirepass", PASSWORD, "--unixsocket", str(path))) as started:
        started.socket = str(path)
        yield started


@pytest.fixture
def ask():
    """A function: the debt of a key that has none, asked of what a configuration names."""
    made = []

    def asked(url=None, **conf):
        if url is not None:
            conf["atomicity_redis"] = url
        made.append(Clients(Settings.read(conf, {})))
        return made[-1].ask(METER, ["k"], [0]).value

    yield asked
    for one in made:
        one.close()


def works_as_a_broker(url):
    with Connection(url, connect_timeout=5) as connection:
        return connection.default_channel.client.ping()


# F96
@pytest.mark.parametrize("password", AWKWARD)
def test_any_user_with_any_password_that_celery_can_log_in_with(server, ask, password):
    # The server itself takes no spaces in the name of a user.
    user = f"sam{password}".replace(" ", "")
    server.cli("ACL", "SETUSER", user, "on", f">{password}", "~*", "&*", "+@all")
    url = f"redis://{quote(user, safe='')}:{quote(password, safe='')}@localhost:{server.port}/0"

    assert works_as_a_broker(url)
    assert ask(url) == [0]


@pytest.mark.parametrize("user", ["", "default"])
def test_a_password_without_a_user(server, ask, user):  # F96
    url = f"redis://{user}:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/0"

    assert works_as_a_broker(url)
    assert ask(url) == [0]


@pytest.mark.parametrize("user", ["", "default"])
def test_a_wrong_password_is_said_and_not_shown(server, ask, user, caplog):
    with pytest.raises(Unavailable, match=r"(?i)password") as refused:
        ask(f"redis://{user}:wr0ng@127.0.0.1:{server.port}/0")

    assert "wr0ng" not in str(refused.value) + repr(refused.value.__cause__) + caplog.text


def test_a_password_that_is_wanted_and_not_given_is_said(server, ask):
    with pytest.raises(Unavailable, match=r"(?i)authentication required"):
        ask(f"redis://127.0.0.1:{server.port}/0")


@pytest.mark.parametrize("database", ["/3", "?db=3", "?virtual_host=3", "/?db=3"])
def test_a_database_in_the_path_or_the_query(server, ask, database, group):
    server_url = f"redis://:{quote(PASSWORD, safe='')}@localhost:{server.port}"
    clients = Clients(Settings.read({"atomicity_redis": server_url + database}, {}))
    clients.command("SET", group, "x")
    clients.close()

    assert group in _keys(server, 3)


# F96
@pytest.mark.parametrize("scheme", ["unix", "socket", "redis+socket"])
def test_a_unix_socket(server, ask, scheme, group):
    place = quote(server.socket)
    url = f"{scheme}://:{quote(PASSWORD, safe='')}@{place}?virtual_host=5"
    if scheme == "redis+socket":
        assert works_as_a_broker(url)
    clients = Clients(Settings.read({"atomicity_redis": url}, {}))
    clients.command("SET", group, "x")
    clients.close()

    assert group in _keys(server, 5)


def test_a_unix_socket_that_is_not_there_is_said(server, ask):
    with pytest.raises(Unavailable, match=r"unix:///nowhere/x\.sock"):
        ask("unix:///nowhere/x.sock")


def test_ipv6(server, ask):  # F96
    try:
        socket.create_connection(("::1", server.port), timeout=5).close()
    except OSError:
        needs.missing("IPv6", "a loopback with ::1")
    url = f"redis://:{quote(PASSWORD, safe='')}@[::1]:{server.port}/0"

    assert ask(url) == [0]


def test_each_connection_says_whose_it_is(server, ask):
    ask(f"redis://:{quote(PASSWORD, safe='')}@localhost:{server.port}/0")

    assert f" name=atomicity-{os.getpid()} " in server.cli("CLIENT", "LIST")


# F98
def test_options_that_only_kombu_knows_are_left_to_it(server, ask):
    url = f"redis://:{quote(PASSWORD, safe='')}@localhost:{server.port}/0"
    options = {
        "visibility_timeout": 3600,
        "queue_order_strategy": "priority",
        "fanout_prefix": True,
        "fanout_patterns": True,
        "global_keyprefix": "shop_",
        "sep": ":",
        "priority_steps": [0, 3, 6, 9],
        "max_connections": 3,
        "socket_timeout": 0.0001,
        "socket_keepalive": True,
        "health_check_interval": 25,
        "retry_on_timeout": True,
        "unacked_restore_limit": 4,
        "master_name": "main",
        "sentinel_kwargs": {"password": "s"},
        "client_name": "kombu",
    }

    assert ask(broker_url=url, broker_transport_options=options) == [0]
    assert ask(result_backend=url, result_backend_transport_options=options) == [0]
    # Our own setting wins, and the broker need not be a Redis.
    assert ask(url, broker_url="amqp://nowhere", broker_transport_options=options) == [0]
    assert ask(url, broker_url="sqs://", result_backend="redis://nowhere:1/0") == [0]


def _keys(server, database):
    clients = Clients(
        Settings.read(
            {
                "atomicity_redis": f"redis://:{quote(PASSWORD, safe='')}@localhost:{server.port}"
                f"/{database}"
            },
            {},
        )
    )
    try:
        return [name.decode() for name in clients.command("KEYS", "*")]
    finally:
        clients.close()

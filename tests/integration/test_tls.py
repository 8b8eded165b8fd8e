"""Servers that speak TLS, as Celery's users write them."""

import ssl
import threading

import pytest
from support import needs
from support.tls import Authority, TlsServer, tls_binary

from celery_atomicity import LockTimeout, Unavailable, clock
from celery_atomicity.atom import Atom
from celery_atomicity.connection import Clients, Script
from celery_atomicity.settings import Settings
from celery_atomicity.testing import wait_until

METER = Script("meter")
TIMEOUT = 2.0


@pytest.fixture(scope="module")
def authority():
    if tls_binary() is None:
        needs.missing("a server with TLS", "Debian's redis-server has it")
    return Authority()


@pytest.fixture(scope="module")
def server(authority):
    with TlsServer(authority) as started:
        yield started


@pytest.fixture(scope="module")
def strict(authority):
    """A server that wants to see a certificate."""
    with TlsServer(authority, client_certificate=True) as started:
        yield started


@pytest.fixture
def settings():
    return lambda **conf: Settings.read({"atomicity_timeout": TIMEOUT, **conf}, {})


@pytest.fixture
def ask(settings):
    """A function: asks what a configuration names, and answers the debt of a key that has none."""
    made = []

    def asked(url=None, **conf):
        if url is not None:
            conf["atomicity_redis"] = url
        made.append(Clients(settings(**conf)))
        return made[-1].ask(METER, ["k"], [0]).value

    yield asked
    for one in made:
        one.close()


@pytest.mark.parametrize("written", ["CERT_REQUIRED", "required", "CERT_OPTIONAL", "optional"])
def test_a_server_is_believed_whom_the_authority_knows(server, authority, ask, written):
    assert ask(server.tls_url(ssl_cert_reqs=written, **authority.trusted)) == [0]


@pytest.mark.parametrize("written", ["CERT_NONE", "none", ssl.CERT_NONE, None, 0])
@pytest.mark.parametrize("where", ["backend", "broker"])
def test_a_server_is_not_checked_where_that_is_wished(server, ask, where, written):
    assert ask(**_beside(server, where, {"ssl_cert_reqs": written})) == [0]


@pytest.mark.parametrize("written", ["CERT_REQUIRED", "required", ssl.CERT_REQUIRED])
@pytest.mark.parametrize("where", ["backend", "broker"])
def test_the_options_beside_a_url_hold_for_it(server, authority, ask, where, written):
    options = {"ssl_cert_reqs": written, **authority.trusted}

    assert ask(**_beside(server, where, options)) == [0]


@pytest.mark.parametrize(
    "options",
    [
        {"ssl_cert_reqs": "CERT_REQUIRED"},
        {"ssl_cert_reqs": "required", "ssl_check_hostname": False},
        {},
    ],
)
def test_an_authority_that_did_not_sign_it_is_refused_with_a_clear_error(server, ask, options):
    other = Authority()

    with pytest.raises(Unavailable, match=r"rediss://localhost.*certificate verify failed"):
        ask(server.tls_url(**options, **other.trusted))


def test_without_an_authority_a_server_of_our_own_is_refused(server, ask):
    with pytest.raises(Unavailable, match="certificate verify failed"):
        ask(server.tls_url())


def test_another_name_than_that_of_the_certificate_is_refused(ask):
    authority = Authority("redis.example")
    with TlsServer(authority) as server:
        url = server.tls_url(ssl_check_hostname="true", **authority.trusted)

        with pytest.raises(Unavailable, match="not valid for 'localhost'"):
            ask(url)
        assert ask(url.replace("true", "false")) == [0]


def test_a_certificate_is_shown_to_a_server_that_wants_one(strict, authority, ask):
    options = {**authority.trusted, **authority.client}

    assert ask(strict.tls_url(**options)) == [0]
    assert ask(**_beside(strict, "backend", options)) == [0]


def test_a_server_that_wants_a_certificate_and_sees_none_is_a_clear_error(strict, authority, ask):
    with pytest.raises(Unavailable) as refused:
        ask(strict.tls_url(**authority.trusted))

    # By TLS 1.3 a client is told only after the handshake, and may see no more than an end.
    assert "ssl_certfile" in str(refused.value)


def test_a_file_that_is_missing_is_named(server, authority, ask):
    with pytest.raises(Unavailable, match=r"ssl_certfile is '/nowhere/c\.pem'"):
        ask(server.tls_url(ssl_certfile="/nowhere/c.pem", ssl_keyfile="/nowhere/k.pem"))


def test_tls_spoken_to_a_plain_port_and_the_reverse_end_in_time(server, ask):
    plain = server.tls_url().replace(str(server.tls_port), str(server.port))
    for url in (plain, server.tls_url().replace("rediss", "redis")):
        began = clock.monotonic()

        with pytest.raises(Unavailable, match=r"redis.*://localhost"):
            ask(url)

        assert clock.monotonic() - began < 3 * TIMEOUT + 2


@pytest.mark.parametrize("count", [1, 3])
def test_everything_goes_over_tls(authority, settings, group, count):
    # The plain port is for the tests: nobody of ours is seen there.
    started = [TlsServer(authority) for _ in range(count)]
    try:
        for each in started:
            each.start()
        urls = [each.tls_url(**authority.trusted) for each in started]
        atom = Atom(
            group,
            settings=settings(
                atomicity_redis=urls, atomicity_interval=0.2, atomicity_restart_grace=0
            ),
        )
        with atom:
            fences = []
            with atom.lock("a") as lease:
                fences.append(lease.fence)
                with pytest.raises(LockTimeout, match="held by"):
                    _ask_aside(atom, "a", wait=0)
                waiter = threading.Thread(
                    target=lambda: fences.append(_ask_aside(atom, "a", wait=None))
                )
                waiter.start()
                wait_until(lambda: started[0].cli("ZCARD", f"atom:{group}:line:a") == 1)
            waiter.join(10)
            wait_until(lambda: atom.slots(4) == [0, 1, 2, 3])
            many = [f"k{number}" for number in range(4000)]

            assert fences == sorted(fences)
            assert len(fences) == 2
            # Answers of more than one TLS record.
            assert atom.meter(many, [1e6] * 4000) == pytest.approx([1e6] * 4000, abs=1e5)
            for each in started:
                ours = [line for line in _clients(each) if "name=atomicity-" in line]
                assert ours
                assert all(f"laddr=127.0.0.1:{each.tls_port}" in line for line in ours)
    finally:
        for each in started:
            each.close()


def test_fifty_threads_share_one_tls_connection(server, authority, settings):  # F99
    clients = Clients(settings(atomicity_redis=server.tls_url(**authority.trusted)))
    wrong = []

    def ask(number):
        for count in range(20):
            text = f"{number}-{count}" * 2_000
            if clients.command("ECHO", text) != text.encode():
                wrong.append(text)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    clients.close()


def _ask_aside(atom, key, wait):
    """Ask for *key* as another holder would; the fence."""
    found = []

    def ask():
        try:
            with atom.lock(key, wait=wait) as lease:
                found.append(lease.fence)
        except LockTimeout as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _beside(server, where, options):
    """*options* of TLS as they stand beside the URL of the result backend, or of the broker."""
    if where == "backend":
        return {"result_backend": server.tls_url(), "redis_backend_use_ssl": options}
    plain = server.tls_url().replace("rediss", "redis")
    return {"broker_url": plain, "broker_use_ssl": options}


def _clients(server):
    return server.cli("CLIENT", "LIST").splitlines()

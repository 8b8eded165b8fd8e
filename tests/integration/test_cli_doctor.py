"""``celery atomicity doctor``, against servers that are well and such as are not."""

import json

import pytest
from support import needs
from support.cli import Apps, run
from support.sentinels import Site
from support.tls import Authority, TlsServer, tls_binary

from celery_atomicity import Atomicity
from celery_atomicity.checkup.examine import TRIAL
from celery_atomicity.connection import Script
from celery_atomicity.testing import free_port, wait_until

PASSWORD = "s3cret/:@ pw"


@pytest.fixture
def apps():
    made = Apps()
    yield made
    made.close()


def told(result):
    """The findings that are not ok, as pairs of level and check, each once."""
    findings = json.loads(result.stdout)["findings"]
    return {(one["level"], one["check"]) for one in findings if one["level"] != "ok"}


def doctor(app):
    return run(app, "doctor", "--json")


def test_a_healthy_arbiter_has_no_faults(apps, server):
    app = apps(server.url)
    Atomicity.of(app).atom().meter(["sam"], [1])
    server.cli("CONFIG", "SET", "maxmemory", "100mb")

    result = run(app, "doctor")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("\nno faults, no warnings\n")
    assert "our user may use all commands that are needed" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_it_leaves_nothing_behind(apps, server):
    doctor(apps(server.url))

    assert server.cli("KEYS", "*") == []


def test_a_fault_has_its_colour_on_a_terminal_only(apps):
    app = apps(atomicity_redis=f"redis://127.0.0.1:{free_port()}")

    assert "\x1b" not in run(app, "doctor").stdout
    assert "\x1b" not in run(app, "doctor", colours=True, no_color=True).stdout
    assert "\x1b[31m  fault" in run(app, "doctor", colours=True).stdout


def test_every_kind_of_server_is_understood(apps, every_server):
    result = doctor(apps(every_server.url))

    assert result.exit_code == 0, result.output
    assert told(result) == {("note", "majority"), ("note", "persistence"), ("note", "restart")}


def test_an_address_that_is_down_is_a_fault(apps):
    app = apps(atomicity_redis=f"redis://:{'s3cret'}@127.0.0.1:{free_port()}")

    result = run(app, "doctor")

    assert result.exit_code == 3
    assert "Connection refused" in " ".join(result.stdout.split())
    assert "-> start the server" in result.stdout
    assert "s3cret" not in result.output


# F39
def test_one_of_three_that_hangs_is_a_fault_and_the_others_are_judged(apps, servers):
    three = [servers() for _ in range(3)]
    app = apps(atomicity_redis=[one.url for one in three], atomicity_timeout=0.5)
    three[1].freeze()

    result = doctor(app)

    three[1].thaw()
    assert result.exit_code == 3
    assert [check for level, check in told(result) if level == "fault"] == ["reachable"]
    findings = json.loads(result.stdout)["findings"]
    assert sum(one["check"] == "rights" for one in findings) == 2


def test_a_wrong_password_is_a_fault_and_is_not_shown(apps, servers):
    server = servers(arguments=["--requirepass", PASSWORD])
    app = apps(atomicity_redis=f"redis://:wr0ng@127.0.0.1:{server.port}")

    looking = (["locks"], ["status", "--timeout", "0.1"], ["meter", "x"])
    for command in (["doctor"], ["doctor", "--json"], *looking):
        result = run(app, *command)

        assert result.exit_code == (3 if command[0] == "doctor" else 1)
        assert "wr0ng" not in result.output
        assert PASSWORD not in result.output
    assert "put the right user and password" in run(app, "doctor").stdout


def test_the_right_password_is_not_shown_either(apps, servers):
    server = servers(arguments=["--requirepass", PASSWORD])

    result = doctor(apps(atomicity_redis=server.url))

    assert result.exit_code == 0, result.output
    assert "s3cret" not in result.output


# F60
def test_a_user_without_rights_is_told_which_are_missing(apps, server):
    rights = [
        "on",
        ">pw",
        "~atom:other:*",
        "&atom:*",
        "-@all",
        "+ping",
        "+eval",
        "+get",
        "+set",
        "+client|setname",
    ]
    server.cli("ACL", "SETUSER", "low", *rights)
    app = apps(atomicity_redis=f"redis://low:pw@127.0.0.1:{server.port}")

    result = doctor(app)

    assert result.exit_code == 3
    assert {("fault", "rights"), ("warning", "rights"), ("warning", "info")} <= told(result)
    [fault] = [one for one in json.loads(result.stdout)["findings"] if one["level"] == "fault"]
    assert "EVALSHA" in fault["said"]
    assert "locks" in fault["said"]
    assert run(app, "locks").exit_code == 1
    assert "no permissions" in run(app, "locks").stderr


# F60
def test_a_user_who_may_not_look_is_told_so(apps, server):
    server.cli("ACL", "SETUSER", "low", "on", ">pw", "~atom:*", "&atom:*", "+@all", "-scan")
    app = apps(atomicity_redis=f"redis://low:pw@127.0.0.1:{server.port}")

    assert ("warning", "rights") in told(doctor(app))
    for command in (["locks"], ["meter", "sam"], ["status", "--timeout", "0.1"]):
        result = run(app, *command)

        assert result.exit_code == 1, result.output
        assert "no permissions to run the 'scan' command" in result.stderr


# F60
def test_without_info_config_and_acl_the_rest_is_judged(apps, server):
    rights = ["on", ">pw", "~atom:*", "&atom:*", "+@all", "-info", "-config", "-acl"]
    server.cli("ACL", "SETUSER", "low", *rights)

    result = doctor(apps(atomicity_redis=f"redis://low:pw@127.0.0.1:{server.port}"))

    assert result.exit_code == 0, result.output
    assert told(result) == {("warning", "info"), ("note", "majority")}


# F60
def test_the_trial_tries_whatever_the_scripts_do(server):
    names = ["acquire", "arrive", "release", "renew", "raise", "register", "meter", "rate"]
    names += ["beat_admit", "beat_claim", "beat_load", "beat_settle"]
    called = {
        line.split("'")[1]
        for name in names
        for line in Script(name).source.replace("redis.pcall(", "redis.call(").split("redis.call(")
        if line.startswith("'")
    }

    tried = {part.split("'")[1] for part in TRIAL.source.split("try(")[1:] if "'" in part}

    assert len(called) > 15
    # INFO is asked of a server that has answered it before, and done without elsewhere.
    assert called - {"INFO"} <= tried
    assert server.cli("EVAL", TRIAL.source, 1, "atom:x:lock:y", "atom:x:mail:y") == []
    assert server.cli("KEYS", "*") == []


def test_a_replica_is_a_fault(apps, servers):
    master = servers()
    replica = servers(arguments=["--replicaof", "127.0.0.1", str(master.port)])

    result = doctor(apps(atomicity_redis=replica.url))

    assert result.exit_code == 3
    assert ("fault", "role") in told(result)


def test_cluster_mode_is_a_fault(apps, servers):
    # Its own choice of a port for the cluster is beyond the last one, for many a port.
    options = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]

    result = doctor(apps(atomicity_redis=servers(arguments=options).url))

    assert result.exit_code == 3
    assert ("fault", "cluster") in told(result)


def test_eviction_and_a_full_memory_are_faults(apps, server):
    app = apps(server.url)
    server.cli("CONFIG", "SET", "maxmemory", "1mb")
    assert ("fault", "writes") in told(doctor(app))

    server.cli("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
    assert ("fault", "eviction") in told(doctor(app))


# F41
def test_one_server_under_several_addresses_is_a_fault(apps, server, proxy):
    app = apps(atomicity_redis=[server.url, proxy(server).url, proxy(server).url])

    result = doctor(app)

    assert result.exit_code == 3
    assert ("fault", "twins") in told(result)


# LOCK-11
def test_a_restart_is_seen(apps, server):
    app = apps(server.url, atomicity_restart_grace=60)
    Atomicity.of(app).atom().meter(["sam"], [1])

    assert ("note", "restart") in told(doctor(app))
    assert "it only renews locks" in " ".join(run(app, "doctor").stdout.split())
    wait_until(lambda: server.alive, what="it runs")


def test_settings_that_do_not_fit_are_warnings_and_no_faults(apps, server):
    app = apps(
        server.url,
        atomicity_interval=1.0,
        atomicity_restart_grace=0,
        broker_transport_options={"visibility_timeout": 20},
    )

    result = doctor(app)

    assert result.exit_code == 0
    warnings = {check for level, check in told(result) if level == "warning"}
    assert warnings == {"interval", "grace", "persistence", "visibility"}


def test_where_nothing_is_configured_it_exits_with_2(apps):
    assert run(apps(), "doctor").exit_code == 2
    assert run(apps(install=False), "doctor").exit_code == 2
    assert "set atomicity_redis" in run(apps(), "doctor").stderr


class TestTls:
    @pytest.fixture
    def authority(self):
        if tls_binary() is None:
            needs.missing("a server with TLS", "Debian's redis-server has it")
        return Authority()

    @pytest.fixture
    def tls_server(self, authority):
        with TlsServer(authority) as server:
            yield server

    def test_a_server_with_tls_is_judged_like_any_other(self, apps, authority, tls_server):
        result = doctor(apps(atomicity_redis=tls_server.tls_url(**authority.trusted)))

        assert result.exit_code == 0, result.output
        assert ("warning", "info") not in told(result)

    def test_a_certificate_that_is_not_believed_is_a_fault(self, apps, tls_server):
        app = apps(atomicity_redis=tls_server.tls_url(**Authority().trusted))

        result = run(app, "doctor")

        assert result.exit_code == 3
        assert "look at ssl_ca_certs" in " ".join(result.stdout.split())


def test_sentinels_are_asked_for_the_master_of_today(apps):
    with Site() as site:
        app = apps(atomicity_redis=site.url.replace(";sentinel://", ","))
        # One of its two sentinels is down for good.
        assert doctor(app).exit_code == 0
        assert ("warning", "sentinels") in told(doctor(app))

        site.master.kill()

        assert doctor(app).exit_code == 3
        wait_until(lambda: doctor(app).exit_code == 0, 60, what="the new master is well")

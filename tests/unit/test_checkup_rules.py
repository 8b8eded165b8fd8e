"""What facts of an arbiter mean, apart from finding them out."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from celery_atomicity.checkup import BrokerFacts, Facts, Level, ServerFacts, judge
from celery_atomicity.checkup.facts import BEATS
from celery_atomicity.settings import Settings

ROOT = Path(__file__).parents[2]

INFO = {
    "redis_version": "7.2.4",
    "redis_mode": "standalone",
    "role": "master",
    "run_id": "abc",
    "uptime_in_seconds": "7200",
    "loading": "0",
    "maxmemory": "0",
    "maxmemory_policy": "noeviction",
    "used_memory": "1000000",
    "aof_enabled": "0",
    "connected_clients": "12",
    "maxclients": "10000",
    "rejected_connections": "0",
}
NOW = 1_700_000_000.0
HEALTHY = ServerFacts(
    "redis://one:6379",
    round_trip=0.0002,
    clock=0.0,
    clock_error=0.0001,
    now=NOW,
    info=INFO,
    config={"save": "3600 1", "appendfsync": "everysec"},
    user="default",
    marker={"run": "abc", "since": str(int((NOW - 7200) * 1000))},
)
NOPERM = "NOPERM this user has no permissions to run the 'x' command"


def settings(**values):
    return Settings.read({f"atomicity_{name}": value for name, value in values.items()}, {})


def server(address="redis://one:6379", info=None, **facts):
    run = {"run_id": address} if address != HEALTHY.address else {}
    return replace(HEALTHY, address=address, info=INFO | run | (info or {}), **facts)


def findings(*servers, broker=None, **values):
    return judge(Facts(settings(**values), servers or (HEALTHY,), broker or BrokerFacts()))


def found(check, *servers, **given):
    """The findings of one rule that are not merely ok."""
    return [
        (one.level, one.said)
        for one in findings(*servers, **given)
        if one.check == check and one.level is not Level.OK
    ]


def level_of(check, *servers, **given):
    [(level, _)] = found(check, *servers, **given)
    return level


def test_of_a_healthy_server_nothing_is_wrong():
    worst = {one.level for one in findings()}

    assert worst == {Level.OK, Level.NOTE}


def test_whatever_is_wrong_has_a_remedy():
    bad = [
        server(error="Connection refused", round_trip=None),
        server("redis://two:1", {"role": "slave"}),
        server("redis://three:1", {"maxmemory_policy": "allkeys-lru", "maxmemory": "10"}),
    ]

    for one in findings(*bad, interval=1.0, restart_grace=0):
        assert one.remedy or one.level in (Level.OK, Level.NOTE), one


def checks():
    """The name of every rule, out of what makes a finding of it."""
    for path in (ROOT / "celery_atomicity/checkup").glob("*_rules.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                yield node.args[2].value


def test_every_rule_is_in_the_docs():
    page = (ROOT / "docs/operations.md").read_text()

    assert len(set(checks())) > 15
    assert [check for check in sorted(set(checks())) if f"| `{check}` |" not in page] == []


class TestServer:
    @pytest.mark.parametrize(
        ("error", "remedy"),
        [
            ("Error 111 connecting to one:6379. Connection refused.", "start the server"),
            ("invalid username-password pair or user is disabled", "right user and password"),
            ("Authentication required", "put a password into the URL"),
            ("Error -2 connecting to one:6379. Name or service not known.", "host's name"),
            ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "ssl_ca_certs"),
            ("no answer within 1 s", "see that it runs"),
            (NOPERM, "docs/security.md"),
        ],
    )
    def test_one_that_cannot_be_used_is_a_fault(self, error, remedy):
        facts = ServerFacts("redis://one:6379", error=error)

        [fault] = [one for one in findings(facts) if one.check == "reachable"]

        assert fault.level is Level.FAULT
        assert error.rstrip(".") in fault.said
        assert remedy in fault.remedy
        # Nothing else is known of it.
        assert [one.check for one in findings(facts) if one.where == facts.address] == ["reachable"]

    def test_one_that_stops_answering_halfway_is_a_fault(self):
        assert level_of("reachable", server(error="no answer within 1 s")) is Level.FAULT

    def test_slow_is_a_quarter_of_the_timeout(self):
        assert found("latency", server(round_trip=0.24)) == []
        assert level_of("latency", server(round_trip=0.26)) is Level.WARNING
        assert found("latency", server(round_trip=0.26), timeout=2.0) == []

    def test_sentinels_that_cannot_be_asked_are_a_warning(self):
        [(level, said)] = found("sentinels", server(silent_sentinels={"two:26379": "refused"}))

        assert level is Level.WARNING
        assert "1 cannot be asked (two:26379: refused)" in said

    @pytest.mark.parametrize(
        ("info", "level"),
        [
            ({"redis_version": "6.0.16"}, Level.FAULT),
            ({"redis_version": "6.2.0"}, None),
            ({"redis_version": "7.2.4", "valkey_version": "9.0.1"}, None),
            ({"redis_version": ""}, Level.FAULT),
            ({"redis_version": "255.255.255"}, None),
        ],
    )
    def test_an_old_version_is_a_fault(self, info, level):
        levels = [one for one, _ in found("version", server(info=info))]

        assert levels == [level] * (level is not None)

    def test_a_replica_is_a_fault_that_names_its_master(self):
        info = {"role": "slave", "master_host": "two", "master_port": "6380"}

        [(level, said)] = found("role", server(info=info))

        assert level is Level.FAULT
        assert "two:6380" in said

    @pytest.mark.parametrize("name", ["redis_mode", "server_mode"])
    def test_cluster_mode_is_a_fault(self, name):
        info = {key: value for key, value in INFO.items() if key != "redis_mode"}

        facts = replace(HEALTHY, info=info | {name: "cluster"})

        assert level_of("cluster", facts) is Level.FAULT

    def test_of_an_unfit_one_nothing_else_is_said(self):
        info = {"role": "slave", "maxmemory_policy": "allkeys-lru", "maxmemory": "10"}

        assert found("eviction", server(info=info, failed={"SET": "READONLY no"})) == []

    def test_loading_is_a_fault(self):
        assert level_of("loading", server(info={"loading": "1"})) is Level.FAULT

    @pytest.mark.parametrize(
        ("policy", "most", "level"),
        [
            ("noeviction", "100000000", None),
            ("allkeys-lru", "100000000", Level.FAULT),
            ("volatile-ttl", "100000000", Level.FAULT),
            ("allkeys-lru", "0", Level.WARNING),
        ],
    )
    def test_eviction_breaks_locks(self, policy, most, level):
        info = {"maxmemory_policy": policy, "maxmemory": most, "evicted_keys": "7"}

        levels = [one for one, _ in found("eviction", server(info=info))]

        assert levels == [level] * (level is not None)

    def test_a_memory_that_is_nearly_full_is_a_warning(self):
        assert found("memory", server(info={"maxmemory": "1200000"})) == []
        assert level_of("memory", server(info={"maxmemory": "1100000"})) is Level.WARNING

    @pytest.mark.parametrize(
        ("info", "config", "said"),
        [
            ({"aof_enabled": "0"}, {"save": ""}, "it is empty"),
            ({"aof_enabled": "0"}, {"save": "60 1"}, "snapshots"),
            ({"aof_enabled": "1"}, {"save": "", "appendfsync": "everysec"}, "the last second"),
            ({"aof_enabled": "1"}, None, "the last second"),
            ({"aof_enabled": "0"}, None, "may not ask (CONFIG GET)"),
        ],
    )
    def test_what_persistence_means_is_said(self, info, config, said):
        [(level, text)] = found("persistence", server(info=info, config=config))

        assert level is Level.NOTE
        assert said in text
        # Without the grace, it is what locks rest on.
        facts = server(info=info, config=config)
        assert level_of("persistence", facts, restart_grace=0) is Level.WARNING

    def test_one_that_loses_nothing_is_well(self):
        facts = server(info={"aof_enabled": "1"}, config={"appendfsync": "always"})

        assert found("persistence", facts, restart_grace=0) == []

    def test_connections_that_run_out_are_a_warning(self):
        assert found("connections", server(info={"connected_clients": "8000"})) == []
        assert level_of("connections", server(info={"connected_clients": "8001"})) is Level.WARNING
        assert level_of("connections", server(info={"rejected_connections": "1"})) is Level.WARNING
        # Redis 6.2 does not say how many there may be.
        assert found("connections", server(info={"maxclients": ""})) == []

    def test_a_restart_that_nobody_has_noticed_yet_is_said(self):
        [(level, said)] = found("restart", server(marker={"run": "old", "since": "0"}))

        assert level is Level.NOTE
        assert "whoever connects next notices" in said

    def test_a_restart_that_is_sat_out_is_said_with_what_is_left(self):
        marker = {"run": "abc", "since": str(int((NOW - 4) * 1000))}

        [(level, said)] = found("restart", server(marker=marker))

        assert level is Level.NOTE
        assert "for 6.0 s more" in said
        assert found("restart", server(marker=marker), restart_grace=4) == []

    def test_no_marker_is_no_fault(self):
        assert level_of("restart", server(marker={})) is Level.NOTE

    # F60
    def test_without_info_one_warning_says_so(self):
        facts = replace(HEALTHY, info=None, config=None, user="")

        said = [(one.check, one.level) for one in findings(facts) if one.where == facts.address]

        assert said == [
            ("latency", Level.OK),
            ("info", Level.WARNING),
            ("rights", Level.OK),
        ]

    # F60
    def test_commands_that_are_refused_are_named(self):
        failed = {
            "SET": "NOPERM no",
            "DEL": "ERR The user executing the script can't run this command or subcommand",
            "ZADD": "ERR unknown command 'ZADD'",
            "ZSCORE": "WRONGTYPE that follows",
        }

        [(level, said)] = found("rights", server(failed=failed, failed_keys={"locks": NOPERM}))

        assert level is Level.FAULT
        assert "commands SET DEL ZADD and keys of locks" in said

    # F60
    def test_what_only_looking_needs_is_a_warning(self):
        assert level_of("rights", server(failed_looking={"SCAN": NOPERM})) is Level.WARNING

    def test_what_only_a_beat_needs_is_a_warning(self):
        [(level, said)] = found("rights", server(failed_keys={BEATS: NOPERM}))

        assert level is Level.WARNING
        assert "-S atomicity" in said

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            ("OOM command not allowed when used memory > 'maxmemory'", "memory is full"),
            ("MISCONF Redis is configured to save RDB snapshots", "cannot save"),
            ("NOREPLICAS Not enough good replicas to write", "min-replicas-to-write"),
            ("STRANGE what", "it answers: STRANGE what"),
        ],
    )
    # F46
    def test_a_server_that_refuses_writes_is_a_fault_once(self, error, said):
        [(level, text)] = found("writes", server(failed={"SET": error, "HSET": error}))

        assert level is Level.FAULT
        assert said in text


class TestFleet:
    def test_settings_that_do_not_fit_are_warnings(self):
        assert level_of("interval", interval=1.5) is Level.WARNING
        # LOCK-11
        assert level_of("grace", restart_grace=9) is Level.WARNING
        assert level_of("grace", restart_grace=0) is Level.WARNING
        assert found("grace", restart_grace=10) == []
        assert level_of("ttl", lock_ttl=2.0) is Level.WARNING
        assert found("ttl", lock_ttl=4.0) == []
        assert level_of("beat_grace", beat_grace=24) is Level.WARNING
        assert found("beat_grace", beat_grace=25) == []

    def test_a_majority_is_needed_and_the_first(self):
        down = {"error": "Connection refused", "round_trip": None, "info": None}
        one, two, three = (server(f"redis://{name}:1") for name in ("one", "two", "three"))

        assert found("majority", one, two, three) == []
        assert found("majority", one, two, replace(three, **down)) == []
        [(level, said)] = found("majority", replace(one, **down), two, three)
        assert (level, "the first of 3" in said) == (Level.FAULT, True)
        [(level, said)] = found("majority", one, replace(two, **down), replace(three, **down))
        assert (level, "1 of 3" in said) == (Level.FAULT, True)

    def test_a_replica_counts_as_down(self):
        one, three = server("redis://one:1"), server("redis://three:1")
        two, four = server("redis://two:1", {"role": "slave"}), server("redis://four:1")
        five = server("redis://five:1", {"redis_mode": "cluster"})

        assert found("majority", one, two, three, four, five) == []
        assert level_of("majority", one, two, five) is Level.FAULT

    def test_one_server_is_a_note(self):
        assert level_of("majority") is Level.NOTE

    # F41
    def test_one_server_under_two_addresses_is_a_fault(self):
        one, two = server("redis://one:1"), server("redis://two:1")
        twin = server("redis://alias:1", {"run_id": "redis://one:1"})

        assert found("twins", one, two, server("redis://three:1")) == []
        assert level_of("twins", one, two, twin) is Level.FAULT

    def test_clocks_that_differ_by_more_than_was_measured_are_a_warning(self):
        one, two = server("redis://one:1"), server("redis://two:1")
        off = server("redis://three:1", clock=3.0, clock_error=1.5)
        far = server("redis://three:1", clock=-3.0)

        assert found("clock", one, two, replace(off, clock=0.9)) == []
        said = [text for level, text in found("clock", one, two, far) if level is Level.WARNING]
        assert len(said) == 2
        assert all("3.0 s ahead of" in text for text in said)
        # It may be the measuring.
        assert found("clock", one, two, replace(off, clock=2.4)) == []

    def test_a_clock_that_only_differs_from_ours_is_a_note(self):
        away = [server(f"redis://{name}:1", clock=60.0) for name in ("one", "two", "three")]

        assert {level for level, _ in found("clock", *away)} == {Level.NOTE}

    def test_a_visibility_timeout_that_tasks_outlast_is_a_warning(self):
        late = BrokerFacts(visibility_timeout=600, time_limit=900, acks_late=True)

        assert level_of("visibility", broker=late) is Level.WARNING
        assert found("visibility", broker=replace(late, acks_late=False)) == []
        assert found("visibility", broker=replace(late, time_limit=300)) == []
        assert level_of("visibility", broker=BrokerFacts(visibility_timeout=30)) is Level.WARNING
        assert found("visibility", broker=BrokerFacts()) == []

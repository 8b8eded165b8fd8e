from datetime import timedelta

import pytest

from celery_atomicity.errors import InvalidSetting
from celery_atomicity.settings import Settings


def read(conf=None, environ=None, **options):
    return Settings.read(conf or {}, environ or {}, **options)


def shown(settings):
    return [str(address) for address in settings.addresses]


def test_defaults_are_those_of_the_contract():
    settings = read()

    assert (settings.interval, settings.gap, settings.lock_ttl, settings.timeout) == (
        5.0,
        0.15,
        10.0,
        1.0,
    )
    assert settings.grace == 10.0
    assert settings.group == "celery"
    assert settings.addresses == ()
    assert not settings.configured


def test_the_group_is_the_apps_name_unless_it_is_set():
    assert read(main="shop").group == "shop"
    assert read({"atomicity_group": "till"}, main="shop").group == "till"
    assert read({}, {"ATOMICITY_GROUP": "till"}, main="shop").group == "till"


def test_the_app_wins_over_the_environment():
    settings = read({"atomicity_interval": 2}, {"ATOMICITY_INTERVAL": "3", "ATOMICITY_GAP": "0.2"})

    assert settings.interval == 2.0
    assert settings.gap == 0.2


def test_seconds_may_be_a_timedelta_or_text():
    settings = read({"atomicity_lock_ttl": timedelta(minutes=1)}, {"ATOMICITY_TIMEOUT": "0.5"})

    assert settings.lock_ttl == 60.0
    assert settings.timeout == 0.5


def test_the_state_of_what_is_skipped_is_one_of_two():
    assert read().skipped_state == "SKIPPED"
    assert read({}, {"ATOMICITY_SKIPPED_STATE": "SUCCESS"}).skipped_state == "SUCCESS"
    with pytest.raises(InvalidSetting, match="atomicity_skipped_state: 'DONE'"):
        read({"atomicity_skipped_state": "DONE"})


def test_the_grace_is_the_ttl_unless_it_is_set():
    assert read({"atomicity_lock_ttl": 3}).grace == 3.0
    assert read({"atomicity_lock_ttl": 3, "atomicity_restart_grace": 0}).grace == 0.0


@pytest.mark.parametrize(
    ("conf", "environ", "addresses", "source"),
    [
        (
            {"atomicity_redis": "redis://a", "result_backend": "redis://b"},
            {"ATOMICITY_REDIS": "redis://c"},
            ["redis://a:6379"],
            "atomicity_redis",
        ),
        (
            {"result_backend": "redis://b"},
            {"ATOMICITY_REDIS": "redis://c redis://d redis://e"},
            ["redis://c:6379", "redis://d:6379", "redis://e:6379"],
            "ATOMICITY_REDIS",
        ),
        (
            {"result_backend": "redis://b/3", "broker_url": "redis://d"},
            {},
            ["redis://b:6379/3"],
            "result_backend",
        ),
        (
            {"result_backend": "rpc://", "broker_url": "redis://d"},
            {"ATOMICITY_DEV": "1"},
            ["redis://d:6379"],
            "broker_url",
        ),
        (
            {"broker_url": "amqp://guest@q"},
            {"ATOMICITY_DEV": "1"},
            ["redis://localhost:6379"],
            "ATOMICITY_DEV",
        ),
        ({"broker_url": "amqp://guest@q"}, {}, [], "off"),
        # Several brokers to fail over to are not one Redis.
        ({"broker_url": "redis://a;redis://b"}, {}, [], "off"),
        # Said to be off, which is something else than said nothing.
        ({"atomicity_redis": "", "broker_url": "redis://d"}, {}, [], "off"),
        ({"atomicity_redis": [], "broker_url": "redis://d"}, {}, [], "off"),
        ({"broker_url": "redis://d"}, {"ATOMICITY_REDIS": ""}, [], "off"),
        (
            {"atomicity_redis": None, "broker_url": "redis://d"},
            {},
            ["redis://d:6379"],
            "broker_url",
        ),
    ],
)
def test_addresses_come_from_the_first_place_that_names_any(conf, environ, addresses, source):
    settings = read(conf, environ)

    assert shown(settings) == addresses
    assert settings.source == source


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"atomicity_redis": "redis://a redis://b"}, ["2 addresses", "majority", "odd number"]),
        (
            {"atomicity_redis": ["redis://a", "redis://b", "redis://A:6379/2"]},
            ["same server", "independent"],
        ),
        ({"atomicity_redis": "redis://localhost redis://x redis://127.0.0.1"}, ["same server"]),
        ({"atomicity_redis": "http://a"}, ["'http'", "redis://"]),
        ({"atomicity_redis": "localhost:6379"}, ["scheme", "redis://host:port"]),
        ({"atomicity_redis": "redis://a/orders"}, ["'orders'", "number"]),
        ({"atomicity_redis": "redis://a:port"}, ["host:port"]),
        ({"atomicity_redis": "sentinel://a:26379,b:26379"}, ["master"]),
        ({"atomicity_redis": 6379}, ["6379", "URL"]),
        ({"atomicity_interval": -1}, ["atomicity_interval", "-1"]),
        ({"atomicity_interval": "soon"}, ["atomicity_interval", "'soon'"]),
        ({"atomicity_interval": 0.05}, ["atomicity_interval", "0.1"]),
        ({"atomicity_interval": float("inf")}, ["atomicity_interval", "finite"]),
        ({"atomicity_interval": float("nan")}, ["atomicity_interval"]),
        ({"atomicity_interval": True}, ["atomicity_interval"]),
        ({"atomicity_gap": 0.5}, ["atomicity_gap", "0.5"]),
        ({"atomicity_gap": 0}, ["atomicity_gap"]),
        ({"atomicity_lock_ttl": 0.5}, ["atomicity_lock_ttl", "1", "3600"]),
        ({"atomicity_lock_ttl": 7200}, ["atomicity_lock_ttl"]),
        ({"atomicity_timeout": 0}, ["atomicity_timeout"]),
        ({"atomicity_restart_grace": -1}, ["atomicity_restart_grace"]),
        ({"atomicity_group": "a:b"}, ["atomicity_group", "'a:b'"]),
        ({"atomicity_group": "a\nb"}, ["atomicity_group"]),
    ],
)
def test_what_cannot_work_is_refused_with_setting_value_and_remedy(conf, words):
    with pytest.raises(InvalidSetting) as refused:
        read(conf)

    for word in words:
        assert word in str(refused.value)


def test_a_refusal_names_the_variable_it_came_from():
    with pytest.raises(InvalidSetting, match="ATOMICITY_GAP"):
        read({}, {"ATOMICITY_GAP": "-1"})


def test_no_refusal_shows_a_password():
    for url in ("redis://user:hush@a/orders", "http://:hush@a", "redis://:hu#sh@a:port"):
        with pytest.raises(InvalidSetting) as refused:
            read({"atomicity_redis": url})

        assert "hush" not in str(refused.value)
        assert "hu#sh" not in str(refused.value)


def test_an_interval_shorter_than_two_timeouts_is_warned_of():
    assert read().warnings() == []
    [warning] = read({"atomicity_interval": 1}).warnings()
    assert "atomicity_interval" in warning
    assert "atomicity_timeout" in warning

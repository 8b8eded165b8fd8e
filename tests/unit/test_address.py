import ssl
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_atomicity.address import Address
from celery_atomicity.errors import InvalidSetting


def parse(url, **options):
    return Address.parse(url, setting="atomicity_redis", **options)


@pytest.mark.parametrize("password", ["#", "%", "@", ":", "/", "?", "+", " ", "ü", "a#%@:/?+ üb"])
def test_a_password_encoded_as_celery_wants_it_arrives(password):  # F96
    address = parse(f"redis://sam:{quote(password, safe='')}@h:1/2")

    assert address.password == password
    assert address.username == "sam"
    assert (address.hosts, address.db) == ((("h", 1),), 2)


@given(st.text(min_size=1), st.text(min_size=1))
def test_no_text_of_an_address_shows_its_password(username, password):
    # Longer than anything that an address may hold by itself.
    password = "secret" + password
    address = parse(f"redis://{quote(username, safe='')}:{quote(password, safe='')}@h:1")

    assert address.password == password
    assert password not in str(address)
    assert password not in repr(address)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://", "redis://localhost:6379"),
        ("redis://h", "redis://h:6379"),
        ("redis://:pw@h", "redis://:**@h:6379"),
        ("redis://h:7/3", "redis://h:7/3"),
        ("redis://h:7?db=3", "redis://h:7/3"),
        ("redis://[::1]:7/3", "redis://[::1]:7/3"),
        ("rediss://h:7", "rediss://h:7"),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock/2"),
        ("redis+socket:///run/redis.sock?virtual_host=2", "unix:///run/redis.sock/2"),
        ("unix://:pw@/run/redis.sock", "unix://:**@/run/redis.sock"),
        ("sentinel://a:1,b/main/4", "sentinel://a:1,b:26379/main/4"),
        ("sentinel://:pw@a:1,b:2/main", "sentinel://:**@a:1,b:2/main"),
        ("sentinel://a:1;sentinel://b:2/main/4", "sentinel://a:1,b:2/main/4"),
    ],
)
def test_every_form_of_a_url(url, shown):
    assert str(parse(url)) == shown


def test_sentinels_as_celery_writes_them():
    address = parse(
        "sentinel://:pw@a:1/2;sentinel://:pw@b:2/2",
        options={"master_name": "main", "sentinel_kwargs": {"password": "spw"}, "max_retries": 3},
    )

    assert str(address) == "sentinel://:**@a:1,b:2/main/2"
    assert address.sentinel_password == "spw"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("CERT_NONE", "none"),
        ("none", "none"),
        (ssl.CERT_NONE, "none"),
        ("CERT_REQUIRED", "required"),
        (ssl.CERT_REQUIRED, "required"),
        ("ssl.CERT_REQUIRED", "required"),
        (2, "required"),
        ("2", "required"),
        ("optional", "optional"),
    ],
)
def test_certificate_requirements_in_every_way_that_celery_users_write_them(written, meant):
    in_url = parse(f"rediss://h?ssl_cert_reqs={getattr(written, 'name', written)}")
    beside = parse("redis://h", tls={"ssl_cert_reqs": written})

    assert in_url.tls["ssl_cert_reqs"] == meant
    assert beside.tls["ssl_cert_reqs"] == meant


def test_no_requirement_for_certificates_is_how_redis_py_writes_none():
    assert parse("redis://h", tls={"ssl_cert_reqs": None}).tls["ssl_cert_reqs"] == "none"


def test_an_unknown_requirement_for_certificates_is_refused_at_once():
    with pytest.raises(InvalidSetting, match=r"CERT_SOME.*required"):
        parse("rediss://h?ssl_cert_reqs=CERT_SOME")


def test_an_at_sign_in_an_option_or_a_path_is_not_the_end_of_a_password():
    address = parse("rediss://:pw@h:1/2?ssl_ca_certs=/etc/a@b/ca.pem&sentinel_password=x@y")

    assert (address.hosts, address.db, address.password) == ((("h", 1),), 2, "pw")
    assert address.tls == {"ssl_ca_certs": "/etc/a@b/ca.pem"}
    assert parse("unix:///run/a@b.sock").path == "/run/a@b.sock"


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret?ab=c@h",  # a password that is not escaped, and so read as something else
        "redis://u:12/s3cret?ab=c@h",
        "redis://u:s3cret/x@h:port",
        "redis://u:s3cret@h/x",
        "sentinel://h/?sentinel_password=s3cret",
        "rediss://h/x?ssl_password=s3cret",
        "nonsense://u:s3cret@h",
        "s3cret",
    ],
)
def test_no_error_shows_a_password(url):
    with pytest.raises(InvalidSetting) as refused:
        parse(url)

    assert "s3cret" not in str(refused.value)


def test_tls_checks_certificates_unless_told_otherwise():
    assert parse("rediss://h").tls == {}
    assert parse("redis://h").tls is None


def test_of_borrowed_options_only_what_a_client_understands_is_taken():  # F98
    address = parse(
        "redis://h", tls={"ssl_ca_certs": "/ca.pem", "fanout_prefix": True, "keyprefix": "x"}
    )

    assert address.tls == {"ssl_ca_certs": "/ca.pem"}

"""Whatever is configured is understood or refused by name; nothing else is raised, or shown."""

import contextlib
import pickle
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from celery_atomicity import keys
from celery_atomicity.address import Address, masked
from celery_atomicity.atom import Atom
from celery_atomicity.connection.resp import MOST_BYTES, Intake, Reader, pack
from celery_atomicity.errors import InvalidSetting, LockTimeout
from celery_atomicity.integration.arguments.template import compile_key
from celery_atomicity.primitives.lease import shown
from celery_atomicity.primitives.limit import Limit, per_second
from celery_atomicity.settings import Settings

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.timedeltas()
    | st.sampled_from([10**400, -(10**400), "1e999", "nan", "", " ", "0x10", "1_000", b"5"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
PARTS = st.sampled_from(
    [
        *"@:/?#[];,%&= ü\0\ud800",
        *(
            "redis",
            "rediss",
            "sentinel",
            "unix",
            "://",
            "::1",
            "%zz",
            "s3cret",
            "localhost",
            "6379",
        ),
        *("99999", "-1", "db=", "\r\n", "ssl_cert_reqs=", "ssl_ca_certs=", "main", "{x}", "%(x)s"),
    ]
)
URLS = st.lists(PARTS, max_size=14).map("".join) | st.text()


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from([f"atomicity_{n}" for n in Settings.NAMES]), ANYTHING))
@example({"atomicity_interval": 10**400})
@example({"atomicity_redis": ["redis://a", b"redis://b", None]})
@example({"atomicity_timeout": timedelta.max})
def test_settings_are_valid_or_refused_by_name(conf):
    try:
        read = Settings.read(conf, {})
    except InvalidSetting as refused:
        said = str(refused)
    else:
        said = "atomicity_"
        assert read.interval > 0
        assert hash(read) == hash(read)
    assert "atomicity_" in said


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from([f"ATOMICITY_{n.upper()}" for n in Settings.NAMES]), URLS))
def test_so_is_an_environment(environ):
    with contextlib.suppress(InvalidSetting):
        Settings.read({}, environ)


@settings(max_examples=500)
@given(URLS)
@example("redis://[::1")
@example("redis://h:99999999999999999999")
@example("redis://h/" + "9" * 5000)
@example("redis://h/²")
@example("sentinel://,,/x")
def test_a_url_is_an_address_or_refused(url):
    with contextlib.suppress(InvalidSetting):
        address = Address.parse(url, setting="atomicity_redis")
        assert str(address).isprintable()
        assert str(address).encode()
    masked(url)


@given(st.text(min_size=1), st.sampled_from(["redis://u:{}@h:1/2", "redis://:{}@h/x", "x://{}@h"]))
def test_nothing_shows_a_password_however_it_is_written(password, url):
    url = url.format("s3cret" + password)
    said = masked(url)
    try:
        address = Address.parse(url, setting="atomicity_redis")
        said += f"{address}{address!r}"
    except InvalidSetting as refused:
        said += str(refused)

    assert "s3cret" not in said


@settings(max_examples=200)
@given(ANYTHING)
@example(10**400)
@example("9" * 5000 + "/s")
@example("1/0")
def test_a_rate_is_one_or_is_refused(rate):
    with contextlib.suppress(TypeError, ValueError):
        assert 0 < per_second(rate) < float("inf")
    with contextlib.suppress(TypeError, ValueError):
        Limit("k", 1.0, burst=rate, cost=rate)


@settings(max_examples=200)
@given(ANYTHING)
def test_a_lock_is_made_or_refused_before_anything_is_asked(value):
    atom = Atom("hostile", redis="redis://nowhere:1")
    for options in ({"wait": value}, {"ttl": value}, {"min_hold": value}, {"max_hold": value}):
        with contextlib.suppress(TypeError, ValueError):
            atom.lock("a", **options)
    with contextlib.suppress(TypeError, ValueError):
        atom.lock(value)
    with contextlib.suppress(TypeError, ValueError):
        Atom(value, redis="redis://nowhere:1")


# -- keys ----------------------------------------------------------------------------------------

HOSTILE = [
    "\r\nFLUSHALL\r\n",
    "$5\r\nhello\r\n*1\r\n",
    "\0",
    "\x1b[2J\x1b]0;owned\x07",
    "\ud800",
    "\u202egnirts",
    "{x.__class__}",
    "{x[0].__globals__}",
    "%(message)s %s %n",
    "*",
    "a" * 3_000_000,
    "é" * 1_000_000,
    "atom:other:lock:k",
    "x~" + "0" * 32,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:20]))
def test_a_hostile_argument_is_a_key_like_any_other(text):
    def task(x):
        """Nothing."""

    key = compile_key("{x}", task)((text,), {})
    name = keys.lock_key("shop", key)

    assert key == text
    assert name.startswith("atom:shop:lock:")
    assert name.isprintable()
    assert len(name.encode()) < 300
    assert len(shown([key])) < 1000
    shown([key]).encode()
    error = LockTimeout(f"{shown([key])} was not to be had", keys=(key,), group="shop")
    assert pickle.loads(pickle.dumps(error)).keys == (key,)


@pytest.mark.parametrize(
    "template",
    [
        *("{x.__class__}", "{x[0].__globals__}", "{x._private}", "{x.y.__init__}"),
        *("{x[__globals__]}", "{x.__class__!r}", "{x:{x.__class__}}", "{x.__class__.__mro__[1]}"),
    ],
)
def test_a_template_reaches_nothing_private(template):
    def task(x):
        """Nothing."""

    with pytest.raises(ValueError, match=r"private|cannot hold a field"):
        compile_key(template, task)


# -- the wire ------------------------------------------------------------------------------------


@settings(max_examples=500)
@given(st.lists(st.binary(max_size=40), max_size=6), st.sampled_from(["hiredis", "python"]))
def test_bytes_of_any_kind_are_answers_or_an_error(chunks, kind):
    intake = Intake()
    if kind == "python":
        intake._reader = Reader()
    with contextlib.suppress(ValueError):
        for chunk in chunks:
            intake.take(chunk)


@given(st.lists(st.text() | st.binary() | st.integers() | st.floats(allow_nan=False), min_size=1))
def test_a_command_is_as_many_words_as_it_has_whatever_they_hold(words):
    """A server reads what we send as we read what it sends."""
    [read] = Intake().take(pack(words))

    assert len(read) == len(words)


@pytest.mark.parametrize("size", [1, 7, 24, 25, 1000])
def test_an_announcement_is_seen_however_it_is_cut(size):
    data = b":1\r\n" * 10 + b"*123456789\r\n:1\r\n"
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    intake = Intake()

    with pytest.raises(ValueError, match="too many items"):
        _ = [intake.take(chunk) for chunk in chunks]


def test_an_answer_has_an_end():
    intake = Intake()
    intake.take(b"$99999999999\r\n")

    with pytest.raises(ValueError, match=str(MOST_BYTES)):
        _ = [intake.take(b"x" * 65536) for _ in range(300)]

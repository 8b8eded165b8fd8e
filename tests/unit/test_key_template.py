"""Keys from arguments: the same for every way to write a call, apart for every other one."""

import functools
import re
import uuid
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from celery_atomicity.integration.arguments.template import compile_key
from celery_atomicity.integration.arguments.text import quoted, text


def sync(account_id, mode="full"):
    """A task as people have them."""


def key(spec, *args, of=sync, **kwargs):
    return compile_key(spec, of)(args, kwargs)


class TestOneCallManyWaysToWriteIt:
    SPECS = (
        "{account_id}/{mode}",
        lambda account_id, mode: f"{account_id}/{mode}",
        lambda mode, account_id: f"{account_id}/{mode}",
        lambda *args: "/".join(map(str, args)),
        lambda a, b: f"{a}/{b}",
    )

    @pytest.mark.parametrize("spec", SPECS)
    def test_positional_keyword_and_default_give_the_same_key(self, spec):  # F03
        compute = compile_key(spec, sync)

        keys = {
            compute((7,), {}),
            compute((), {"account_id": 7}),
            compute((7, "full"), {}),
            compute((), {"mode": "full", "account_id": 7}),
        }

        assert keys == {"7/full"}

    @pytest.mark.parametrize("spec", ["{account_id}", "all", lambda account_id: account_id])
    @pytest.mark.parametrize(
        ("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"account_id": 2}), ((1,), {"x": 3})]
    )
    def test_a_call_that_does_not_fit_fails_as_undecorated(self, spec, args, kwargs):  # F03
        with pytest.raises(TypeError) as undecorated:
            sync(*args, **kwargs)

        with pytest.raises(TypeError, match=re.escape(str(undecorated.value))):
            compile_key(spec, sync)(args, kwargs)

    def test_every_kind_of_parameter(self):
        def odd(a, /, b, *args, c, d=4, **kwargs): ...

        spec = "{a},{b},{args},{c},{d},{kwargs[x]}"

        assert key(spec, 1, 2, 3, c=5, x="y", of=odd) == "1,2,[3],5,4,y"

    def test_defaults_are_those_of_the_function(self):
        default = {"b": [1], "a": None}

        def task(x=default): ...

        assert key("{x}", of=task) == "{'a': None, 'b': [1]}"

    def test_parameters_that_look_like_our_own_names(self):
        def task(_key_text0, _key_, bound): ...

        assert key("{_key_text0}-{_key_}-{bound}", 1, 2, 3, of=task) == "1-2-3"

    def test_names_that_python_cannot_write(self):
        import inspect

        def task(*args, **kwargs): ...

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        task.__signature__ = inspect.Signature(
            [inspect.Parameter(name, kind) for name in ("from_", "to")]
        )
        parameters = [p.replace(name="to") for p in task.__signature__.parameters.values()][:1]
        task.__signature__ = inspect.Signature(parameters)
        odd = inspect.Parameter("to", kind)
        object.__setattr__(odd, "_name", "class")
        task.__signature__ = inspect.Signature([odd])

        assert key("{class}", 5, of=task) == key("{class}", of=task, **{"class": 5}) == "5"
        with pytest.raises(TypeError):
            key("{class}", of=task)

    def test_through_a_decorator_with_wraps(self):  # F01
        @functools.wraps(sync)
        def foreign(*args, **kwargs): ...

        assert key("{account_id}:{mode}", mode="x", account_id=1, of=foreign) == "1:x"

    def test_a_builtin_has_no_names_but_may_have_a_constant_key(self):
        assert key("all", 1, of=max) == "all"


class TestValues:
    class Color(Enum):
        RED = "red"

    class Size(IntEnum):
        BIG = 3

    class Kind(str, Enum):
        A = "a"

    @dataclass
    class Point:
        x: int
        tags: frozenset

    UTC_NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    ROME_NOON = UTC_NOON.astimezone(timezone(timedelta(hours=1)))

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            (7, "7"),
            ("7", "7"),  # text is text: {x!r} tells them apart
            (True, "True"),
            (None, "None"),
            (1.5, "1.5"),
            (Decimal("1.50"), "1.5"),
            (Decimal("1E+2"), "100"),
            (Decimal(100), "100"),
            (Decimal("-0.050"), "-0.05"),
            (Decimal("0E-9"), "0"),
            (Decimal("NaN"), "NaN"),
            (Decimal("1E+500"), "1E+500"),
            (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
            (UTC_NOON, "2026-01-01T12:00:00+00:00"),
            (ROME_NOON, "2026-01-01T12:00:00+00:00"),
            (datetime(2026, 1, 1), "2026-01-01T00:00:00"),  # noqa: DTZ001
            (date(2026, 1, 1), "2026-01-01"),
            (timedelta(days=1), "1 day, 0:00:00"),
            (Color.RED, "red"),
            (Size.BIG, "3"),
            (Kind.A, "a"),
            (b"\xff", "b'\\xff'"),
            (memoryview(b"a"), "b'a'"),
            ({"b": 2, "a": {"d": 1, "c": [1, "1"]}}, "{'a': {'c': [1, '1'], 'd': 1}, 'b': 2}"),
            ((1, [2], {3}), "[1, [2], {3}]"),
            ({"b", "a"}, "{'a', 'b'}"),
            (Point(1, frozenset("ba")), "{'tags': {'a', 'b'}, 'x': 1}"),
            ("😀", "😀"),
            ("\ud800", "\ud800"),
            ("x" * 5000, "x" * 5000),
        ],
    )
    def test_as_text(self, value, written):
        assert key("{account_id}", value) == written

    def test_an_integer_of_more_digits_than_python_writes(self):
        assert key("{account_id}", 10**5000) == hex(10**5000)

    def test_what_arrives_through_json_gives_the_key_of_what_was_sent(self):
        sent = {1: (1, 2), "kind": self.Kind.A}
        arrived = {"kind": "a", "1": [1, 2]}

        assert text(sent) == text(arrived)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (1, "1"),
            (None, "None"),
            (True, "True"),
            (True, 1),
            ([1], ["1"]),
            (["a, b"], ["a", "b"]),
            (["a', 'b"], ["a", "b"]),
            ({"a": None}, {"a": "None"}),
            (b"a", "a"),
        ],
    )
    def test_types_stay_apart_where_asked(self, one, other):  # F05
        assert key("{account_id!r}", one) != key("{account_id!r}", other)

    @pytest.mark.parametrize(
        "value",
        [
            object(),
            lambda: None,
            sync,
            Enum,
            re,
            [object()],
            {"a": print},
            iter([1]),
            sync.__call__,
        ],
    )
    @pytest.mark.parametrize(
        "spec", ["{account_id}", "{account_id!r}", lambda account_id: account_id]
    )
    def test_no_address_ever(self, spec, value):  # F02
        with pytest.raises(TypeError, match="a key cannot be made of"):
            key(spec, value)

    def test_no_address_inside_an_objects_text_nor_through_a_format(self):  # F02
        class Shown:
            def __str__(self):
                return f"<{[object()]}>"

            def __format__(self, spec):
                return f"{self!s:{spec}}"

        class Order:
            def __str__(self):
                return "order 5"

        with pytest.raises(TypeError, match=r"an object of the class .*Shown"):
            key("{account_id}", Shown())
        with pytest.raises(TypeError, match="a key cannot be made of"):
            key("{account_id:>100}", Shown())
        assert key("{account_id}", Order()) == "order 5"
        assert key("{account_id}", "text with at 0x7f0012345678") == "text with at 0x7f0012345678"

    @given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
    def test_a_dict_in_any_order(self, value):
        backwards = dict(reversed(value.items()))

        assert text(value) == text(backwards)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ),
    )
    def test_what_json_can_say_stays_apart(self, one, other):  # F05
        import json

        assume(json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True))

        assert quoted(one) != quoted(other)


class TestTemplates:
    @given(
        st.text(), st.text(), st.text(), st.text(), st.sampled_from([":", "", "\\", "--", "^", "a"])
    )
    def test_fields_do_not_run_into_each_other(self, a, b, c, d, between):  # F05
        assume((a, b) != (c, d))
        compute = compile_key(f"x{{a}}{between}{{b}}y", lambda a, b: None)

        assert compute((a, b), {}) != compute((c, d), {})

    def test_readable_where_nothing_runs_together(self):
        assert key("account:{account_id}:{mode}", 7) == "account:7:full"
        assert key("{account_id}", "a:b") == "a:b"
        assert key("{account_id}:{mode}", "a:b", "c:d") == "a\\:b:c:d"

    def test_attributes_and_items(self):
        class Order:
            id = 5
            lines = ({"sku": "x"},)

        order = Order()

        assert key("{account_id.id}", order) == "5"
        assert key("{account_id.lines[0][sku]}", order) == "x"
        assert key("{account_id[_id]}", {"_id": 3}) == "3"
        assert key("{account_id[5]}", {"5": 3}) == key("{account_id[5]}", {5: 3}) == "3"

    def test_an_attribute_of_what_became_a_dict_in_the_message(self):
        assert key("{account_id.id}", {"id": 5}) == "5"

    def test_the_task_itself(self):
        class Request:
            id = "abc"

        class Self:
            request = Request()

        def task(self, x): ...

        assert key("{self.request.id}", Self(), 1, of=task) == "abc"

    @pytest.mark.parametrize(
        ("spec", "value", "written"),
        [
            ("{account_id:%Y-%m}", date(2026, 3, 1), "2026-03"),
            ("{account_id:05d}", 42, "00042"),
            ("{account_id:d}", TestValues.Size.BIG, "3"),
            ("{account_id!r}", "a", "'a'"),
            ("{account_id!a}", "é", "'\\xe9'"),
            ("{account_id!s:>3}", 1, "  1"),
            ("{{{account_id}}}", 1, "{1}"),
            ("100%", 1, "100%"),
        ],
    )
    def test_formats_and_conversions(self, spec, value, written):
        assert key(spec, value) == written

    @pytest.mark.parametrize(
        ("spec", "says"),
        [
            ("{acount_id}", "did you mean 'account_id'"),
            ("{tenant}", "not a parameter of sync\\(account_id, mode\\)"),
            ("{self.request.id}", "bind=True"),
            ("{}", "fields are named"),
            ("{0}", "fields are named"),
            ("{account_id", "not a format string"),
            ("{account_id.__class__}", "private"),
            ("{account_id.a._b}", "private"),
            ("{account_id[__class__]}", "private"),
            ("{account_id[a}", "."),
            ("{account_id!x}", "conversion"),
            ("{account_id:{mode}}", "cannot hold a field"),
            ("", "empty"),
            ([], "names no key"),
            (["{account_id}", "{nope}"], "nope"),
            (lambda x, y, z: "", "neither names parameters"),
        ],
    )
    def test_refused_where_the_decorator_is_applied(self, spec, says):
        with pytest.raises(ValueError, match=says):
            compile_key(spec, sync)

    @pytest.mark.parametrize("spec", [None, 5, b"x", {"a": 1}, {"a"}, [["a"]]])
    def test_what_cannot_be_a_key_is_refused(self, spec):
        with pytest.raises(TypeError, match="a key is a format string"):
            compile_key(spec, sync)

    def test_a_hidden_signature_is_explained(self):
        def foreign(*args, **kwargs): ...

        with pytest.raises(ValueError, match=r"functools\.wraps"):
            compile_key("{account_id}", foreign)

    def test_a_keyword_of_the_call_is_named_through_its_dict(self):
        def task(x, **rest): ...

        with pytest.raises(ValueError, match=r"\{rest\[tenant\]\}"):
            compile_key("{tenant}", task)


class TestCallablesAndSequences:
    def test_a_callable_gets_what_it_names(self):
        def task(a, b, *, c=3): ...

        assert key(lambda c: c, 1, 2, of=task) == "3"
        assert key(lambda b, a: f"{a}{b}", 1, 2, of=task) == "12"
        assert key(lambda z="z", *, b: f"{b}{z}", 1, 2, of=task) == "2z"
        assert key(lambda *args, **kwargs: f"{args}{kwargs}", 1, 2, of=task) == "(1, 2){'c': 3}"

    def test_several_keys(self):
        assert key(["a:{account_id}", lambda mode: mode, "all"], 1) == ["a:1", "full", "all"]
        assert key(("a", "a"), 1) == ["a"]
        assert key(lambda account_id, mode: [account_id, mode, account_id], 1, 2) == ["1", "2"]
        assert key(lambda account_id: {account_id}, 1) == ["1"]
        assert key([lambda mode: ["x", mode]], 1, "y") == ["x", "y"]

    def test_parts_of_a_sequence_stay_apart(self):  # F05
        two = compile_key(["{account_id}", "{mode}"], sync)

        assert set(two(("a:b", "c"), {})).isdisjoint(two(("a", "b:c"), {}))

    def test_a_callable_that_forgot_to_return_is_told(self):
        with pytest.raises(TypeError, match="returned None"):
            key(lambda account_id: None, 1)
        with pytest.raises(ValueError, match="no key at all"):
            key(lambda account_id: [], 1)

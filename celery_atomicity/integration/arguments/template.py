r"""
Keys from the arguments of a call, compiled once where the decorator is applied.

What a key may be written as:

- a format string over the parameters by name, defaults included: ``"{account_id}"``,
  ``"{order.id}"``, ``"{address[city]}"``, ``"{day:%Y-%m}"``, ``"{self.request.id}"``;
- a string without fields: one key for every call;
- a callable that is given the arguments, those that its own parameters name or else all of them,
  and answers text, or several texts for several keys;
- a list or tuple of these: several keys.

Two promises. However a call is written, it gives the same key: arguments are bound to the
function's signature first, by Python itself, since what is compiled is a function with that very
signature (which also makes it take well under a microsecond). And fields cannot run into each
other: ``"{a}:{b}"`` gives ``x\:y:z`` for ("x:y", "z") and ``x:y:z`` for ("x", "y:z"). How a value
becomes text is *key_text*'s to say.

Thread-safe; nothing here does I/O.
"""

from __future__ import annotations

import difflib
import inspect
import keyword
import re
import string
from typing import TYPE_CHECKING, Any

from celery_atomicity.integration.arguments.call import call_expression
from celery_atomicity.integration.arguments.parts import (
    answered,
    ascii_quoted,
    attribute_of,
    escaper,
    item_of,
)
from celery_atomicity.integration.arguments.text import formatted, quoted, text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Key = str | list[str]
    #: What a decorator accepts as *key*.
    KeySpec = str | Callable[..., Any] | Sequence[str | Callable[..., Any]]

#: What is put between two fields that have nothing between them.
_BETWEEN = "|"

_PATH = re.compile(r"(?P<name>[^.\[\]]*)(?P<steps>(?:\.[^.\[\]]+|\[[^\[\]]+\])*)\Z")
_STEP = re.compile(r"\.(?P<attribute>[^.\[\]]+)|\[(?P<item>[^\[\]]+)\]")


def compile_key(spec: KeySpec, function: Callable[..., Any]) -> Callable[[Any, Any], Key]:
    """
    A function of the arguments, as *function* gets them, that answers the call's key or keys.

    What it answers takes ``(args, kwargs)`` (with the task first where it is bound) and raises the
    ``TypeError`` that *function* would raise if they do not fit its signature.

    Raises:
        TypeError: *spec* is not of a kind that can be a key.
        ValueError: It names what is not a parameter, or cannot be read.
    """
    if isinstance(spec, (list, tuple)):
        if not spec:
            raise ValueError("key=[] names no key; leave nothing out or give a string")
        return _several([compile_key(_single(item), function) for item in spec])
    return _Head(function).compile(_single(spec))


def _single(spec: Any) -> str | Callable[..., Any]:
    if isinstance(spec, str):
        if not spec:
            raise ValueError(
                'key="" is empty; a constant such as key="all" lets one run at a time pass'
            )
        return spec
    if callable(spec) and not inspect.iscoroutinefunction(spec):
        answer: Callable[..., Any] = spec
        return answer
    raise TypeError(
        f"a key is a format string, a callable, or a list of these, not {type(spec).__name__}: "
        f"{spec!r}"
    )


def _several(parts: list[Callable[[Any, Any], Key]]) -> Callable[[Any, Any], Key]:
    def compute(args: Any, kwargs: Any) -> Key:
        keys: dict[str, None] = {}
        for part in parts:
            key = part(args, kwargs)
            keys.update(dict.fromkeys([key] if isinstance(key, str) else key))
        return list(keys)

    return compute


class _Head:
    """Writes a function that has the signature of another one and answers a key."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        try:
            self.signature = inspect.signature(function)
        except (TypeError, ValueError):  # a builtin: any call may fit, and it has no names
            self.signature = inspect.Signature(
                [
                    inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                    inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
                ]
            )
        self.names = list(self.signature.parameters)
        self.scope: dict[str, Any] = {}
        # Helpers live in the compiled function's globals; no parameter may hide one of them.
        self.prefix = "_key_"
        while any(name.startswith(self.prefix) for name in self.names):
            self.prefix = "_" + self.prefix

    def compile(self, spec: str | Callable[..., Any]) -> Callable[[Any, Any], Key]:
        plain = all(name.isidentifier() and not keyword.iskeyword(name) for name in self.names)
        bound = self.prefix + "bound"
        self.variables = {n: n if plain else f"{bound}[{n!r}]" for n in self.names}
        answer = self._template(spec) if isinstance(spec, str) else self._callable(spec)
        if plain:
            source = f"def head({self._parameters()}):\n return {answer}"
        else:  # names that Python cannot write, as only a __signature__ by hand has
            bind = self.keep("bind", self._bind)
            arguments = f"*{self.prefix}a, **{self.prefix}k"
            source = f"def head({arguments}):\n {bound} = {bind}({arguments})\n return {answer}"
        scope: dict[str, Any] = self.scope
        # The text comes from the developer's own signature and template, checked above.
        exec(compile(source, f"<key of {self.name}>", "exec"), scope)  # noqa: S102
        head = scope.pop("head")
        head.__name__ = getattr(self.function, "__name__", "head")
        head.__qualname__ = self.name  # a call that does not fit reads as if undecorated

        def compute(args: Any, kwargs: Any) -> Key:
            key: Key = head(*args, **kwargs)
            return key

        return compute

    def keep(self, name: str, value: Any) -> str:
        """Make *value* known to the compiled function; the name it has there."""
        unique = f"{self.prefix}{name}{len(self.scope)}"
        self.scope[unique] = value
        return unique

    def _bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def _parameters(self) -> str:
        """The signature as source, its defaults by reference."""
        kinds = inspect.Parameter
        written: list[str] = []
        last: Any = None
        for parameter in self.signature.parameters.values():
            kind = parameter.kind
            if last is kinds.POSITIONAL_ONLY and kind is not kinds.POSITIONAL_ONLY:
                written.append("/")
            if kind is kinds.KEYWORD_ONLY and last not in (
                kinds.KEYWORD_ONLY,
                kinds.VAR_POSITIONAL,
            ):
                written.append("*")
            star = ""
            if kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD):
                star = "*" if kind is kinds.VAR_POSITIONAL else "**"
            default = ""
            if parameter.default is not kinds.empty:
                default = "=" + self.keep("default", parameter.default)
            written.append(star + parameter.name + default)
            last = kind
        if last is kinds.POSITIONAL_ONLY:
            written.append("/")
        return ", ".join(written)

    def _callable(self, spec: Callable[..., Any]) -> str:
        call = call_expression(spec, self.signature, self.variables, self.keep, self.described())
        return f"{self.keep('answered', answered)}({call})"

    def _template(self, spec: str) -> str:
        """The expression that fills the format string *spec*."""
        pieces = self._pieces(spec)
        fields = sum(field is not None for _, field in pieces)
        written: list[str] = []
        seen = 0
        for index, (literal, field) in enumerate(pieces):
            if literal:
                written.append(repr(literal))
            if field is None:
                continue
            seen += 1
            if seen < fields:
                after = pieces[index + 1][0]
                field = f"{self.keep('escape', escaper(after[0]))}({field})"  # noqa: PLW2901
            written.append(field)
        return " + ".join(written)

    def _pieces(self, spec: str) -> list[tuple[str, str | None]]:
        """(text before, expression of the field or None), no two fields without text between."""
        pieces: list[tuple[str, str | None]] = []
        try:
            parsed = list(string.Formatter().parse(spec))
        except ValueError as error:
            raise ValueError(f"key={spec!r} is not a format string: {error}") from error
        literals = ""
        for literal, name, format_spec, conversion in parsed:
            literals += literal
            if name is None:  # an escaped brace, or the end
                continue
            if pieces and not literals:
                literals = _BETWEEN
            pieces.append((literals, self._field(spec, name, format_spec or "", conversion)))
            literals = ""
        if literals:
            pieces.append((literals, None))
        return pieces

    def _field(self, spec: str, field: str, format_spec: str, conversion: str | None) -> str:
        match = _PATH.match(field)
        if match is None:
            raise ValueError(f"key={spec!r}: {{{field}}} cannot be read")
        name = match["name"]
        if name not in self.variables:
            raise ValueError(f"key={spec!r}: {self._unknown(name)}")
        value = self.variables[name]
        for step in _STEP.finditer(match["steps"]):
            value = self._step(spec, value, step["attribute"], step["item"])
        if "{" in format_spec:
            raise ValueError(f"key={spec!r}: a format spec cannot hold a field itself")
        if conversion not in (None, "s", "r", "a"):
            raise ValueError(f"key={spec!r}: !{conversion} is not a conversion; there are !s !r !a")
        if format_spec and conversion is None:
            return f"{self.keep('formatted', formatted)}({value}, {format_spec!r})"
        write = {"r": quoted, "a": ascii_quoted}.get(conversion or "s", text)
        written = f"{self.keep('text', write)}({value})"
        return f"format({written}, {format_spec!r})" if format_spec else written

    def _step(self, spec: str, value: str, attribute: str | None, item: str | None) -> str:
        if attribute is not None:
            if attribute.startswith("_") or not attribute.isidentifier():
                raise ValueError(
                    f"key={spec!r}: the attribute {attribute!r} is private; a key is made of public"
                    " attributes, or by a callable"
                )
            return f"{self.keep('attribute', attribute_of)}({value}, {attribute!r})"
        assert item is not None
        if item.startswith("__"):
            raise ValueError(f"key={spec!r}: the item {item!r} is private")
        index: str | int = int(item) if item.isdecimal() else item
        return f"{self.keep('item', item_of)}({value}, {index!r})"

    def _unknown(self, name: str) -> str:
        if not name or name.isdecimal():
            return f"fields are named, {{{name}}} is not; {self.described()}"
        close = difflib.get_close_matches(name, self.names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        parameters = self.signature.parameters.values()
        kinds = [parameter.kind for parameter in parameters]
        if kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
            hint = (
                "; a decorator in between hides the signature: let it use functools.wraps, or "
                "apply this one below it"
            )
        elif inspect.Parameter.VAR_KEYWORD in kinds and not hint:
            hint = f"; what comes by keyword is {{{self.names[-1]}[{name}]}}"
        elif name == "self":
            hint = "; it is one with bind=True"
        return f"{name!r} is not a parameter of {self.described()}{hint}"

    def described(self) -> str:
        """The function and its parameters, as a message names them."""
        return f"{self.name}({', '.join(self.names)})"

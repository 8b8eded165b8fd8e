"""
Which arguments a key's callable is given.

By name where it can be: a callable whose parameters are all parameters of the function gets those,
so that ``key=lambda account_id: ...`` fits a task of many parameters, and the order does not
matter. Else it gets all of the call's arguments, positional ones first and defaults filled in. The
task itself (``self`` of a bound task) is not one of them, unless the callable names it.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from celery.app.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_expression(
    spec: Callable[..., Any],
    signature: inspect.Signature,
    variables: Mapping[str, str],
    keep: Callable[[str, Any], str],
    described: str,
) -> str:
    """
    The expression that calls *spec* with what it is to get.

    Args:
        spec: The user's callable.
        signature: Of the function whose call it is.
        variables: What each of its parameters is called in the compiled function.
        keep: Makes an object known to the compiled function; answers its name there.
        described: The function as a message names it.

    Raises:
        ValueError: *spec* takes neither these names nor this many arguments.
    """
    try:
        own = inspect.signature(spec)
    except (TypeError, ValueError):  # a builtin
        return _everything(spec, signature, variables, keep)
    wanted = [p for p in own.parameters.values() if p.name in signature.parameters]
    others = [p for p in own.parameters.values() if p.name not in signature.parameters]
    if not any(p.kind in _STARS for p in own.parameters.values()) and all(
        p.default is not inspect.Parameter.empty for p in others
    ):
        return _by_name(spec, wanted, variables, keep)
    _check(own, signature, described)
    return _everything(spec, signature, variables, keep)


def _by_name(
    spec: Callable[..., Any],
    wanted: list[inspect.Parameter],
    variables: Mapping[str, str],
    keep: Callable[[str, Any], str],
) -> str:
    arguments = []
    skipped = False
    listed = list(inspect.signature(spec).parameters.values())
    for parameter in listed:
        if parameter not in wanted:
            skipped = True  # it keeps its default, so what follows has to be named
            continue
        value = variables[parameter.name]
        named = skipped or parameter.kind is inspect.Parameter.KEYWORD_ONLY
        arguments.append(f"{parameter.name}={value}" if named else value)
    return f"{keep('call', spec)}({', '.join(arguments)})"


def _everything(
    spec: Callable[..., Any],
    signature: inspect.Signature,
    variables: Mapping[str, str],
    keep: Callable[[str, Any], str],
) -> str:
    positional, keywords = [], []
    for name, parameter in signature.parameters.items():
        value = variables[name]
        if parameter.kind in _POSITIONAL:
            positional.append(value)
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.append(f"*{value}")
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            keywords.append(f"**{value}")
        else:
            keywords.append(f"{name!r}: {value}")
    call = keep("call", spec)
    everything = keep("everything", _call_without_task)
    return f"{everything}({call}, [{', '.join(positional)}], {{{', '.join(keywords)}}})"


def _call_without_task(spec: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], Task):
        args = args[1:]
    return spec(*args, **kwargs)


def _check(own: inspect.Signature, signature: inspect.Signature, described: str) -> None:
    """Refuse a callable that could not be called with all arguments."""
    parameters = signature.parameters.values()
    if any(p.kind in _STARS for p in parameters):
        return
    count = sum(p.kind in _POSITIONAL for p in parameters)
    named = {p.name: None for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    for number in (count, count - 1):  # the first may be the task, which is left out
        try:
            own.bind(*[None] * number, **named)
        except TypeError:
            continue
        return
    raise ValueError(
        f"the key's callable takes {own}, which neither names parameters of {described} nor takes "
        "as many arguments"
    )

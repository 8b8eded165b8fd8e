"""Whether what a page has its reader type can be typed: nothing is run."""

import re
import shlex

import click
from celery import Celery
from celery.bin.base import CLIContext
from celery.bin.celery import celery

from support.pages import ROOT

_PACKAGE = (ROOT / "pyproject.toml").read_text()
_MAKEFILE = (ROOT / "Makefile").read_text()


def commands_in(block):
    """What is typed in *block*: after ``$ ``, or, where nothing is shown beside it, each line."""
    text = block.text.replace("\\\n", " ")
    if block.language == "console":
        typed = re.findall(r"^\$ (.+)", text, re.MULTILINE)
    else:
        typed = text.splitlines()
    for line in typed:
        words = shlex.split(line, comments=True)
        # The shell's own: what runs aside, and where output goes to, is no argument.
        words = [word for word in words if word != "&"]
        while words and re.match(r"[A-Z_]+=", words[0]):
            del words[0]
        if words:
            yield words[: words.index("|")] if "|" in words else words


def complaint(words):
    """What is wrong with a command; None: nothing, as far as can be known without running it."""
    program, *arguments = words
    if program in _OTHERS:
        return None
    check = _CHECKS.get(program)
    return f"nobody knows how to check {program!r}" if check is None else check(arguments)


def _celery(arguments):
    with Celery("shop", broker="memory://", set_as_current=False) as app:
        context = CLIContext(app=app, no_color=True, workdir=None)
        command, parent = celery, None
        try:
            while True:
                parent = command.make_context(
                    command.name, list(arguments), parent=parent, obj=context
                )
                if not isinstance(command, click.Group):
                    return None
                _, command, arguments = command.resolve_command(parent, _rest(parent))
        except click.exceptions.Exit:
            return None  # --help
        except click.ClickException as error:
            return error.format_message()


def _rest(context):
    # Click 8.2 renamed what a group leaves to its command.
    kept = (
        context._protected_args if hasattr(context, "_protected_args") else context.protected_args
    )
    return [*kept, *context.args]


def _make(arguments):
    targets = [word for word in arguments if "=" not in word]
    missing = [name for name in targets if not re.search(rf"^{name}:", _MAKEFILE, re.MULTILINE)]
    return f"no such target: {missing}" if missing else None


def _pip(arguments):
    verb, *wanted = arguments
    if verb != "install":
        return f"pip {verb}"
    for name in wanted:
        found = re.match(r"celery-atomicity(?:\[([\w,]+)\])?$", name)
        for extra in (found[1] or "").split(",") if found else ():
            if extra and not re.search(rf"^{extra} = \[", _PACKAGE, re.MULTILINE):
                return f"no such extra: {extra}"
    return None


_MODULES = {"celery_atomicity.testing", "pytest", "shop.partner", "venv"}


def _python(arguments):
    if arguments[0] == "-m":
        return None if arguments[1] in _MODULES else f"no such module: {arguments[1]}"
    return None if (ROOT / arguments[0]).is_file() else f"no such file: {arguments[0]}"


# What is not ours to check.
_OTHERS = {".", "curl", "kill", "pkill", "prometheus"}

_CHECKS = {"celery": _celery, "make": _make, "pip": _pip, "python": _python}

"""A decision's Lua source and how it is sent."""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from celery_atomicity.connection.resp import Argument, pack, pack_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# So many sets of keys are packed once, those of up to so many keys.
REMEMBERED, FEW = 1024, 16

# A script with its keys and arguments.
Call: TypeAlias = "tuple[Script, Sequence[str], Sequence[Argument]]"


class Command(NamedTuple):
    """
    A command ready to be sent.

    Attributes:
        data: Its bytes.
        in_full: Makes what to send instead to a server that does not know the script; told
            whether the question was decided without it, so that nobody waits for it any more.
        is_owed: It is sent again with the next connection if there is none, or if that broke.
        script: The name of the script that it runs, if any.
    """

    data: bytes
    in_full: Callable[[bool], bytes] | None = None
    is_owed: bool = False
    script: str = ""

    @classmethod
    def plain(cls, *arguments: Argument) -> Command:
        """A command that is no script."""
        return cls(pack(arguments))


class Script:
    """
    One ``.lua`` file of the package, sent by its hash.

    A server that restarted has forgotten it and is sent the source; that happens where the answer
    is read, so that callers never see it and nothing is done twice. Later commands may have been
    served by then, so what nobody waits for any more is only made known, not done.

    Args:
        name: The file's name without ``.lua``.
        late: Do it even then, and after an outage, since it is right at any later time.
    """

    def __init__(self, name: str, *, late: bool = False) -> None:
        self.name = name
        self._late = late
        self.source = _source(name)
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self._by_hash = pack_all(("EVALSHA", self.sha))
        self._in_full = pack_all(("EVAL", self.source))

    def command(self, keys: Sequence[str], arguments: Sequence[Argument]) -> Command:
        """The command that runs it on *keys* with *arguments*."""
        count = len(keys) + len(arguments) + 3
        packed = _pack_keys(tuple(keys)) if len(keys) <= FEW else pack_all((len(keys), *keys))
        packed_arguments = pack_all(arguments)

        def in_full(is_late: bool) -> bytes:
            if is_late and not self._late:
                return pack(("SCRIPT", "LOAD", self.source))
            return b"*%d\r\n%b%b%b" % (count, self._in_full, packed, packed_arguments)

        data = b"*%d\r\n%b%b%b" % (count, self._by_hash, packed, packed_arguments)
        return Command(data, in_full, self._late, self.name)

    def __repr__(self) -> str:
        return f"<Script {self.name}>"


@lru_cache(REMEMBERED)
def _pack_keys(keys: tuple[str, ...]) -> bytes:
    return pack_all((len(keys), *keys))


@cache
def _source(name: str) -> str:
    return files("celery_atomicity.scripts").joinpath(f"{name}.lua").read_text("utf-8")

"""
Which addresses are away, as all processes of a worker know it, so that only one of them says so.

A pool of sixteen meets one outage seventeen times, and the beat beside it once more. The page is
shared by all that are forked after this module was imported. It is for the log alone: each process
judges by itself whom it can reach. Two that meet an outage in the same instant may both say so.
"""

from __future__ import annotations

import mmap
import struct
import zlib

from celery_atomicity import clock, events

# So many bytes of memory, of which only the pages that are written to come into being: many places
# for few addresses, since two that share one would be said to be away once for both.
_SIZE = 1 << 20

# Of an address, on our clock: since when it is away (0.0: it is not), and when that was last seen;
# until when it sits out a restart, and which run of the server that is.
_AWAY = struct.Struct("=dd")
_RESTART = struct.Struct("=dL")
_PLACE = _AWAY.size + _RESTART.size
_PLACES = _SIZE // _PLACE

# Whoever saw it last may have been killed since. After so long, in seconds, it is said again.
STALE = 60.0

# Two ends of a run's grace that are nearer than this are one: servers count whole seconds.
SAME = 2.0

# When something else that is worth one line was last met, by what it is.
_MET = struct.Struct("=d")
_NEWS = _SIZE // _MET.size

_page = mmap.mmap(-1, _SIZE)
_news = mmap.mmap(-1, _SIZE)


def note(address: str, reason: object, *, first: bool) -> None:
    """*address* does not answer; *first*: this process had not noticed before."""
    now = clock.monotonic()
    at = _at(address)
    since, seen = _AWAY.unpack_from(_page, at)
    if since > 0.0 and (not first or now - seen < STALE):
        _AWAY.pack_into(_page, at, since, now)
    elif first:
        _AWAY.pack_into(_page, at, now, now)
        events.arbiter_away.tell(address=address, reason=str(reason))


def end(address: str, *, noticed: bool) -> None:
    """*address* answers; *noticed*: this process had noticed that it did not."""
    at = _at(address)
    since, seen = _AWAY.unpack_from(_page, at)
    if since > 0.0:
        _AWAY.pack_into(_page, at, 0.0, 0.0)
        now = clock.monotonic()
        if noticed or now - seen < STALE:
            events.arbiter_back.tell(address=address, seconds=now - since)


def sits_out(address: str, run: str, seconds: float) -> None:
    """This *run* of the server at *address* grants nothing for so many *seconds*."""
    at = _at(address) + _AWAY.size
    known = _RESTART.unpack_from(_page, at)
    until, mark = clock.monotonic() + seconds, zlib.crc32(run.encode())
    _RESTART.pack_into(_page, at, until, mark)
    if mark != known[1] or until - known[0] > SAME:
        events.arbiter_sits_out.tell(address=address, seconds=seconds)


def is_news(what: str) -> bool:
    """Whether nobody has met *what*, such as an error that a server answers with, of late."""
    now = clock.monotonic()
    at = zlib.crc32(what.encode()) % _NEWS * _MET.size
    (met,) = _MET.unpack_from(_news, at)
    _MET.pack_into(_news, at, now)
    news: bool = met == 0.0 or now - met > STALE
    return news


def _at(address: str) -> int:
    return zlib.crc32(address.encode()) % _PLACES * _PLACE

"""Asking aside, drawing, and doing what keys say."""

from __future__ import annotations

import io
import logging
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from celery_atomicity import clock
from celery_atomicity.integration.command.status import status_of
from celery_atomicity.integration.command.watch.frame import SORTS, Frame, frame_of
from celery_atomicity.integration.command.watch.terminal import PlainScreen, keyboard, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

    from celery_atomicity.integration.command.status import Status
    from celery_atomicity.integration.command.watch.pretty import RichScreen

# How often it is looked whether there is something new to draw, and drawn again all the same since
# time has passed; in seconds.
LOOK, REDRAW = 0.1, 1.0

PAGE = 10


class Screen(Protocol):
    """Where a frame is drawn."""

    def draw(self, frame: Frame, foot: str, size: tuple[int, int], skip: int) -> None:
        """Show *frame* on a screen of *size*, with *foot* in its last line."""


@dataclass(frozen=True)
class Answer:
    """What was found, and when; *problem* says why nothing new was."""

    status: Status | None = None
    at: float = 0.0
    problem: str = ""


class Asker:
    """Asks for the status every so many seconds, in a thread that keeps no process from ending."""

    def __init__(self, app: Celery, interval: float, timeout: float) -> None:
        self._app = app
        self._interval = interval
        self._timeout = timeout
        self._wake = threading.Event()
        self.answer = Answer()

    def start(self) -> None:
        """Begin to ask."""
        threading.Thread(target=self._run, name="atomicity-watch", daemon=True).start()

    def ask_now(self) -> None:
        """Do not wait until the next time."""
        self._wake.set()

    def _run(self) -> None:
        while True:
            began = clock.monotonic()
            try:
                self.answer = Answer(status_of(self._app, self._timeout), clock.wall())
            except Exception as error:  # noqa: BLE001
                # Whatever a server or a worker answers: it is shown, and asked again.
                old = self.answer
                self.answer = Answer(old.status, old.at, f"{type(error).__name__}: {error}")
            clock.wait(self._wake, began + self._interval - clock.monotonic())
            self._wake.clear()


@dataclass
class View:
    """What the keys have chosen."""

    sort: str = SORTS[0]
    skip: int = 0
    paused: bool = False
    over: bool = False

    def press(self, key: str) -> bool:
        """Take in a key; whether anything follows from it."""
        letters = {sort[0]: sort for sort in SORTS}
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -PAGE, "page down": PAGE}
        if key == "q":
            self.over = True
        elif key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif key in letters:
            self.sort = letters[key]
        elif key in steps:
            self.skip = max(0, self.skip + steps[key])
        elif key in ("p", " "):
            self.paused = not self.paused
        else:
            return False
        return True

    @property
    def foot(self) -> str:
        """What can be pressed."""
        sorts = " ".join(f"[{sort}]" if sort == self.sort else sort for sort in SORTS)
        return f"q quit  s sort: {sorts}  up/down scroll  p {'go on' if self.paused else 'pause'}"


def watch_app(app: Celery, *, interval: float, timeout: float, colours: bool, rich: bool) -> None:
    """Show the status of *app* until somebody quits."""
    # What is logged meanwhile, about the arbiter or the broker, must not be printed into it.
    logging.getLogger().addHandler(logging.NullHandler())
    # A terminal that cannot show a character shows a question mark.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    # However it is ended, the terminal is to be as it was before.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    asker = Asker(app, interval, timeout)
    asker.start()
    with (
        suppress(KeyboardInterrupt),
        keyboard() as keys,
        _screen(colours=colours, rich=rich) as screen,
    ):
        _watch(asker, keys.wait, screen)


def _watch(asker: Asker, wait: Callable[[float], str], screen: Screen) -> None:
    view, shown, drawn_at, drawn_size = View(), asker.answer, 0.0, (0, 0)
    while not view.over:
        pressed = view.press(wait(LOOK))
        if not view.paused:
            changed = shown is not asker.answer
            shown = asker.answer
        else:
            changed = False
        size, now = size_of(), clock.monotonic()
        if pressed or changed or size != drawn_size or now - drawn_at >= REDRAW:
            frame = _frame(shown, view)
            rows = sum(len(table.rows) for table in frame.tables)
            view.skip = min(view.skip, max(0, rows - 1))
            screen.draw(frame, view.foot, size, view.skip)
            drawn_at, drawn_size = now, size


def _frame(answer: Answer, view: View) -> Frame:
    now = answer.at if view.paused and answer.at else clock.wall()
    when = clock.utc(now)[11:19] + (" paused" if view.paused else "")
    if answer.status is None:
        return Frame(f"{when}  asking ...", (answer.problem,) * bool(answer.problem), ())
    frame = frame_of(answer.status, now, sort=view.sort, old=max(0.0, now - answer.at))
    problems = (*((answer.problem,) * bool(answer.problem)), *frame.problems)
    return Frame(f"{when}  {frame.title}", problems, frame.tables)


def _screen(*, colours: bool, rich: bool) -> PlainScreen | RichScreen:
    if rich:
        try:
            from celery_atomicity.integration.command.watch.pretty import (  # noqa: PLC0415 - an extra
                RichScreen,
            )
        except ImportError:
            pass
        else:
            return RichScreen(colours=colours)
    return PlainScreen(colours=colours)

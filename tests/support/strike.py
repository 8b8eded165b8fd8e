"""
Exceptions from outside, at any instant at which Python lets them in.

What a signal handler or another thread wants raised in a thread the interpreter raises at certain
points only: where a function of Python's begins, and where one of C's has returned to Python (or
where a loop turns back, which comes to the same, since all of ours call something). *Strike* raises
at one of these, by number, so that a test can go through them all.
"""

import sys
from pathlib import Path

import celery_atomicity

# Of the standard library what our code waits with; not what others run there.
OURS = str(Path(celery_atomicity.__file__).parent)
WAITS = ("/threading.py", "/contextlib.py", "/weakref.py")


class Struck(TimeoutError):
    """As an alarm's handler may raise; not to be taken for a server that does not answer."""


class Strike:
    """
    Raises at one of the points of what this thread does in its ``with`` block.

    Attributes:
        where: Where it struck; empty if there were fewer points.
    """

    def __init__(self, number):
        self._left = number
        self.where = ""

    def __enter__(self):
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _look(self, frame, event, argument):
        name = frame.f_code.co_filename
        if frame.f_code.co_name == "<genexpr>":
            return  # one that is closed early swallows whatever is raised in it
        if event not in ("call", "c_return") or not (name.startswith(OURS) or name.endswith(WAITS)):
            return
        if self._left == 0:
            called = f" after {argument.__name__}" if event == "c_return" else ""
            self.where = f"{Path(name).name}:{frame.f_lineno} {frame.f_code.co_name}{called}"
            sys.setprofile(None)
            raise Struck(self.where)
        self._left -= 1

"""
Runs the Python of pages, as their reader would: ``python -m support.page_run`` and JSON of them.

Each page runs in a process of its own, beside the others, and in a directory and a database of its
own. Its blocks share their names, and find an app and all that the package exports. A block that
begins with the name of a file is that file; what stands in it is known to those after it, and its
app is from then on the current one.
"""

import importlib
import json
import os
import sys
import tempfile
import traceback
from contextlib import ExitStack
from pathlib import Path

from celery import Celery

import celery_atomicity
from celery_atomicity import Assignment, Atomicity
from celery_atomicity.testing import wait_until
from support.pages import LOCALHOST, blocks_of


def run(page, before, after, leave_out):
    """
    Run the blocks of *page* between *before* and *after*; what they raise names its line.

    Those that begin with one of *leave_out* are not run.
    """
    names = {name: getattr(celery_atomicity, name) for name in celery_atomicity.__all__}
    names |= {"__name__": "page", "__file__": page}
    with ExitStack() as opened:
        names["app"] = take_part(
            Celery("page", broker="memory://", backend="cache+memory://"), opened
        )
        exec(compile(before, "before", "exec"), names)
        for block in blocks_of(page, "python"):
            if block.text.startswith(tuple(leave_out)):
                continue
            text = block.text.replace(LOCALHOST, os.environ["ATOMICITY_REDIS"])
            if block.file:
                Path(block.file).write_text(text)
                names |= vars(importlib.import_module(block.file.removesuffix(".py")))
                take_part(names["app"], opened)
            else:
                code = "\n" * (block.line - 1) + text
                exec(compile(code, page, "exec"), names)
        exec(compile(after, "after", "exec"), names)


def take_part(app, opened):
    """Have *app* own all slots until *opened* ends, as if it ran in the only worker."""
    atom = opened.enter_context(Atomicity(app).atom())
    wait_until(lambda: atom.assignment == Assignment(0, 1), 20, "we own every slot")
    return app


def in_child(number, page):
    """Fork a process that runs what *page* says; it ends with 1 if that raises."""
    child = os.fork()
    if not child:
        failed = 1
        try:
            with tempfile.TemporaryDirectory() as directory:
                os.chdir(directory)
                sys.path.insert(0, directory)
                os.environ["ATOMICITY_REDIS"] += f"/{number}"
                run(**page)
                failed = 0
        except BaseException:  # noqa: BLE001 - told, and the child ends in any case
            print(f"{page['page']}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        finally:
            os._exit(failed)
    return child


if __name__ == "__main__":
    children = [in_child(number, page) for number, page in enumerate(json.loads(sys.argv[1]))]
    ends = [os.waitpid(child, 0)[1] for child in children]
    sys.exit(any(ends))

"""The password of the tests' servers, and who has told it: no log and no error may."""

import logging
from urllib.parse import quote

from celery_atomicity.errors import AtomicityError, InvalidSetting

#: With what has to be written otherwise in a URL.
PASSWORD = "pa55word/of@the:tests"

_FORMS = (PASSWORD, quote(PASSWORD, safe=""), quote(PASSWORD))

#: What was found since somebody last asked.
_found = []


def look_at(where, text):
    """Note down what *text* shows of the password."""
    for form in _FORMS:
        at = text.find(form)
        if at >= 0:
            start = text.rfind("\n", 0, at) + 1
            shown = text[start : at + len(form)].replace(form, "<THE PASSWORD>")
            _found.append(f"{where}: {shown}")
            return


def look_at_record(record):
    """The same of all that a record of the log has: its text, its facts, its traceback."""
    text = logging.Formatter().format(record)
    look_at(f"the log of {record.name}", f"{text}\n{vars(record)}")


def found():
    """Who has told it since this was last asked."""
    told = list(_found)
    _found.clear()
    return told


def watch_errors():
    """Look at every error of the package from now on, also at those that are caught."""
    for kind in (AtomicityError, InvalidSetting):
        kind.__new__ = _new


def _new(cls, *args, **data):
    look_at(cls.__name__, f"{args} {data}")
    base = ValueError if issubclass(cls, InvalidSetting) else Exception
    return base.__new__(cls, *args)

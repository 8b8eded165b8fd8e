"""
``celery -A proj atomicity watch``: the status, live, on the whole screen.

    frame      a status as titles, columns and rows: pure
    layout     a frame as lines of a terminal's width and height: pure
    pretty     the same by rich, where that is installed
    terminal   the terminal: its size, its keys, and what stands on it
    loop       asking aside, drawing, and doing what keys say
"""

"""
``celery -A proj atomicity watch``: the status, live, on the whole screen.

    frame      a status as titles, columns and rows: pure
    layout     a frame as lines of a terminal's width and height: pure
    terminal   the terminal: its size, its keys, and drawing lines on it
    pretty     drawing them by rich, where that is installed
    loop       asking aside, drawing, and doing what keys say
"""

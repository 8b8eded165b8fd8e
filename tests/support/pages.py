"""The pages of the documentation, and the blocks of code in them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

PAGES = {
    page.relative_to(ROOT).as_posix(): page
    for page in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "examples").glob("*/README.md")),
    )
}

# What the pages write for an arbiter, and stands for one that runs.
LOCALHOST = "redis://localhost:6379/0"

_BLOCK = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """One block: *line* is that of its first line of code, *language* is empty if not said."""

    page: str
    line: int
    language: str
    text: str

    @property
    def file(self):
        """The name of the file that its first line says it is; None: it is none."""
        found = re.match(r"# (\w+\.py)$", self.text.partition("\n")[0])
        return found[1] if found else None


def blocks_of(page, language=None):
    """The blocks of *page*, all or those of one *language*, in order."""
    text = PAGES[page].read_text()
    found = (
        Block(page, text.count("\n", 0, match.start(2)) + 1, match[1], match[2])
        for match in _BLOCK.finditer(text)
    )
    return [block for block in found if language in (None, block.language)]

"""What was found, as lines of plain text, at most 80 columns wide."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from celery_atomicity.integration.command.text import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from celery_atomicity.checkup import Finding, Level

# The column in which what is said begins.
INDENT = 11


def finding_lines(findings: Sequence[Finding]) -> Iterator[tuple[str, Level | None]]:
    """
    *findings* by where they are, in the order in which these are first named.

    With each line the level of the finding that it begins; None: it begins none.
    """
    places = list(dict.fromkeys(finding.where for finding in findings))
    in_order = sorted(findings, key=lambda finding: places.index(finding.where))
    for where, those in groupby(in_order, key=lambda finding: finding.where):
        yield where, None
        for finding in those:
            first, *rest = wrapped(f"  {finding.level.value:8} {finding.said}", under=INDENT)
            yield first, finding.level
            for line in rest:
                yield line, None
            if finding.remedy:
                for line in wrapped(f"{'':{INDENT}}-> {finding.remedy}", under=INDENT):
                    yield line, None

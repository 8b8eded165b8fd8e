"""What benchmarks/ makes of its figures: ratios, verdicts, table, page and pictures. No timing."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.strict import STRICT

from benchmarks import page, plot, report, targets
from benchmarks.__main__ import SCRIPTS
from benchmarks.report import Curve, Results, Run, Target

ROOT = Path(__file__).parents[2]


@pytest.fixture
def results():
    """Two cases held against one, of which one misses its target, and a curve."""
    found = Results(machine="a machine", command="make bench")
    section = found.section("Take & let go")
    section.add("bare", 100.0, p99=200.0, basis="bare")
    section.add(
        "celery-atomicity", 130.0, p99=210.0, basis="bare", target=Target(1.25, why="Work.")
    )
    section.add("redis-py Lock", 300.0, basis="bare", target=Target(2.0, at_least=True))
    section.notes.append("pottery is not installed and left out")
    found.curves.append(Curve("Growth", "clients", "a second", {"ours": [(1, 10.0), (64, 90.0)]}))
    return found


def rows(results):
    return {row.case: row for _, row in results.rows()}


def test_a_row_is_held_against_its_basis(results):
    ours = rows(results)["celery-atomicity"]

    assert ours.ratio == pytest.approx(1.3)
    assert ours.late == pytest.approx(1.05)
    assert rows(results)["bare"].ratio == 1.0
    assert rows(results)["redis-py Lock"].late is None


def test_samples_become_medians_and_99th_percentiles():
    section = Results().section("s")

    section.add_samples({"few": [1.0, 2.0, 9.0], "many": list(range(200))}, basis="few")

    few, many = section.rows
    assert (few.median, few.p99) == (2.0, None)
    assert (many.median, many.p99, many.ratio) == (99.5, 198, 49.75)


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        (None, ""),
        (Target(1.3), "ok"),
        (Target(1.29), "missed"),
        (Target(1.4, of="both"), "ok"),
        (Target(1.35, of="both"), "missed"),  # by its 99th percentile
        (Target(1.3, at_least=True), "ok"),
        (Target(1.31, at_least=True), "missed"),
        (Target(130, of="median"), "ok"),
        (Target(129, of="median"), "missed"),
    ],
    ids=str,
)
def test_a_target_is_met_or_missed(target, verdict):
    section = Results().section("s")
    section.add("basis", 100.0, p99=100.0)

    row = section.add("case", 130.0, p99=140.0, basis="basis", target=target)

    assert row.verdict == verdict


def test_a_target_without_a_figure_is_missed():
    row = Results().section("s").add("case", 1.0, target=Target(2.0))

    assert row.verdict == "missed"


def test_results_come_back_from_json(results):
    again = Results.load(results.dump())

    assert again.rows() == results.rows()
    assert [section.notes for section in again.sections] == [
        section.notes for section in results.sections
    ]
    assert plot.growth(again.curves) == plot.growth(results.curves)


def test_the_table_has_all_rows_and_counts_the_targets(results):
    told = report.table(results)

    assert "a machine" in told
    assert re.search(r"celery-atomicity +130 us +210 +1\.30  <= 1\.25: missed", told)
    assert "(pottery is not installed and left out)" in told
    assert told.endswith("targets: 1 met, 1 missed")


@pytest.mark.parametrize("draw", [plot.ratios, lambda found: plot.growth(found.curves)])
def test_the_pictures_are_svg_within_their_frame(results, draw):
    root = ET.fromstring(draw(results))

    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    width, height = float(root.get("width")), float(root.get("height"))
    for dot in root.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 < float(dot.get("cx")) < width
        assert 0 < float(dot.get("cy")) < height
    words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Take & let go" in words or "Growth" in words


def test_the_page_says_what_was_missed_and_why(results):
    told = page.page(results, quick=False)

    missed = told.split("## Targets that are missed")[1].split("\n## ")[0]
    assert "*Take & let go*, celery-atomicity: 1.30, wanted at most 1.25" in missed
    assert "Work." in missed
    assert "1 missed" in told
    assert "Do not quote" not in told
    assert "Do not quote" in page.page(results, quick=True)


def test_a_run_is_thorough_or_quick():
    assert Run(quick=True, results=Results()).times(100, 5) == 5
    assert Run(quick=False, results=Results()).times(100, 5) == 100


def test_every_script_can_be_imported_and_measures():
    names = ", ".join(SCRIPTS)
    code = f"from benchmarks import {names}, correctness\n"
    code += f"assert all(callable(one.measure) for one in ({names}))"

    subprocess.run([sys.executable, *STRICT, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_every_target_is_measured():
    scripts = "".join((ROOT / "benchmarks" / f"{name}.py").read_text() for name in SCRIPTS)
    names = [name for name, value in vars(targets).items() if isinstance(value, Target)]

    assert len(names) >= 14
    assert [name for name in names if f"targets.{name}" not in scripts] == []


def test_the_page_in_docs_has_its_pictures_and_names_its_command():
    told = (ROOT / "docs" / "benchmarks.md").read_text()
    pictures = re.findall(r"\]\((images/[^)]+)\)", told)

    assert len(pictures) == 2
    assert all((ROOT / "docs" / picture).exists() for picture in pictures)
    assert re.search(r"`(make bench|python -m benchmarks[^`]*)` made this page", told)

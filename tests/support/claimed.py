"""What becomes of a figure's claims with invented results."""

from __future__ import annotations

from pathlib import Path

import msgspec

from testbed.report import chapters, figures, sections, verdicts
from testbed.report.grading import Graded


def graded(id: str, results: Path, out: Path, seeds: int = 3) -> dict[str, Graded]:
    """By id; as few seeds as ``seeds`` and any number of iterations are enough."""
    section = sections.one(figures.find(id), results, out / "figures")
    assert section.problems == ()
    chapter = chapters.make_chapter(section, results, out)
    asked = [
        msgspec.structs.replace(claim, needs=min(claim.needs, seeds), iterations=0, open="")
        for claim in figures.claims().claim
        if claim.figure == id
    ]
    found, problems = verdicts.of_chapters(asked, {id: chapter}, out)
    assert problems == []
    return {one.claim.id: one for one in found}

"""What a figure says of one claim: a row of the report's first table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Literal

from testbed.core.runs.load import LoadError
from testbed.report.study import Study

Verdict = Literal["reproduced", "partly", "no difference", "not reproduced", "not measured"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "partly", "no difference", "not reproduced", "not measured")
ALIKE = 0.02  # a ratio that is surely within 2 % of 1 is no difference


@dataclass(frozen=True)
class Finding:
    """One claim, and what was measured of it.

    A verdict follows from the data by a criterion that ``reason`` states with its numbers, never from
    anything written down beforehand.
    """

    claim: str  # as the source has it, one sentence
    source: str  # where it stands and how sure that is: "paper, abstract [published]", "[recalled, unconfirmed]", "derived here"
    measured: str  # one sentence, with units
    value: float | None  # the number that stands for it
    unit: str  # what that number is, as it is read after it: "× as fast, last ten iterations", "of the link"; "" without one
    interval: tuple[float, float] | None  # of it, 95 % over seeds; None below three seeds
    seeds: int
    verdict: Verdict
    reason: str  # the criterion, and how the data stand to it
    runs: tuple[Path, ...]  # the run directories behind it
    control: str = (
        ""  # on what the claim fails, as tests/unit/report/test_controls.py shows; from the figure's CONTROLS
    )


def not_measured(claim: str, source: str, reason: str) -> Finding:
    """A claim for which there are no results, and why."""
    return Finding(claim, source, "–", None, "", None, 0, "not measured", reason, ())


def not_measured_without(
    sources: Mapping[str, str],
) -> Callable[[Callable[[Study], list[Finding]]], Callable[[Study], list[Finding]]]:
    """For a figure's `find`: if the results that it reads are missing (`LoadError`), none of these claims is measured, for that reason."""

    def decorated(find: Callable[[Study], list[Finding]]) -> Callable[[Study], list[Finding]]:
        @wraps(find)
        def found(study: Study) -> list[Finding]:
            try:
                return find(study)
            except LoadError as error:
                return [not_measured(claim, source, str(error)) for claim, source in sources.items()]

        return found

    return decorated


def graded(reproduced: bool, partly: bool, *, alike: bool = False) -> Verdict:
    """The verdict of a criterion with two steps. ``alike``: MLTCP does it and its base as well, so that nothing is shown of MLTCP."""
    if alike:
        return "no difference"
    return "reproduced" if reproduced else "partly" if partly else "not reproduced"


def no_difference(ends: tuple[float, float]) -> bool:
    """Whether a ratio with these ends is surely 1, as far as anybody would care."""
    return ends[0] >= 1 - ALIKE and ends[1] <= 1 + ALIKE

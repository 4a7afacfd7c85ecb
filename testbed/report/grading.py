"""Compute the verdict of a claim from the claim and its cases.

A verdict is undecided with fewer seeds than a claim needs, or if an interval contains a boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from typing import Literal

import msgspec

from testbed.models.statistics import proportion
from testbed.report.claims import FEWEST_SEEDS, Claim

Verdict = Literal["reproduced", "partly", "no difference", "not reproduced", "undecided", "not measured"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "partly", "no difference", "not reproduced", "undecided", "not measured")
MARKS = {
    "reproduced": "✓",
    "partly": "◐",
    "no difference": "=",
    "not reproduced": "✗",
    "undecided": "?",
    "not measured": "–",
}
ALIKE = 0.02  # a ratio whose interval is within 2 % of 1 is no difference
FULL, HALF = 0.9, 0.5  # fractions of the logarithm of the claimed ratio
MOST = 0.95  # fraction of the runs; a smaller one contradicts "every"
MANY = 1000  # more runs than anybody makes
Side = Literal["inside", "outside", "both"]


@dataclass(frozen=True)
class Case:
    """One setting in which a claim was measured: a number and its 95 % interval, over so many seeds."""

    name: str
    value: float
    low: float | None
    high: float | None
    seeds: int
    iterations: int = 0  # behind a 99th percentile
    like: tuple[object, ...] = ()  # cases with the same are one

    @property
    def text(self) -> str:
        """``1.48 (1.44 to 1.53)``."""
        return f"{self.value:.3g}" + (
            "" if self.low is None or self.high is None else f" ({self.low:.3g} to {self.high:.3g})"
        )


@dataclass(frozen=True)
class Graded:
    """A claim, its verdict, and the case that represents it (None: nothing was measured)."""

    claim: Claim
    verdict: Verdict
    case: Case | None
    cases: int
    independent: int
    holds: int  # number of cases in which it holds
    why: str  # reason of an undecided verdict
    control: Graded | None = None  # the same, of MLTCP with F = 1
    beside: Graded | None = None  # the same of another arm
    learning: Case | None = None  # the representative case, with the iterations in which MLTCP still learns
    slower: tuple[Case, ...] = ()  # cases whose complete interval is slower than the comparison

    @property
    def held_against(self) -> str:
        """The control, and what came of it where it is an arm of the same experiment."""
        if self.control is None or self.control.case is None:
            return self.claim.control
        return f"{self.claim.control}: {self.control.case.text}, {self.control.verdict}"

    @property
    def criterion(self) -> str:
        """The measure of its verdict, in words."""
        needed = (f"; {self.claim.needs} {_repeats(self.claim)} or more" if self.claim.needs else "") + (
            f", {self.claim.iterations:,} iterations or more" if self.claim.iterations else ""
        )
        return (
            f"{_CRITERIA[self.claim.kind].format(bound=self.claim.bound)}{needed}"
            + (f". All iterations, learning included: {self.learning.text}" if self.learning else "")
            + (f". Undecided: {self.why}" if self.why else "")
        )


_CRITERIA = {
    "magnitude": "log(measured) ÷ log({bound}) is at least 0.9 (partly: 0.5), and its interval above 0.5; the largest of the cases counts",
    "universal": "{bound} in every case; the worst case counts",
    "bound": "the interval lies within {bound}",
    "existence": "the interval of one case at least lies within {bound}; the best case counts",
}


def grade(
    claim: Claim, cases: Sequence[Case], base: Sequence[Case] = (), control: Sequence[Case] = (), learning: Sequence[Case] = (),
) -> Graded:  # fmt: skip
    """Return the graded claim.

    ``base``: the same cases under the base, which may do as well. ``control``: under MLTCP with F = 1, where the claim
    must fail. ``learning``: with the iterations in which MLTCP still learns.
    """
    independent = len({case.like or (case.name, case.value) for case in cases})
    enough = [case for case in cases if _is_enough(claim, case)]
    if not cases:
        return Graded(claim, "not measured", None, 0, 0, 0, "")
    judge = _magnitude if claim.kind == "magnitude" else _existence if claim.kind == "existence" else _universal
    verdict, case = judge(claim, enough or cases, all_there=len(enough) == len(cases))
    holds = sum(_side(claim, each) == "inside" for each in cases)
    most = judge(claim, cases, all_there=True)[1]
    why = ""
    against = grade(msgspec.structs.replace(claim, open=""), control) if control else None
    if verdict == "reproduced" and base and judge(claim, base, all_there=True)[0] == "reproduced":
        verdict = "no difference"
    if claim.open:
        verdict, why = "undecided", claim.open
    elif (
        verdict == "undecided"
        or not enough
        or (claim.kind == "magnitude" and most not in enough and verdict != "reproduced")
    ):
        verdict, why, case = "undecided", _missing(claim, cases, enough, most), most
    elif verdict in ("reproduced", "partly") and against and against.verdict in ("reproduced", "partly"):
        verdict, why = "undecided", "MLTCP with F = 1 does so, too"
    found = next((one for one in learning if one.name == case.name), None)
    return Graded(
        claim, verdict, case, len(cases), independent, holds, why, against, learning=found, slower=slower(claim, cases)
    )


def slower(claim: Claim, cases: Sequence[Case]) -> tuple[Case, ...]:
    """Return the cases whose complete interval is on the slow side of 1, beyond the tolerance; slowest first.

    Only for claims that compare speeds. The slow side is the one opposite to the claim.
    """
    sign = _faster(claim)
    found = [
        case
        for case in cases
        if case.low is not None
        and case.high is not None
        and (case.high < 1 - ALIKE if sign > 0 else case.low > 1 + ALIKE)
    ]
    return tuple(sorted(found, key=lambda case: sign * case.value)) if sign else ()


def _faster(claim: Claim) -> int:
    """1: a larger number is faster; -1: a smaller one; 0: the number compares no speeds."""
    compares = bool(claim.measure.numerator) if claim.speed is None else claim.speed
    asks_more, asks_less = (
        any(bound is not None for bound in bounds)
        for bounds in ((claim.above, claim.at_least), (claim.below, claim.at_most))
    )
    if not compares or (asks_more == asks_less and claim.claimed is None):
        return 0
    return 1 if asks_more or (claim.claimed or 0) > 1 else -1


def _is_enough(claim: Claim, case: Case) -> bool:
    return case.seeds >= claim.needs and case.low is not None and case.iterations >= claim.iterations


def _missing(claim: Claim, cases: Sequence[Case], enough: Sequence[Case], stands: Case) -> str:
    """Why a claim is undecided, and how many more runs of each system it would take."""
    lacking = [case for case in cases if case not in enough]
    if not lacking:
        some = (
            [stands]
            if claim.kind in ("magnitude", "existence")
            else [one for one in cases if _side(claim, one) == "both"]
        )
        more = _together(claim, [_until_apart(claim, case) for case in some or [stands]])
        few = f"more than {MANY:,} {_runs(claim, 2)}" if more > MANY else f"about {more:,} more {_runs(claim, more)}"
        return f"the interval lies on both sides of a boundary; if the numbers stay, it takes {few}"
    fewest = min(lacking, key=lambda case: (case.seeds, case.iterations))
    has = (
        f"{fewest.seeds} of {claim.needs} {_repeats(claim)}"
        if fewest.seeds < claim.needs
        else f"{fewest.iterations:,} of {claim.iterations:,} iterations"
        if fewest.iterations < claim.iterations
        else "no interval"
    )
    where = f"{len(lacking)} of {len(cases)} cases have " if len(cases) > 1 else ""
    more = _together(claim, [_until_enough(claim, case) for case in lacking])
    return f"{where}{has}; it takes {more:,} more {_runs(claim, more)}"


def _together(claim: Claim, runs: Sequence[int]) -> int:
    """Every case has separate runs; a list of jobs serves them all."""
    return max(runs) if claim.needs > FEWEST_SEEDS else sum(runs)


def _runs(claim: Claim, count: int) -> str:
    what = "random job list" if claim.needs > FEWEST_SEEDS else "run"
    return what + ("" if count == 1 else "s") + ("" if claim.needs > FEWEST_SEEDS else " of each system")


def _repeats(claim: Claim) -> str:
    return "random job lists" if claim.needs > FEWEST_SEEDS else "seeds"


def _until_enough(claim: Claim, case: Case) -> int:
    """Seeds until a case has enough of them, enough iterations, and an interval."""
    iterations = ceil(claim.iterations * case.seeds / case.iterations) - case.seeds if case.iterations else 0
    return max(1, claim.needs - case.seeds, iterations)


def _until_apart(claim: Claim, case: Case) -> int:
    """Seeds until an interval that shrinks with their root leaves the boundary that it covers, if its value stays."""
    assert case.low is not None and case.high is not None
    if claim.measure.average == "every":
        return next((more for more in range(1, MANY) if _proportion(case.value, case.seeds + more) < MOST), MANY + 1)
    scale = log if claim.measure.average == "geometric" and min(case.value, case.low) > 0 else float
    found = 0
    for edge in _edges(claim):
        if case.low <= edge <= case.high:
            away, end = abs(scale(edge) - scale(case.value)), case.low if edge < case.value else case.high
            needed = case.seeds * ((scale(end) - scale(case.value)) / away) ** 2 if away else inf
            found = max(found, ceil(min(needed, MANY + 1 + case.seeds)) - case.seeds, 1)
    return found


def _proportion(value: float, runs: int) -> float:
    """The upper end of a proportion's interval."""
    found = proportion(round(value * runs), runs).interval
    return 1.0 if found is None else found[1]


def _edges(claim: Claim) -> list[float]:
    """Where verdicts change."""
    if claim.claimed is not None:
        return [claim.claimed**HALF]
    return [edge for edge in (claim.above, claim.below, claim.at_least, claim.at_most) if edge is not None]


def reach(claim: Claim, ratio: float) -> float:
    """Return the fraction of a claimed magnitude, on a logarithmic scale: 1 is all of it, 0 a ratio of 1."""
    return log(ratio) / log(claim.claimed or inf) if ratio > 0 else -inf


def _magnitude(claim: Claim, cases: Sequence[Case], *, all_there: bool) -> tuple[Verdict, Case]:
    """Grade a magnitude by the case that reaches most of it."""
    del all_there  # one case suffices for a claim about one case
    case = max(cases, key=lambda case: reach(claim, case.value))
    if case.low is None or case.high is None:
        return "undecided", case
    low, high = sorted(reach(claim, end) for end in (case.low, case.high))
    full = reach(claim, case.value)
    if _is_no_difference(case):
        return "no difference", case
    if full >= HALF and low > HALF:
        return ("reproduced" if full >= FULL else "partly"), case
    return ("not reproduced" if high < HALF else "undecided"), case


def _universal(claim: Claim, cases: Sequence[Case], *, all_there: bool) -> tuple[Verdict, Case]:
    """Grade a claim about all cases by the one whose interval is farthest outside."""
    sides = [_side(claim, case) for case in cases]
    worst = min(cases, key=lambda case: _least_margin(claim, case))
    if all_there and claim.measure.numerator and _asks_for_a_difference(claim) and all(map(_is_no_difference, cases)):
        return "no difference", worst
    if "outside" in sides:
        beyond = [case for case, side in zip(cases, sides, strict=True) if side == "outside"]
        return "not reproduced", min(beyond, key=lambda case: _margin(claim, case.value))
    return ("reproduced" if all_there and all(side == "inside" for side in sides) else "undecided"), worst


def _existence(claim: Claim, cases: Sequence[Case], *, all_there: bool) -> tuple[Verdict, Case]:
    """Grade a claim about some case by the one whose interval is farthest inside."""
    sides = [_side(claim, case) for case in cases]
    best = max(cases, key=lambda case: _least_margin(claim, case))
    if "inside" in sides:
        return "reproduced", best
    return ("not reproduced" if all_there and all(side == "outside" for side in sides) else "undecided"), best


def _side(claim: Claim, case: Case) -> Side:
    """On which side of the bound an interval lies; of a magnitude: whether all of it is reached."""
    if case.low is None or case.high is None:
        return "both"
    if claim.kind == "magnitude":
        return "inside" if reach(claim, case.value) >= FULL else "both"
    if claim.measure.average == "every":
        return "inside" if case.value == 1 else "outside" if case.high < MOST else "both"
    ends = [_is_within(claim, end) for end in (case.low, case.high)]
    if all(ends):
        return "inside"
    over = [end for end in (case.low, case.high) if _is_over(claim, end)]
    under = [end for end in (case.low, case.high) if _is_under(claim, end)]
    return "outside" if 2 in (len(over), len(under)) else "both"


def _is_within(claim: Claim, value: float) -> bool:
    return not _is_over(claim, value) and not _is_under(claim, value)


def _is_over(claim: Claim, value: float) -> bool:
    return (claim.at_most is not None and value > claim.at_most) or (claim.below is not None and value >= claim.below)


def _is_under(claim: Claim, value: float) -> bool:
    return (claim.at_least is not None and value < claim.at_least) or (claim.above is not None and value <= claim.above)


def _margin(claim: Claim, value: float) -> float:
    """How far inside its bounds a number is; below 0, outside."""
    least = claim.above if claim.above is not None else claim.at_least
    most = claim.below if claim.below is not None else claim.at_most
    if claim.measure.average == "every":
        return value
    return min(value - least if least is not None else inf, most - value if most is not None else inf)


def _least_margin(claim: Claim, case: Case) -> float:
    if claim.measure.average == "every":  # no inference about runs that were not made
        return case.value
    return min(_margin(claim, end) for end in (case.value, case.low, case.high) if end is not None)


def _asks_for_a_difference(claim: Claim) -> bool:
    return not _is_within(claim, 1.0)


def _is_no_difference(case: Case) -> bool:
    return case.low is not None and case.high is not None and case.low >= 1 - ALIKE and case.high <= 1 + ALIKE

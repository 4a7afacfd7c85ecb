"""The verdict of a claim: one function for all of them, from the claim and its cases.

Nothing is decided by fewer seeds than a claim needs, nor where an interval lies on both sides of a boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Literal

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
ALIKE = 0.02  # a ratio that is surely within 2 % of 1 is no difference
FULL, HALF = 0.9, 0.5  # of the logarithm of the claimed ratio
MOST = 0.95  # of the runs: fewer contradict "every"
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


@dataclass(frozen=True)
class Graded:
    """A claim, its verdict, and the case that stands for it (None: nothing was measured)."""

    claim: Claim
    verdict: Verdict
    case: Case | None
    cases: int
    independent: int
    holds: int  # in how many cases
    why: str  # a verdict is undecided

    @property
    def criterion(self) -> str:
        """By what it was judged, in words."""
        needed = (f"; {self.claim.needs} {_repeats(self.claim)} or more" if self.claim.needs else "") + (
            f", {self.claim.iterations:,} iterations or more" if self.claim.iterations else ""
        )
        return f"{_CRITERIA[self.claim.kind].format(bound=self.claim.bound)}{needed}" + (
            f". Undecided: {self.why}" if self.why else ""
        )


_CRITERIA = {
    "magnitude": "log(measured) ÷ log({bound}) is at least 0.9 (partly: 0.5), and its interval above 0.5; the largest of the cases counts",
    "universal": "{bound} in every case; the worst case counts",
    "bound": "the interval lies within {bound}",
    "existence": "the interval of one case at least lies within {bound}; the best case counts",
}


def grade(claim: Claim, cases: Sequence[Case], base: Sequence[Case] = ()) -> Graded:
    """The verdict; ``base``: the same cases under the base, which may do as well."""
    independent = len({case.like or (case.name, case.value) for case in cases})
    enough = [case for case in cases if _is_enough(claim, case)]
    if not cases:
        return Graded(claim, "not measured", None, 0, 0, 0, "")
    judge = _magnitude if claim.kind == "magnitude" else _existence if claim.kind == "existence" else _universal
    verdict, case = judge(claim, enough or cases, all_there=len(enough) == len(cases))
    holds = sum(_side(claim, each) == "inside" for each in cases)
    why = ""
    if verdict == "reproduced" and base and judge(claim, base, all_there=True)[0] == "reproduced":
        verdict = "no difference"
    if claim.open:
        verdict, why = "undecided", claim.open
    elif verdict == "undecided" or not enough:
        verdict, why = "undecided", _missing(claim, cases, enough)
        case = judge(claim, cases, all_there=True)[1]
    return Graded(claim, verdict, case, len(cases), independent, holds, why)


def _is_enough(claim: Claim, case: Case) -> bool:
    return case.seeds >= claim.needs and case.low is not None and case.iterations >= claim.iterations


def _repeats(claim: Claim) -> str:
    return "drawn job lists" if claim.needs > FEWEST_SEEDS else "seeds"


def _missing(claim: Claim, cases: Sequence[Case], enough: Sequence[Case]) -> str:
    few = min(case.seeds for case in cases)
    if few < claim.needs:
        few_of = f"{few} of {claim.needs} {_repeats(claim)}"
        return f"{len(cases) - len(enough)} of {len(cases)} cases have {few_of}" if len(cases) > 1 else few_of
    if len(enough) < len(cases):
        return "no interval, or too few iterations"
    return "the interval lies on both sides of a boundary"


def reach(claim: Claim, ratio: float) -> float:
    """How much of a magnitude that is: 1, all of it; 0, a ratio of 1."""
    return log(ratio) / log(claim.claimed or inf) if ratio > 0 else -inf


def _magnitude(claim: Claim, cases: Sequence[Case], *, all_there: bool) -> tuple[Verdict, Case]:
    """The case that reaches most stands for it."""
    del all_there  # what was claimed of one case may be shown by one
    case = max(cases, key=lambda case: reach(claim, case.value))
    if case.low is None or case.high is None:
        return "undecided", case
    low, high = sorted(reach(claim, end) for end in (case.low, case.high))
    full = reach(claim, case.value)
    if _is_alike(case):
        return "no difference", case
    if full >= HALF and low > HALF:
        return ("reproduced" if full >= FULL else "partly"), case
    return ("not reproduced" if high < HALF else "undecided"), case


def _universal(claim: Claim, cases: Sequence[Case], *, all_there: bool) -> tuple[Verdict, Case]:
    """The case whose interval is least inside stands for it."""
    sides = [_side(claim, case) for case in cases]
    worst = min(cases, key=lambda case: _least_margin(claim, case))
    if all_there and claim.measure.numerator and _asks_for_a_difference(claim) and all(map(_is_alike, cases)):
        return "no difference", worst
    if "outside" in sides:
        beyond = [case for case, side in zip(cases, sides, strict=True) if side == "outside"]
        return "not reproduced", min(beyond, key=lambda case: _margin(claim, case.value))
    return ("reproduced" if all_there and all(side == "inside" for side in sides) else "undecided"), worst


def _existence(claim: Claim, cases: Sequence[Case], *, all_there: bool) -> tuple[Verdict, Case]:
    """The case whose interval is farthest inside stands for it."""
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
    if claim.measure.average == "every":  # nothing is inferred of runs that were not made
        return case.value
    return min(_margin(claim, end) for end in (case.value, case.low, case.high) if end is not None)


def _asks_for_a_difference(claim: Claim) -> bool:
    return not _is_within(claim, 1.0)


def _is_alike(case: Case) -> bool:
    return case.low is not None and case.high is not None and case.low >= 1 - ALIKE and case.high <= 1 + ALIKE

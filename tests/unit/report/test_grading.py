"""One function grades every claim: magnitudes by logarithms, all others by bounds, and nothing by an interval on both sides of a boundary."""

from __future__ import annotations

from math import log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.report.claims import Claim, Measure
from testbed.report.grading import Case, grade, reach


def claim(kind: str, average: str = "geometric", *, ratio: bool = False, **fields: Any) -> Claim:
    measure = Measure("x", average=average, numerator="a" if ratio else "", denominator="b" if ratio else "")  # type: ignore[arg-type]
    return Claim("x", "ours", "", "ours", kind, "x", measure, **fields)  # type: ignore[arg-type]


def case(low: float, value: float, high: float, seeds: int = 5, **fields: Any) -> Case:
    return Case("", value, low, high, seeds, **fields)


@pytest.mark.parametrize(
    ("claimed", "ends", "verdict"),
    [
        (4.0, (3.49, 4.15, 4.97), "reproduced"),
        (4.0, (2.80, 2.97, 3.23), "partly"),
        (4.0, (1.90, 2.97, 3.23), "undecided"),  # the interval's lower end is below half
        (4.0, (1.73, 1.76, 1.78), "not reproduced"),
        (4.0, (1.73, 1.76, 2.10), "undecided"),
        (4.0, (0.99, 1.00, 1.01), "no difference"),
        (0.5, (0.48, 0.50, 0.55), "reproduced"),  # what is to become smaller
        (0.5, (0.90, 0.95, 0.97), "not reproduced"),
        (1.622, (1.197, 1.424, 1.695), "undecided"),
    ],
)
def test_a_magnitude_is_graded_by_its_logarithm(claimed: float, ends: tuple[float, float, float], verdict: str) -> None:
    assert grade(claim("magnitude", claimed=claimed), [case(*ends)]).verdict == verdict


@given(st.floats(1.1, 30), st.floats(0.5, 40), st.floats(0, 1), st.floats(0, 1))
def test_no_decided_magnitude_straddles_half_of_what_is_claimed(
    claimed: float, value: float, under: float, over: float
) -> None:
    asked = claim("magnitude", claimed=claimed)
    found = grade(asked, [case(value / (1 + under), value, value * (1 + over))])
    assert found.case is not None and found.case.low is not None and found.case.high is not None
    low, high = reach(asked, found.case.low), reach(asked, found.case.high)
    assert (found.verdict in ("undecided", "no difference")) or low > 0.5 or high < 0.5
    assert reach(asked, value) == pytest.approx(log(value) / log(claimed))


@pytest.mark.parametrize(
    ("cases", "verdict"),
    [
        ([case(1.1, 1.2, 1.3), case(1.05, 1.1, 1.2)], "reproduced"),
        ([case(1.1, 1.2, 1.3), case(0.9, 1.1, 1.2)], "undecided"),
        ([case(1.1, 1.2, 1.3), case(0.9, 0.95, 0.99)], "not reproduced"),
        ([case(0.99, 1.0, 1.01), case(0.985, 0.99, 1.0)], "no difference"),
        ([case(1.1, 1.2, 1.3, seeds=4), case(1.1, 1.2, 1.3)], "undecided"),
        ([case(0.9, 0.95, 0.99, seeds=4), case(1.1, 1.2, 1.3)], "undecided"),
        ([], "not measured"),
    ],
)
def test_a_universal_claim_holds_in_every_case(cases: list[Case], verdict: str) -> None:
    assert grade(claim("universal", above=1.0, ratio=True), cases).verdict == verdict


@pytest.mark.parametrize(
    ("cases", "verdict"),
    [
        ([case(1.1, 1.2, 1.3), case(0.9, 0.95, 0.99)], "reproduced"),
        ([case(0.8, 1.2, 1.3), case(0.9, 0.95, 0.99)], "undecided"),
        ([case(0.8, 0.9, 0.95), case(0.9, 0.95, 0.99)], "not reproduced"),
    ],
)
def test_one_case_shows_that_something_exists(cases: list[Case], verdict: str) -> None:
    assert grade(claim("existence", above=1.0), cases).verdict == verdict


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [((0.97, 0.99, 1.01), "reproduced"), ((0.97, 1.0, 1.2), "undecided"), ((1.1, 1.2, 1.3), "not reproduced"), ((0.6, 0.7, 0.8), "not reproduced")],
)  # fmt: skip
def test_a_bound_holds_what_lies_within_it(ends: tuple[float, float, float], verdict: str) -> None:
    assert grade(claim("bound", at_least=0.95, at_most=1.05), [case(*ends)]).verdict == verdict


@pytest.mark.parametrize(
    ("runs", "verdict"), [((5, 5), "reproduced"), ((4, 5), "undecided"), ((1, 5), "not reproduced")]
)
def test_every_run_is_asked_for(runs: tuple[int, int], verdict: str) -> None:
    from testbed.models.statistics import proportion  # noqa: PLC0415

    found = proportion(*runs)
    assert found.interval is not None
    one = case(found.interval[0], found.value, found.interval[1], seeds=runs[1])
    assert grade(claim("universal", "every"), [one]).verdict == verdict


def test_what_the_base_does_as_well_is_no_difference() -> None:
    asked, good, bad = claim("bound", at_most=1.05), case(0.99, 1.0, 1.01), case(1.3, 1.4, 1.5)
    assert grade(asked, [good], [good]).verdict == "no difference"
    assert grade(asked, [good], [bad]).verdict == "reproduced"


def test_a_reason_leaves_a_claim_open() -> None:
    found = grade(claim("bound", at_most=1.05, open="one job list"), [case(0.99, 1.0, 1.01)])
    assert found.verdict == "undecided" and found.why == "one job list"


def test_a_percentile_of_few_iterations_decides_nothing() -> None:
    asked = claim("magnitude", claimed=4.0, iterations=1000)
    assert grade(asked, [case(3.9, 4.0, 4.1, iterations=999)]).verdict == "undecided"
    assert grade(asked, [case(3.9, 4.0, 4.1, iterations=1000)]).verdict == "reproduced"


def test_identical_cases_count_once() -> None:
    cases = [case(1.1, 1.2, 1.3, like=(1.2,)), case(1.1, 1.2, 1.3, like=(1.2,)), case(1.1, 1.2, 1.4, like=(1.3,))]
    assert grade(claim("universal", above=1.0), cases).independent == 2


@pytest.mark.parametrize(
    ("asked", "cases", "why"),
    [
        (claim("bound", above=1.0), [case(1.1, 1.2, 1.3, seeds=3)], "3 of 5 seeds; it takes 2 more runs of each system"),
        (
            claim("universal", above=1.0),
            [case(1.1, 1.2, 1.3, seeds=4), case(1.1, 1.2, 1.3, seeds=1), case(1.1, 1.2, 1.3)],
            "2 of 3 cases have 1 of 5 seeds; it takes 5 more runs of each system",
        ),
        (
            claim("magnitude", claimed=4.0, iterations=1000),
            [case(1.9, 2.0, 2.1, iterations=160)],
            "160 of 1,000 iterations; it takes 27 more runs of each system",
        ),
        (claim("bound", below=1.0, needs=20), [case(0.8, 0.9, 0.95, seeds=10)], "10 of 20 random job lists; it takes 10 more random job lists"),
        (
            claim("bound", "mean", above=1.0),
            [case(0.9, 1.1, 1.3)],  # twice as far from the boundary as its value is: four times as many seeds
            "the interval lies on both sides of a boundary; if the numbers stay, it takes about 15 more runs of each system",
        ),
    ],
)  # fmt: skip
def test_an_undecided_claim_says_how_many_more_runs_it_takes(asked: Claim, cases: list[Case], why: str) -> None:
    found = grade(asked, cases)
    assert found.verdict == "undecided" and found.why == why and found.criterion.endswith(f"Undecided: {why}")


def test_a_magnitude_is_not_refused_while_the_case_that_reaches_most_has_too_few_iterations() -> None:
    few, many = case(2.4, 2.5, 2.6, iterations=160), case(0.9, 0.93, 0.95, iterations=1000)
    found = grade(claim("magnitude", claimed=4.0, iterations=1000), [few, many])
    assert (found.verdict, found.case) == ("undecided", few)
    assert grade(claim("magnitude", claimed=4.0, iterations=1000), [many]).verdict == "not reproduced"


def test_what_its_control_does_as_well_is_undecided() -> None:
    asked, good, bad = claim("bound", above=1.0), case(1.1, 1.2, 1.3), case(0.98, 1.0, 1.02)
    found = grade(asked, [good], control=[bad])
    assert found.verdict == "reproduced" and found.held_against.endswith("1 (0.98 to 1.02), undecided")
    assert grade(asked, [good], control=[good]).verdict == "undecided"


def test_the_learning_phase_stands_next_to_the_steady_state() -> None:
    found = grade(claim("bound", above=1.0), [case(1.1, 1.2, 1.3)], learning=[case(1.0, 1.1, 1.2)])
    assert "learning included: 1.1 (1 to 1.2)" in found.criterion


@pytest.mark.parametrize(
    ("asked", "cases", "slower"),
    [
        (claim("universal", above=1.0, ratio=True), [case(0.90, 0.95, 0.97), case(0.70, 0.80, 0.90), case(1.1, 1.2, 1.3)], [0.80, 0.95]),
        (claim("universal", at_most=1.02, ratio=True), [case(1.03, 1.1, 1.2), case(0.8, 0.9, 0.95)], [1.1]),
        (claim("magnitude", claimed=2.0, ratio=True), [case(0.95, 0.99, 1.05), case(0.8, 0.9, 0.97)], [0.9]),
        (claim("magnitude", claimed=0.5, ratio=True), [case(1.3, 1.4, 1.5)], [1.4]),
        (claim("magnitude", claimed=2.0), [case(0.8, 0.9, 0.97)], []),  # compares no two systems
        (claim("magnitude", claimed=2.0, speed=True), [case(0.8, 0.9, 0.97)], [0.9]),
        (claim("magnitude", claimed=2.0, ratio=True, speed=False), [case(0.8, 0.9, 0.97)], []),
        (claim("bound", at_least=0.9, at_most=1.1, ratio=True), [case(0.8, 0.85, 0.88)], []),  # neither side is the slow one
        (claim("universal", above=1.0, ratio=True), [Case("", 0.8, None, None, 1)], []),  # one seed
    ],
)  # fmt: skip
def test_every_case_that_is_surely_slower_is_found(asked: Claim, cases: list[Case], slower: list[float]) -> None:
    assert [one.value for one in grade(asked, cases).slower] == slower

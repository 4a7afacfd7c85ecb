"""When each statement of a summary holds; never how it is worded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import spec
from testbed.campaign import findings
from testbed.campaign.findings import Waits, answer, demand
from testbed.campaign.findings.demand import Demand
from testbed.campaign.summary import summarise
from testbed.core.runs import documents, metrics
from testbed.core.runs.findings import (
    Active,
    AtIdeal,
    BaseInterleaves,
    Compared,
    FewFrames,
    Finding,
    Interleaved,
    InterleavingUnknown,
    MostlyHidden,
    NoCauseKnown,
    NoCoordination,
    NoSharedLink,
    NotInterleaved,
    OfferedLoad,
    OneJob,
    OtherBase,
    Outcome,
    Periods,
    RandomLoss,
    Reason,
    SharedAcks,
    SmallShare,
    Timeouts,
    TooShort,
    Uneven,
)
from testbed.core.runs.load import load_experiment
from testbed.core.runs.summary import Result, Summary
from testbed.models import bottleneck
from tests.support import synthetic
from tests.support.summaries import row, summary

BASE = row("reno")
FITS, NONE = Demand(), Waits()


def outcome(result: Result, asked: Demand = FITS, waits: Waits = NONE, base: Result = BASE) -> Compared:
    (one,) = [each for each in findings.compared(result, base, asked, waits) if isinstance(each, Compared)]
    return one


def types(found: Sequence[Finding | Reason]) -> set[type]:
    return {type(one) for one in found}


@pytest.mark.parametrize(
    ("gain", "interval", "expected"),
    [
        (1.27, (1.13, 1.42), "faster"), (1.19, None, "faster"), (1.0, (0.98, 1.02), "no difference"), (1.0, None, "no difference"),
        (0.94, (0.9, 0.97), "slower"), (1.17, (0.93, 1.41), "inconclusive"), (1.01, (0.93, 1.09), "inconclusive"),
    ],
)  # fmt: skip
def test_the_outcome_goes_by_the_interval(gain: float, interval: Any, expected: Outcome) -> None:
    found = outcome(row("mltcp_reno", gain, interval))
    assert (found.outcome, found.speedup, found.interval) == (expected, gain, interval)


gains = st.floats(0.5, 2)
demands = st.builds(
    Demand,
    loads=st.lists(st.builds(OfferedLoad, st.just("s1-s2"), st.just(5e8), st.floats(0.1, 3)), max_size=1).map(tuple),
    periods_s=st.lists(st.floats(0.1, 2), min_size=2, max_size=2).map(tuple), shares_link=st.sampled_from([True, False, None]),
    frames=st.none() | st.builds(FewFrames, st.just("s1-s2"), st.just("ecn"), st.floats(1, 400), st.integers(1, 64)),
    random_loss=st.sampled_from([0.0, 0.001]),
)  # fmt: skip


@given(
    gain=gains, width=st.none() | st.floats(0, 0.5), asked=demands, timeouts=st.integers(0, 100), jobs=st.integers(1, 3)
)
def test_what_is_not_faster_always_has_a_reason(
    gain: float, width: float | None, asked: Demand, timeouts: int, jobs: int
) -> None:
    interval = None if width is None else (gain - width, gain + width)
    found = outcome(
        row("mltcp_reno", gain, interval, [gain] * jobs), asked, Waits(timeouts), row("reno", jobs=[1.0] * jobs)
    )
    assert bool(found.reasons) == (found.outcome != "faster")
    assert NoCauseKnown not in types(found.reasons) or len(found.reasons) == 1


FULL = OfferedLoad("s1-s2", 5e8, 1.06)
SLOWER = OfferedLoad("s2-s3", 2.5e8, 1.9)
FEW = FewFrames("s1-s2", "ecn", 40.0, 32)


@pytest.mark.parametrize(
    ("asked", "waits", "base", "reason"),
    [
        (Demand(loads=(FULL,)), Waits(), BASE, FULL),
        (Demand(loads=(SLOWER, FULL)), Waits(), BASE, SLOWER),
        (Demand(periods_s=(1.0, 0.73)), Waits(), BASE, Periods((1.0, 0.73), None, 0)),
        (Demand(periods_s=(1.0, 0.5), phases_s=(0.3, 0.3)), Waits(), BASE, Periods((1.0, 0.5), 0.5, 0.6)),
        (Demand(shares_link=False), Waits(), BASE, NoSharedLink()),
        (Demand(frames=FEW), Waits(), BASE, FEW),
        (Demand(random_loss=0.001), Waits(), BASE, RandomLoss(0.001)),
        (Demand(), Waits(6, 0.2), BASE, Timeouts(6, 0.2, 0.1)),
        (Demand(), Waits(), row("reno", last10_mean_s=1.01), AtIdeal("reno", 1.01)),
        (Demand(), Waits(), row("reno", interleaved_at=7), BaseInterleaves("reno", 7)),
        (Demand(periods_s=(1.0, 1.0), phases_s=(0.01, 0.01)), Waits(), BASE, SmallShare(1.01)),
        (
            Demand(periods_s=(1.0, 1.0), phases_s=(0.4, 0.4), exposed_s=(0.1, 0.1)),
            Waits(),
            BASE,
            MostlyHidden((0.4, 0.4), (0.1, 0.1)),
        ),
        (Demand(acks=SharedAcks("s1-s2")), Waits(), BASE, SharedAcks("s1-s2")),
        (Demand(), Waits(), BASE, NoCauseKnown()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_reason_is_found(asked: Demand, waits: Waits, base: Result, reason: Reason) -> None:
    assert reason in outcome(row("mltcp_reno"), asked, waits, base).reasons


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        (Demand(loads=(OfferedLoad("s1-s2", 5e8, 1.0),)), Waits()), (Demand(periods_s=(1.0, 0.5), phases_s=(0.25, 0.25)), Waits()),
        (Demand(periods_s=(1.0, 1.01), phases_s=(0.5, 0.5)), Waits()), (Demand(frames=FewFrames("s1-s2", "ecn", 40, 8)), Waits()),
        (Demand(shares_link=True), Waits(1, 0.2)), (Demand(periods_s=(1.0, 1.0), phases_s=(0.4, 0.4), exposed_s=(0.3, 0.3)), Waits()),
    ],
)  # fmt: skip
def test_what_is_all_right_is_no_reason(asked: Demand, waits: Waits) -> None:
    assert types(outcome(row("mltcp_reno", iterations=90), asked, waits).reasons) == {NoCauseKnown}


def test_without_a_shared_link_phases_are_no_reason() -> None:
    asked = Demand(
        loads=(FULL,), periods_s=(1.0, 0.73), phases_s=(0.4, 0.4), exposed_s=(0.1, 0.1), shares_link=False, frames=FEW
    )
    assert outcome(row("mltcp_reno"), asked).reasons == (NoSharedLink(), FEW)
    assert outcome(row("cubic"), asked).reasons == (NoSharedLink(),)


def test_few_frames_matter_to_windows_of_mltcp_alone() -> None:
    asked = Demand(frames=FEW)
    paced = tuple(msgspec.structs.replace(job, windowed=False) for job in row("mltcp_dcqcn").per_job)
    assert FewFrames not in types(outcome(row("mltcp_dcqcn", per_job=paced), asked).reasons)
    assert FewFrames not in types(outcome(row("cassini"), asked).reasons)


def test_the_base_of_mltcp_explains_it_where_nothing_else_does() -> None:
    slower, cubic = row("mltcp_cubic:slope=2", 0.87), row("cubic", 0.88)

    def reasons(asked: Demand, *others: Result) -> tuple[Reason, ...]:
        (one,) = (each for each in findings.compared(slower, BASE, asked, NONE, others) if isinstance(each, Compared))
        return one.reasons

    assert reasons(FITS, BASE, slower, cubic) == (OtherBase("cubic", 0.88),)
    assert reasons(FITS, BASE, slower) == (OtherBase("cubic", None),)
    assert reasons(FITS, BASE, slower, row("cubic", scheduler="packed")) == (OtherBase("cubic", None),)
    assert reasons(Demand(frames=FEW), BASE, slower, cubic) == (FEW,)
    assert outcome(row("mltcp_reno", 0.87)).reasons == (NoCauseKnown(),)


def test_two_base_algorithms_coordinate_nothing() -> None:
    assert outcome(row("cubic")).reasons == (NoCoordination("cubic", "reno"),)
    assert answer.reason(NoCoordination("cubic", "reno")).startswith("Neither CUBIC nor Reno uses iterations")
    one = answer.reason(NoCoordination("reno", "reno"))
    assert one == "Reno does not use iterations, so it interleaves no jobs by design."


def test_a_lone_job_has_none_to_share_with() -> None:
    alone = row("mltcp_reno", jobs=[1.0], interleaved_seeds=None)
    assert outcome(alone).reasons == (OneJob(),)
    assert not {Interleaved, NotInterleaved, InterleavingUnknown} & types(findings.own(alone))


def test_too_short_is_judged_by_the_jobs_that_run_mltcp() -> None:
    never = row("mltcp_reno", 1.3, mltcp_active_from=None, iterations=30)
    assert TooShort in types(findings.compared(never, BASE, Demand()))
    assert types(findings.own(row("unfair", mltcp_active_from=None))) == {NotInterleaved}
    assert TooShort not in types(findings.compared(row("unfair", 1.3, iterations=3), BASE, Demand()))
    mixed = row("reno+mltcp_reno", 1.3, mltcp_active_from=2)
    first, second = mixed.per_job
    both = msgspec.structs.replace(mixed, per_job=(first, msgspec.structs.replace(second, learns=True)))
    assert TooShort not in types(findings.compared(both, BASE, Demand()))
    assert Active(2) in findings.own(both)


def test_jobs_that_gain_differently_are_named() -> None:
    found = findings.compared(row("mltcp_reno", 1.1, None, jobs=(1.3, 0.9)), BASE, Demand())
    assert Uneven({0: 1.3, 1: 0.9}) in found
    assert Uneven not in types(findings.compared(row("mltcp_reno", 1.1), BASE, Demand()))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"interleaved_at": 8, "interleaved_seeds": "1 of 1"}, Interleaved(8, 1, 1)),
        ({"interleaved_at": None, "interleaved_seeds": "1 of 3"}, Interleaved(None, 1, 3)),
        ({"interleaved_at": None, "interleaved_seeds": "0 of 1"}, NotInterleaved(30, 6)),
        ({"interleaved_at": None, "interleaved_seeds": None}, InterleavingUnknown()),
    ],
)
def test_interleaving_is_yes_no_or_unknown(fields: dict[str, Any], expected: Finding) -> None:
    assert findings.own(row("reno", **fields)) == (expected,)


@given(count=st.integers(1, 120), late=st.integers(0, 120))
def test_interleaved_takes_five_iterations_and_a_fifth_of_the_run(count: int, late: int) -> None:
    """Jobs that stay near their isolated time from an iteration on, up to the end."""
    late = min(late, count)
    times = pd.DataFrame({job: np.r_[np.full(late, 1.5), np.ones(count - late)] for job in (0, 1)})
    long_enough = count - late >= 5 and count - late >= 0.2 * count
    assert metrics.interleaved_at(times, 1.0) == (late if long_enough else None)


def test_one_lucky_iteration_is_not_interleaved() -> None:
    """28 of 30 iterations late, then two that are not."""
    times = pd.DataFrame({0: [1.5] * 28 + [1.0] * 2})
    assert metrics.interleaved_at(times, 1.0) is None
    times = pd.DataFrame({0: [1.5] * 24 + [1.0] * 6})
    assert metrics.interleaved_at(times, 1.0) == 24


def test_f_is_in_force_where_the_jobs_that_run_mltcp_say_so() -> None:
    """Of a job without MLTCP no flow reports a ratio."""
    rows = pd.DataFrame({"job": [0, 0, 1, 1], "iteration": [0, 1, 0, 1], "end_s": [1.0, 2.0, 1.0, 2.0]})
    flows = pd.DataFrame({"t_s": [0.5, 1.5], "job": [0, 0], "mltcp_r": [np.nan, 0.3]})
    assert metrics.mltcp_active_from(rows, flows) is None
    assert metrics.mltcp_active_from(rows, flows, [0]) == 1
    assert metrics.mltcp_active_from(rows, flows, []) is None


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=5))
def test_a_common_divisor_divides_every_period(periods: list[float]) -> None:
    divisor = demand.common_divisor(periods)
    if divisor is not None:
        assert all(abs(period / divisor / round(period / divisor) - 1) <= demand.ALIKE for period in periods)


@pytest.mark.parametrize(
    ("periods", "divisor"),
    [([1.0, 1.0], 1.0), ([1.0, 0.5], 0.5), ([0.6, 0.4], 0.2), ([1.0, 0.05], None), ([1, 0.73], None)],
)
def test_common_divisors(periods: list[float], divisor: float | None) -> None:
    assert demand.common_divisor(periods) == (None if divisor is None else pytest.approx(divisor))


def test_findings_are_kept_in_the_summary_as_data() -> None:
    found = findings.compared(row("mltcp_reno", 1.0), BASE, Demand(loads=(FULL,), frames=FEW), Waits(30))
    whole = summary(row("reno"), row("mltcp_reno", findings=found), overloads=(FULL,))
    assert documents.decode(documents.encode(whole), Summary) == whole


def summed(folder: Path, times: synthetic.Times = lambda *_: 1.0, *, ratio: float = np.nan, **fields: Any) -> Summary:
    """An experiment of invented runs; MLTCP is active in them with a ``ratio``."""
    asked = {"name": "x", "jobs": 2, "system": ["reno"], "iterations": 30, **fields}
    synthetic.write([spec.make(asked, {}, "the test")], folder, times, ratio=ratio)
    return summarise(load_experiment(folder / "x"))


def test_rows_of_flow_schedulers_keep_the_system_as_typed(tmp_path: Path) -> None:
    found = summed(tmp_path, system=["reno", "priority", "unfair"])
    assert {row.system for row in found.results} == {"reno", "priority", "unfair"}
    assert all({job.system for job in row.per_job} == {row.system} for row in found.results)
    congestion = {row.system: {job.congestion.partition(":")[0] for job in row.per_job} for row in found.results}
    assert congestion == {"reno": {"reno"}, "priority": {"reno"}, "unfair": {"mltcp_reno"}}
    assert not any(job.learns for row in found.results for job in row.per_job)
    assert not any(isinstance(one, Active | TooShort) for row in found.results for one in row.findings)


def test_without_isolated_runs_interleaving_is_unknown(tmp_path: Path) -> None:
    (row,) = summed(tmp_path, alone="none").results
    assert (row.interleaved_at, row.interleaved_seeds, row.findings) == (None, None, (InterleavingUnknown(),))


def test_isolated_runs_tell_interleaving(tmp_path: Path) -> None:
    (row,) = summed(tmp_path, lambda _plan, i: 1.0 if i >= 20 else 1.4).results
    assert Interleaved(20, 1, 1) in row.findings
    (lucky,) = summed(tmp_path / "lucky", lambda _plan, i: 1.0 if i >= 28 else 1.4).results
    assert NotInterleaved(30, 6) in lucky.findings


def test_links_that_are_asked_too_much_of_are_always_stated(tmp_path: Path) -> None:
    fits = summed(tmp_path / "fits")
    assert fits.overloads == ()
    over = summed(tmp_path / "over", jobs=4, compute="10ms", bytes="20MB")
    assert over.overloads and all(load.share > 1 and load.rate_bps == 5e8 for load in over.overloads)


def test_too_few_frames_for_each_flow_is_the_reason(tmp_path: Path) -> None:
    """Two jobs, each a flow, and a threshold of two frames."""
    found = summed(tmp_path, ratio=0.5, system=["reno", "mltcp_reno"], ecn="2p")
    few = demand.compute_demand(load_experiment(tmp_path / "x")).frames
    assert few is not None and few.flows == 2 and few.per_flow == pytest.approx(1, rel=0.1)
    (compared,) = [one for one in found.results[1].findings if isinstance(one, Compared)]
    assert few in compared.reasons


def test_every_flow_of_an_exchange_between_experts_counts(tmp_path: Path) -> None:
    """Two mixtures of experts, each with 4 · 4 flows over the link, and marks at 40 frames."""
    moe = Path(__file__).parents[2] / "data" / "moe.json"
    found = summed(
        tmp_path, lambda *_: 1.56, ratio=0.5, job=[f"{moe},workers=8"] * 2, rate="100gbit", mtu=9000, system=["reno", "mltcp_reno"],
        iterations=12, alone="none",
    )  # fmt: skip
    experiment = load_experiment(tmp_path / "x")
    crossed = bottleneck.crossings(experiment.runs[0])
    assert crossed is not None and set(crossed) == {"s1-s2", "s2-s1"}
    for flows in crossed.values():
        assert [sum(job == which for job, _, _ in flows) for which in (0, 1)] == [16, 16]
    few = demand.compute_demand(experiment).frames
    assert few is not None and (few.threshold, few.flows) == ("ecn", 32)
    assert few.frames == pytest.approx(40, rel=0.01)
    (compared,) = [one for one in found.results[1].findings if isinstance(one, Compared)]
    assert compared.outcome == "no difference"
    assert few in compared.reasons


def test_the_base_of_mltcp_is_found_among_the_systems_of_a_run(tmp_path: Path) -> None:
    slow = {"cubic": 1.3, "reno": 1.4, "mltcp_reno": 1.5}
    found = summed(
        tmp_path, lambda plan, _: slow[plan.system.label], ratio=0.5, system=list(slow), compute="0.5s", bytes="10MB"
    )
    (compared,) = [one for one in found.results[2].findings if isinstance(one, Compared)]
    (reason,) = compared.reasons
    assert isinstance(reason, OtherBase)
    assert (reason.base, reason.speedup) == ("reno", pytest.approx(1.3 / 1.4, rel=0.01))

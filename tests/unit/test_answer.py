"""The sentence under the table, and what stands in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from core.runs.summary import JobResult, Result, Summary
from core.runs.upgrade import VERSION
from testbed.campaign import answer
from testbed.campaign.answer import Demand
from testbed.cli import table

FITS = Demand(0.96, False, (1.0, 1.0))


def row(
    cc: str, gain: float = 1.0, interval: tuple[float, float] | None = None, jobs: Sequence[float] = (), **more: Any
) -> Result:
    """A result over three seeds, or of one without an interval; each job gains the same, or as ``jobs`` says."""
    seeds = (1,) if interval is None else (1, 2, 3)
    per_job = tuple(
        JobResult(
            job=job, trace="t", workers=2, system=cc, learns=cc.startswith("mltcp"), ideal_s=1.0, alone_s=1.0, mean_s=1.0, p99_s=1.0,
            steady_s=1.0, speedup_mean=own, speedup_mean_ci95=interval, speedup_p99=own, speedup_p99_ci95=None,
        )
        for job, own in enumerate(jobs or (gain, gain))
    )  # fmt: skip
    whole = Result(
        system=cc, role="treatment" if "mltcp" in cc else "baseline", seeds=seeds, jobs=2, iterations=30, verdicts=tuple("valid" for _ in seeds),
        per_job=per_job, alone_s=1.0, ideal_s=1.0, steady_s=1.4, steady_s_ci95=None, mean_s=1.0, mean_s_ci95=None, p50_s=1.0, p95_s=1.0,
        p99_s=1.0, speedup_p99=1.0, speedup_p99_ci95=None, learned_at=2 if "mltcp" in cc else None, interleaved_at=None,
        interleaved_in=f"0 of {len(seeds)}", speedup_mean=gain, speedup_mean_ci95=interval, answer=None,
    )  # fmt: skip
    return replace(whole, **more)


def summary(*results: Result, **more: Any) -> Summary:
    whole = Summary(
        version=VERSION, experiment="x", substrate="uml", clock="virtual", baseline="reno", verdict="valid", needs=None, results=results
    )  # fmt: skip
    return replace(whole, **more)


@pytest.mark.parametrize(
    ("result", "demand", "says"),
    [
        (row("mltcp_reno", 1.27, (1.13, 1.42), interleaved_at=8, interleaved_in="3 of 3"), FITS,
         "MLTCP-Reno is 1.27× as fast as Reno (1.13–1.42), interleaved from iteration 8 in 3 of 3 seeds."),
        (row("mltcp_reno", 1.0, (0.98, 1.02)), Demand(1.06, False, (0.229, 0.116)),
         "MLTCP-Reno: no difference, 0.98–1.02×: the two jobs need 106 % of the link, periods 229 and 116 ms."),
        (row("mltcp_cubic:slope=2", 1.19, None), FITS,
         "MLTCP-CUBIC (slope=2) is 1.19× as fast as Reno (one seed, no interval), never interleaved."),
        (row("mltcp_reno", 0.94, (0.9, 0.97)), FITS, "MLTCP-Reno is slower than Reno, 0.94× as fast (0.90–0.97)."),
        (row("mltcp_reno", 1.17, (0.93, 1.41)), FITS, "MLTCP-Reno cannot be told from Reno by 3 seeds, 1.17× (0.93–1.41)."),
        (row("mltcp_reno", 0.88, None, iterations=3), FITS,
         "MLTCP-Reno: too few iterations to judge (F in force from 2 of 3); so far 0.88× as fast as Reno."),
        (row("mltcp_reno", 1.3, None, iterations=3, learned_at=None), FITS,
         "MLTCP-Reno: too few iterations to judge (F was never in force in 3); so far 1.30× as fast as Reno."),
        (row("unfair", 1.3, None, iterations=3), FITS, "unfair is 1.30× as fast as Reno (one seed, no interval), never interleaved."),
    ],
)  # fmt: skip
def test_the_answer(result: Result, demand: Demand, says: str) -> None:
    assert answer.sentence(result, row("reno"), demand) == says


def test_a_gain_stands_beside_what_it_is_paid_with() -> None:
    lossy = row(
        "mlt:bands=1", 1.2, (1.1, 1.3), delivered=0.9004, important=0.982, interleaved_at=3, interleaved_in="3 of 3"
    )
    said = str(answer.sentence(lossy, row("reno"), FITS))
    assert said.startswith("MLT (bands=1) is 1.20× as fast as Reno (1.10–1.30)")
    assert said.endswith(" Of its gradients 90.04 % arrived; its tags call 98 % of their packets important.")
    whole = replace(row("ltp", 1.0, (0.99, 1.01), jobs=(1.0,)), jobs=1, delivered=1.0)
    assert answer.sentence(whole, row("reno"), FITS) == "LTP: no difference, 0.99–1.01×. All of its gradients arrived."
    nearly = str(answer.sentence(replace(whole, delivered=1 - 1e-9), row("reno"), FITS))
    assert nearly.endswith("99.99 % arrived.")


@pytest.mark.parametrize(
    ("system", "written"),
    [("ltp:rtts=2", "LTP (rtts=2)"), ("optireduce", "OptiReduce"), ("mltcp_reno", "MLTCP-Reno"), ("mine", "mine")],
)
def test_names_are_written_as_people_do(system: str, written: str) -> None:
    assert answer.name(system) == written


def test_jobs_that_gain_differently_are_named() -> None:
    result = row("mltcp_reno", 1.1, None, jobs=(1.3, 0.9))
    assert "; job 0 1.30×, job 1 0.90×," in str(answer.sentence(result, row("reno"), FITS))


def test_what_is_invalid_has_no_answer_but_advice() -> None:
    broken = row("mltcp_reno", 1.3, verdicts=("invalid",))
    assert answer.sentence(broken, row("reno"), FITS) is None
    real = summary(row("reno"), broken, verdict="invalid", clock="real")
    assert "--on uml" in str(answer.advice(real)) and "docs/fidelity.md" in str(answer.advice(real))
    virtual = str(answer.advice(replace(real, clock="virtual")))
    assert "--on uml" not in virtual and "--sample" not in virtual and "a fault of the testbed: report it" in virtual
    assert answer.advice(replace(real, verdict="suspect")) is None


def test_tables_say_how_many_iterations_and_what_each_job_gains() -> None:
    results = [row("reno", iterations=3), row("mltcp_reno", 1.25, (1.2, 1.3), iterations=3)]
    odd = [
        replace(one, per_job=(one.per_job[0], replace(one.per_job[1], trace="[/nope]"))) for one in results
    ]  # no markup
    found = summary(*odd)
    console = Console(width=120, record=True)
    jobs = table.jobs_table(found)
    assert jobs is not None
    console.print(table.closing_table(found), jobs)
    said = console.export_text()
    assert "last 3" in said and "last 10" not in said
    assert "1: [/nope] × 2" in said
    assert said.count("1.20–1.30") == 3  # all jobs, and each

"""Results and summaries of experiments that never were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from testbed.core.runs.format_version import VERSION
from testbed.core.runs.summary import JobResult, Result, Summary


def row(
    cc: str, gain: float = 1.0, interval: tuple[float, float] | None = None, jobs: Sequence[float] = (), **more: Any
) -> Result:
    """A result over three seeds, or of one without an interval; each job gains the same, or as ``jobs`` says."""
    seeds = (1,) if interval is None else (1, 2, 3)
    mltcp = cc.startswith("mltcp")
    per_job = tuple(
        JobResult(
            job=job, trace="t", workers=2, system=cc, congestion=cc, learns=mltcp, ideal_s=1.0, isolated_s=1.0, mean_s=1.0, p99_s=1.0,
            last10_mean_s=1.0, speedup_mean=own, speedup_mean_ci95=interval, speedup_p99=own, speedup_p99_ci95=None,
        )
        for job, own in enumerate(jobs or (gain, gain))
    )  # fmt: skip
    whole = Result(
        system=cc, role="treatment" if mltcp else "baseline", seeds=seeds, jobs=len(per_job), iterations=30, verdicts=tuple("valid" for _ in seeds),
        per_job=per_job, isolated_s=1.0, ideal_s=1.0, last10_mean_s=1.4, last10_mean_s_ci95=None, mean_s=1.0, mean_s_ci95=None, p50_s=1.0, p95_s=1.0,
        p99_s=1.0, speedup_p99=1.0, speedup_p99_ci95=None, mltcp_active_from=2 if mltcp else None, interleaved_at=None,
        interleaved_seeds=f"0 of {len(seeds)}", speedup_mean=gain, speedup_mean_ci95=interval, conclusion=None,
    )  # fmt: skip
    return replace(whole, **more)


def summary(*results: Result, **more: Any) -> Summary:
    whole = Summary(
        version=VERSION, experiment="x", backend="uml", clock="virtual", baseline="reno", verdict="valid", offered_load=None, results=results
    )  # fmt: skip
    return replace(whole, **more)

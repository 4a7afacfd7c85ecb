"""One experiment in numbers: ``summary.json`` (see docs/reference/file-formats.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from testbed.campaign import findings
from testbed.campaign.background import traffic
from testbed.campaign.findings import Waits, answer, demand
from testbed.campaign.findings.demand import Demand
from testbed.campaign.seed_variation import repeatability
from testbed.core.placing import Idle, Metrics
from testbed.core.runs import disturbed, isolated, metrics
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.load import Experiment, Run
from testbed.core.runs.measured import isolated_s
from testbed.core.runs.plan import JobPlan
from testbed.core.runs.summary import JobResult, Result, Schedule, Summary, Traffic
from testbed.core.runs.verdict import Word, worst
from testbed.models import run_schedule_metrics
from testbed.models.statistics import Interval, interval, log_interval

# Aggregation over seeds of a schedule's metrics; the mean for others.
EXTREMES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min_completion_s": min, "max_completion_s": max, "max_rho": max, "max_contention": max,
}  # fmt: skip


def summarise(*experiments: Experiment) -> Summary:
    """The summary of an experiment, which is several if job schedulers were compared. The first system, under the first
    job scheduler, is the baseline."""
    by_system = [(each, _Taken.by(each, system)) for each in experiments for system in each.systems]
    results = [_result(each, times, by_system[0][1]) for each, times in by_system]
    demands = {each.path: demand.compute_demand(each) for each in experiments}
    first = experiments[0].runs[0]
    every = [run for each in experiments for run in [*each.runs, *each.alone.values()]]
    return Summary(
        version=VERSION,
        experiment=first.plan.experiment,
        backend=first.manifest.backend,
        clock=first.manifest.clock,
        baseline=results[0].system,
        verdict=worst([*(run.verdict.verdict for run in every), *map(_repeated, results)]),
        offered_load=demands[experiments[0].path].most,
        overloads=tuple(dict.fromkeys(load for asked in demands.values() for load in asked.overloads)),
        results=tuple(
            _stated(result, results, demands[each.path], _waits(of.runs))
            for result, (each, of) in zip(results, by_system, strict=True)
        ),
    )


def _repeated(result: Result) -> Word:
    """The status of a system by the variation of its seeds (I10), if it is judged."""
    status = None if result.repeatability is None else result.repeatability.status
    return status if status in ("suspect", "invalid") else "valid"


def _stated(result: Result, results: Sequence[Result], asked: Demand, waits: Waits) -> Result:
    """With its findings, in isolation and against the baseline (the first result), as data and in words."""
    base = results[0]
    found = findings.compared(result, base, asked, waits, results)
    whole = (*found, *findings.own(result))
    return msgspec.structs.replace(
        result, findings=whole, conclusion=answer.sentence(result, base, whole) if found else None
    )


def _waits(runs: Sequence[Run]) -> Waits:
    return Waits(sum(run.manifest.measured.counters.tcp_timeouts for run in runs), runs[0].plan.rto_min_ms / 1e3)


def _of_mltcp(run: Run) -> list[int]:
    return [job.job for job in run.jobs if job.cc.is_mltcp]


@dataclass(frozen=True)
class _Taken:
    """How long iterations of a system took: a table for each of its runs, as `metrics.iteration_times` has it."""

    runs: list[Run]
    tables: list[pd.DataFrame]

    @classmethod
    def by(cls, experiment: Experiment, system: str) -> _Taken:
        runs = experiment.runs_of(system)
        return cls(runs, [run.times for run in runs])

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    def knows(self, job: int) -> bool:
        """Whether it ended an iteration in every run: one that fails may not."""
        return all(job in table for table in self.tables)

    def select_job(self, job: int) -> _Taken:
        """One of the jobs."""
        return _Taken(self.runs, [table[[job]] for table in self.tables])

    @property
    def pooled(self) -> np.ndarray:
        """Every iteration of every job and seed."""
        return np.concatenate([metrics.pooled(table) for table in self.tables])

    @property
    def means(self) -> list[float]:
        """A seed each, as is the next."""
        return [float(metrics.pooled(table).mean()) for table in self.tables]

    @property
    def p99s(self) -> list[float]:
        return [_p99(metrics.pooled(table)) for table in self.tables]

    @property
    def steady(self) -> list[float]:
        return [metrics.steady(table) for table in self.tables]


def _p99(times: np.ndarray) -> float:
    return float(np.percentile(times, 99))


def _result(experiment: Experiment, own: _Taken, base: _Taken) -> Result:
    runs, pooled = own.runs, own.pooled
    alone = [_isolated_s(experiment, run) for run in runs]
    sources = _sources(experiment, runs[0])
    interleaved = [
        metrics.interleaved_at(table, each)
        for table, each in zip(own.tables, alone, strict=True)
        if each is not None and len(each) > 1
    ]
    known = [float(each.mean()) for each in alone if each is not None]
    ideals = [job.ideal_s for job in runs[0].jobs if job.ideal_s is not None]
    return Result(
        system=runs[0].system,
        scheduler=runs[0].plan.scheduler,
        role=runs[0].role,
        seeds=own.seeds,
        jobs=len(runs[0].jobs),
        iterations=len(own.tables[0]),
        mean_s=float(pooled.mean()),
        mean_s_ci95=interval(own.means),
        p50_s=float(np.percentile(pooled, 50)),
        p95_s=float(np.percentile(pooled, 95)),
        p99_s=_p99(pooled),
        last10_mean_s=float(np.mean(own.steady)),
        last10_mean_s_ci95=interval(own.steady),
        ideal_s=float(np.mean(ideals)) if len(ideals) == len(runs[0].jobs) else None,
        isolated_s=float(np.mean(known)) if known else None,
        mltcp_active_from=_middle(
            [metrics.mltcp_active_from(run.iterations, run.flows, _of_mltcp(run)) for run in runs]
        ),
        interleaved_at=_middle(interleaved) if interleaved else None,
        interleaved_seeds=f"{sum(at is not None for at in interleaved)} of {len(interleaved)}" if interleaved else None,
        per_job=tuple(
            _job(runs[0].system, job, own.select_job(job.job), base.select_job(job.job), alone, sources.get(job.job))
            for job in runs[0].jobs
            if own.knows(job.job) and base.knows(job.job)
        ),
        verdicts=tuple(run.verdict.verdict for run in runs),
        **_undisturbed(runs),
        **_gains(own, base),
        delivered=_mean(metrics.delivered(run.messages) for run in runs),
        important_fraction=_important_fraction(runs),
        conclusion=None,
        repeatability=repeatability(own.steady),
        background=_background(runs),
        schedule=_schedule(runs, alone),
    )


def _isolated_s(experiment: Experiment, run: Run) -> pd.Series[float] | None:
    """Each job's measured time in isolation, which a lone job's own run gives, too; None if that is not known of all of them."""
    found = isolated_s(experiment, run)
    if found is not None or not isolated.is_its_own(run.plan):
        return found
    return pd.Series({run.jobs[0].job: metrics.alone(run.times)})


def _sources(experiment: Experiment, run: Run) -> dict[int, str]:
    """By job the system whose run gave its time in isolation, as typed; empty where it was not measured."""
    found = {job: lone.system for job, lone in experiment.find_isolated_runs(run).items()}
    return found or ({run.jobs[0].job: run.system} if isolated.is_its_own(run.plan) else {})


def _background(runs: Sequence[Run]) -> tuple[Traffic, ...]:
    found = [(run.background, float(run.iterations["end_s"].max())) for run in runs if run.background is not None]
    return traffic([table for table, _ in found if table is not None], [end for _, end in found]) if found else ()


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _important_fraction(runs: Sequence[Run]) -> float | None:
    counted = [each for run in runs for each in run.manifest.measured.datagrams or ()]
    tagged = sum(each.tagged for each in counted)
    return sum(each.important for each in counted) / tagged if tagged else None


def _schedule(runs: Sequence[Run], alone: Sequence[pd.Series[float] | None]) -> Schedule | None:
    """Over all seeds; None if a seed has no value."""
    measured = all(each is not None for each in alone)
    told = [
        run_schedule_metrics.metrics(run, each if measured else None) for run, each in zip(runs, alone, strict=True)
    ]
    found = [one for one in told if one is not None]
    if len(found) < len(told):
        return None
    numbers: dict[str, Any] = {
        each.name: EXTREMES.get(each.name, fmean)([getattr(one, each.name) for one in found])
        for each in fields(Metrics)
        if each.name != "idle_gpu_h"
    }
    return Schedule(
        **numbers,
        idle_gpu_h=Idle(*map(fmean, zip(*(astuple(one.idle_gpu_h) for one in found), strict=True))),
        makespan_s_ci95=interval(one.makespan_s for one in found),
        mean_completion_s_ci95=interval(one.mean_completion_s for one in found),
        alone="measured" if measured else "ideal",
    )


def _undisturbed(runs: list[Run]) -> dict[str, Any]:
    """Without disturbed iterations: None if none are left, empty if disturbances were not recorded (virtual time)."""
    found = [disturbed.undisturbed(run.iterations, run.disturbances) for run in runs if run.disturbances is not None]
    if len(found) < len(runs):
        return {}
    calm = [(one.undisturbed_mean_s, one.iterations - one.disturbed_iterations) for one in found]
    calm = [(mean_s, count) for mean_s, count in calm if count > 0]
    steady = [one.undisturbed_last10_mean_s for one in found if not np.isnan(one.undisturbed_last10_mean_s)]
    return {
        "disturbed_iterations": sum(one.disturbed_iterations for one in found),
        "undisturbed_mean_s": sum(mean_s * count for mean_s, count in calm) / sum(count for _, count in calm)
        if calm
        else None,
        "undisturbed_last10_mean_s": float(np.mean(steady)) if steady else None,
    }


def _job(
    system: str, job: JobPlan, own: _Taken, base: _Taken, alone: Sequence[pd.Series[float] | None], source: str | None
) -> JobResult:
    """One job over all seeds."""
    known = [float(each[job.job]) for each in alone if each is not None]
    return JobResult(
        job=job.job,
        trace=job.trace,
        system=system,
        congestion=job.cc.spec,
        learns=job.cc.is_mltcp,
        windowed=not job.cc.traits.paced,
        workers=len(job.hosts),
        iterations=len(own.tables[0].dropna()),
        mean_s=float(own.pooled.mean()),
        p99_s=_p99(own.pooled),
        last10_mean_s=float(np.mean(own.steady)),
        ideal_s=job.ideal_s,
        isolated_s=float(np.mean(known)) if known else None,
        isolated_in=source if known else None,
        **_gains(own, base),
    )


def _gains(own: _Taken, base: _Taken) -> dict[str, Any]:
    """How many times as fast as the baseline; intervals paired by seed, None if the seeds are not the same."""
    return {
        "speedup_mean": float(base.pooled.mean()) / float(own.pooled.mean()),
        "speedup_mean_ci95": _paired(own, base, base.means, own.means),
        "speedup_p99": _p99(base.pooled) / _p99(own.pooled),
        "speedup_p99_ci95": _paired(own, base, base.p99s, own.p99s),
    }


def _paired(own: _Taken, base: _Taken, before: list[float], after: list[float]) -> Interval | None:
    if own.seeds != base.seeds:
        return None
    return log_interval(b / a for b, a in zip(before, after, strict=True))


def _middle(values: list[int | None]) -> float | int | None:
    """The median over seeds, where None is later than anything."""
    middle = float(np.median([np.inf if value is None else value for value in values]))
    if not np.isfinite(middle):
        return None
    return int(middle) if middle == int(middle) else middle

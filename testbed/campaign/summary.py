"""One experiment in numbers: ``summary.json`` (see docs/results.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from core.runs import disturbed, metrics
from core.runs.load import Experiment, Run
from core.runs.measured import alone_s
from core.runs.upgrade import VERSION
from testbed.campaign import answer
from testbed.campaign.answer import Demand
from theory import bottleneck
from theory.statistics import Interval, interval, log_interval

ORDER = ("valid", "suspect", "invalid")


def summarise(experiment: Experiment) -> dict[str, Any]:
    """The summary of an experiment. The first congestion control is the baseline."""
    rows = {system: _row(experiment, system) for system in experiment.systems}
    baseline = experiment.systems[0]
    demand = _demand(experiment)
    for row in rows.values():
        _speed_up(row, rows[baseline])
        row["answer"] = answer.sentence(row, rows[baseline], demand)
    verdicts = [run.verdict["verdict"] for run in [*experiment.runs, *experiment.alone.values()]]
    first = experiment.runs[0]
    return {
        "version": VERSION,
        "experiment": experiment.path.name,
        "substrate": first.manifest["substrate"],
        "clock": first.manifest["clock"],
        "baseline": baseline,
        "verdict": max(verdicts, key=ORDER.index),
        "needs": demand.needs,
        "results": [_told(row) for row in rows.values()],
    }


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what only its making needs."""
    jobs = [{key: value for key, value in job.items() if key[0] != "_"} for job in row["per_job"]]
    return {key: value for key, value in row.items() if key[0] != "_"} | {"per_job": jobs}


def _demand(experiment: Experiment) -> Demand:
    """What the jobs need of the busiest bottleneck, by the first run."""
    run = experiment.runs[0]
    alone = alone_s(experiment, run)
    periods = [
        job["ideal_s"] if job["ideal_s"] is not None else None if alone is None else float(alone[job["job"]])
        for job in run.jobs
    ]
    known = [period for period in periods if period is not None]
    if len(known) < len(periods):
        return Demand(None, False, ())
    found = bottleneck.needs(run, pd.Series(known, index=[job["job"] for job in run.jobs]))
    # Both directions of one link are one bottleneck.
    several = len({frozenset(link.split("-")) for link in found}) > 1
    return Demand(max(found.values(), default=None), several, tuple(known))


def _row(experiment: Experiment, system: str) -> dict[str, Any]:
    runs = experiment.of(system)
    tables = [metrics.iteration_times(run.iterations) for run in runs]
    pooled = np.concatenate([metrics.pooled(table) for table in tables])
    alone = [alone_s(experiment, run) for run in runs]
    means = [float(metrics.pooled(table).mean()) for table in tables]
    p99s = [float(np.percentile(metrics.pooled(table), 99)) for table in tables]
    steady = [metrics.steady(table) for table in tables]
    interleaved = [
        None if a is None else metrics.interleaved_at(table, a) for table, a in zip(tables, alone, strict=True)
    ]
    known = [float(a.mean()) for a in alone if a is not None]
    ideals = [job["ideal_s"] for job in runs[0].jobs]
    return {
        "system": system,
        "role": experiment.roles[system],
        "seeds": [run.seed for run in runs],
        "jobs": len(runs[0].jobs),
        "iterations": len(tables[0]),
        "mean_s": float(pooled.mean()),
        "mean_s_ci95": _listed(interval(means)),
        "p50_s": float(np.percentile(pooled, 50)),
        "p95_s": float(np.percentile(pooled, 95)),
        "p99_s": float(np.percentile(pooled, 99)),
        "steady_s": float(np.mean(steady)),
        "steady_s_ci95": _listed(interval(steady)),
        "ideal_s": float(np.mean(ideals)) if None not in ideals else None,
        "alone_s": float(np.mean(known)) if known else None,
        "learned_at": _middle([metrics.learned_at(run.iterations, run.flows) for run in runs]),
        "interleaved_at": _middle(interleaved),
        "interleaved_in": f"{sum(at is not None for at in interleaved)} of {len(runs)}",
        "per_job": [_job(job, tables, alone) for job in runs[0].jobs],
        "verdicts": [run.verdict["verdict"] for run in runs],
        **_undisturbed(runs),
        "_means": means,
        "_p99s": p99s,
    }


def _undisturbed(runs: list[Run]) -> dict[str, Any]:
    """The numbers without iterations that the machine touched, where that was recorded: on real clocks."""
    found = [disturbed.undisturbed(run.iterations, run.disturbances) for run in runs if run.disturbances is not None]
    if len(found) < len(runs):
        return {}
    calm = [(one.undisturbed_mean_s, one.iterations - one.touched) for one in found if one.touched < one.iterations]
    steady = [one.undisturbed_steady_s for one in found if not np.isnan(one.undisturbed_steady_s)]
    return {
        "touched": sum(one.touched for one in found),
        "undisturbed_mean_s": sum(mean_s * count for mean_s, count in calm) / sum(count for _, count in calm)
        if calm
        else None,
        "undisturbed_steady_s": float(np.mean(steady)) if steady else None,
    }


def _job(job: dict[str, Any], tables: list[pd.DataFrame], alone: list[pd.Series[float] | None]) -> dict[str, Any]:
    """One job over all seeds."""
    number = job["job"]
    times = np.concatenate([metrics.pooled(table[[number]]) for table in tables])
    known = [float(one[number]) for one in alone if one is not None]
    return {
        "job": number,
        "trace": job["trace"],
        "system": job["cc"]["spec"],
        "learns": bool(job["cc"]["traits"].get("learns")),
        "workers": len(job["hosts"]),
        "mean_s": float(times.mean()),
        "p99_s": float(np.percentile(times, 99)),
        "steady_s": float(np.mean([metrics.steady(table[[number]]) for table in tables])),
        "ideal_s": job["ideal_s"],
        "alone_s": float(np.mean(known)) if known else None,
        "_means": [float(metrics.pooled(table[[number]]).mean()) for table in tables],
        "_p99s": [float(np.percentile(metrics.pooled(table[[number]]), 99)) for table in tables],
    }


def _listed(found: Interval | None) -> list[float] | None:
    return None if found is None else list(found)


def _middle(values: list[int | None]) -> float | int | None:
    """The median over seeds, where None is later than anything."""
    middle = float(np.median([np.inf if value is None else value for value in values]))
    if not np.isfinite(middle):
        return None
    return int(middle) if middle == int(middle) else middle


def _speed_up(row: dict[str, Any], base: dict[str, Any]) -> None:
    """Speed-ups against the baseline, of all jobs and of each, their intervals paired by seed."""
    paired = row["seeds"] == base["seeds"]
    jobs = {job["job"]: job for job in base["per_job"]}
    for result, other in [(row, base), *((job, jobs[job["job"]]) for job in row["per_job"] if job["job"] in jobs)]:
        for what, seconds, by_seed in (("speedup_mean", "mean_s", "_means"), ("speedup_p99", "p99_s", "_p99s")):
            result[what] = other[seconds] / result[seconds]
            ratios = [b / r for b, r in zip(other[by_seed], result[by_seed], strict=False)]
            result[f"{what}_ci95"] = _listed(log_interval(ratios)) if paired else None

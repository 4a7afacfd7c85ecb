"""One experiment in numbers: ``summary.json``, version 1 (see docs/results.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis import metrics
from analysis.load import Experiment
from analysis.measured import alone_s
from analysis.statistics import Interval, interval, log_interval

ORDER = ("valid", "suspect", "invalid")


def summarise(experiment: Experiment) -> dict[str, Any]:
    """The summary of an experiment. The first congestion control is the baseline."""
    rows = {cc: _row(experiment, cc) for cc in experiment.ccs}
    baseline = experiment.ccs[0]
    for row in rows.values():
        _speed_up(row, rows[baseline])
    verdicts = [run.verdict["verdict"] for run in [*experiment.runs, *experiment.alone.values()]]
    first = experiment.runs[0]
    return {
        "version": 1,
        "experiment": experiment.path.name,
        "substrate": first.manifest["substrate"],
        "baseline": baseline,
        "verdict": max(verdicts, key=ORDER.index),
        "results": [{key: value for key, value in row.items() if key[0] != "_"} for row in rows.values()],
    }


def _row(experiment: Experiment, cc: str) -> dict[str, Any]:
    runs = experiment.of(cc)
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
        "cc": cc,
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
        "_means": means,
        "_p99s": p99s,
    }


def _job(job: dict[str, Any], tables: list[pd.DataFrame], alone: list[pd.Series[float] | None]) -> dict[str, Any]:
    """One job over all seeds."""
    number = job["job"]
    times = np.concatenate([metrics.pooled(table[[number]]) for table in tables])
    known = [float(one[number]) for one in alone if one is not None]
    return {
        "job": number,
        "trace": job["trace"],
        "cc": job["cc"]["spec"],
        "workers": len(job["hosts"]),
        "mean_s": float(times.mean()),
        "p99_s": float(np.percentile(times, 99)),
        "steady_s": float(np.mean([metrics.steady(table[[number]]) for table in tables])),
        "ideal_s": job["ideal_s"],
        "alone_s": float(np.mean(known)) if known else None,
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
    """Speed-ups against the baseline, their intervals paired by seed."""
    row["speedup_mean"] = base["mean_s"] / row["mean_s"]
    row["speedup_p99"] = base["p99_s"] / row["p99_s"]
    paired = row["seeds"] == base["seeds"]
    for name, values in (("speedup_mean", "_means"), ("speedup_p99", "_p99s")):
        ratios = [b / r for b, r in zip(base[values], row[values], strict=False)]
        row[f"{name}_ci95"] = _listed(log_interval(ratios)) if paired else None

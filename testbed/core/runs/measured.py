"""Metrics of runs, for figures: `testbed.core.runs.metrics` of their tables, and of those of their isolated runs."""

from __future__ import annotations

from math import inf, nan

import pandas as pd

from testbed.core.runs import metrics
from testbed.core.runs.load import Experiment, Run


def last10_mean_s(run: Run) -> float:
    """Mean over the jobs of each job's last ten iterations."""
    return metrics.steady(run.times)


def ideals_s(run: Run) -> list[float]:
    """The computed ideal of each job; NaN of a real program."""
    return [nan if job.ideal_s is None else job.ideal_s for job in run.jobs]


def ideal_s(run: Run) -> float:
    """Mean over the jobs of the computed ideal; NaN if one is a real program."""
    return sum(ideals_s(run)) / len(run.jobs)


def isolated_s(experiment: Experiment, run: Run) -> pd.Series[float] | None:
    """Each job's measured time alone; None if that is not known of all of them."""
    lone = {job: metrics.alone(found.times) for job, found in experiment.find_isolated_runs(run).items()}
    return pd.Series(lone) if len(lone) == len(run.jobs) else None


def interleaved_at(experiment: Experiment, run: Run) -> float:
    """The first iteration from which every job stays within 5 % of its isolated time (`metrics.interleaved_at`).

    Infinity: not in this run. NaN: unknown, since there is one job only, or no isolated time.
    """
    alone = isolated_s(experiment, run) if len(run.jobs) > 1 else None
    if alone is None:
        return nan
    found = metrics.interleaved_at(run.times, alone)
    return inf if found is None else float(found)

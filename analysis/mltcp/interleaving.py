"""Fig. 1 of the paper: what two jobs get of one link over time, under the base and under MLTCP."""

from __future__ import annotations

from math import isnan
from pathlib import Path

import numpy as np
import pandas as pd

from testbed.core.runs import measured
from testbed.core.runs.load import Experiment, Run
from testbed.models import bottleneck
from testbed.report import drawing
from testbed.report import observations as observed
from testbed.report.study import Study
from testbed.report.views import interleaving as view

ID = "interleaving"
POSITION = 10
TITLE = "Two jobs interleave under MLTCP-Reno, not under Reno, nor with F = 1"
TEXT = (
    "Goodput of each job, stacked, in the first and last iterations of the first seed; below, every iteration. Arm paper is the published rule alone, "
    "recommended adds three rules of ours, placebo is recommended with F = 1. Dashed: the link's rate, the ideal. Dotted: from here on MLTCP differs from its base."
)


FEW = 20  # iterations; the paper gives no number in what is published


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``interleaving.{png,pdf,csv}``: the view of the study's first experiment; and a row a run, of what its claims are about."""
    if not study.experiments:
        return []
    experiment = study.experiments[0]
    return [
        *view.draw(experiment, out),
        *drawing.write_tables({f"{ID}-runs": _runs(experiment), f"{ID}-use": _use(experiment)}, out),
    ]


def _runs(experiment: Experiment) -> pd.DataFrame:
    """From which iteration on all jobs are interleaved (``at``), whether that is soon (``within``; empty: unknown), and the last ten ÷ ideal (``last``)."""
    rows = [
        {
            **_whose(run), "at": (at := measured.interleaved_at(experiment, run)),
            "within": None if isnan(at) else at <= FEW, "last": measured.last10_mean_s(run) / measured.ideal_s(run),
        }
        for run in experiment.runs
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _use(experiment: Experiment) -> pd.DataFrame:
    """The load of the busiest link in the second half of a run (``used``) and in all of it (``used_all``); no rows where the flows of a link are unknown."""
    link = bottleneck.busiest(experiment.runs)
    rows = [
        {**_whose(run), "used": _used(run, link), "used_all": _used(run, link, since=0.0)}
        for run in experiment.runs
        if link
    ]
    return pd.DataFrame(rows, columns=["system", "role", "arm", "seed", "used", "used_all"])


def _whose(run: Run) -> dict[str, object]:
    return {"system": run.system, "role": run.role, "arm": observed.arm(run), "seed": run.seed}


def _used(run: Run, link: str, since: float = 0.5) -> float:
    """The bytes over ``link`` from ``since`` (a share of the run) on ÷ the bytes if every iteration took the ideal time."""
    rows = run.links[run.links["link"] == link]
    end_s = float(run.iterations.groupby("job")["end_s"].max().min())
    first, last = np.interp([since * end_s, end_s], rows["t_s"], rows["bytes"])
    ideals = pd.Series(measured.ideals_s(run), index=[job.job for job in run.jobs])
    needed = bottleneck.needs(run, ideals)[link] * bottleneck.rate_bps(run, link)
    return float((last - first) * 8 / ((1 - since) * end_s) / needed)

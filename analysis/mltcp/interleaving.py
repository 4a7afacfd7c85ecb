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
from testbed.report.study import Study
from testbed.report.views import interleaving as view

ID = "interleaving"
POSITION = 10
TITLE = "Two jobs on one link over time, under the base and under MLTCP"
TEXT = (
    "Goodput of each job over time, stacked (the dashed line is the link's rate), in the first and in the last iterations of "
    "the first seed; below, every iteration's time. Where two phases overlap, both colours share the link; where they are interleaved, each job "
    "has it to itself, and its iteration takes the ideal time (dashed). Until a flow has seen two iterations MLTCP is exactly its base: the "
    "dotted line marks where that ends."
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
    """``system, role, seed, at, within, last``: from which iteration on all jobs are interleaved, whether that is soon (empty: unknown), and the last ten ÷ ideal."""
    rows = [
        {
            "system": run.system, "role": run.role, "seed": run.seed, "at": (at := measured.interleaved_at(experiment, run)),
            "within": None if isnan(at) else at <= FEW, "last": measured.last10_mean_s(run) / measured.ideal_s(run),
        }
        for run in experiment.runs
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _use(experiment: Experiment) -> pd.DataFrame:
    """``system, role, seed, used``; no rows where the flows of a link are unknown."""
    link = bottleneck.busiest(experiment.runs)
    rows = [
        {"system": run.system, "role": run.role, "seed": run.seed, "used": _used(run, link)}
        for run in experiment.runs
        if link
    ]
    return pd.DataFrame(rows, columns=["system", "role", "seed", "used"])


def _used(run: Run, link: str) -> float:
    """What ``link`` carries in the second half of a run ÷ what it would if every iteration took the ideal time."""
    rows = run.links[run.links["link"] == link]
    end_s = float(run.iterations.groupby("job")["end_s"].max().min())
    first, last = np.interp([end_s / 2, end_s], rows["t_s"], rows["bytes"])
    ideals = pd.Series(measured.ideals_s(run), index=[job.job for job in run.jobs])
    needed = bottleneck.needs(run, ideals)[link] * bottleneck.rate_bps(run, link)
    return float((last - first) * 8 / (end_s / 2) / needed)

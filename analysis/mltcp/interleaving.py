"""Fig. 1 of the paper: what two jobs get of one link over time, under the base and under MLTCP."""

from __future__ import annotations

from math import inf, isnan
from pathlib import Path

import numpy as np
import pandas as pd

from testbed.core.runs import measured
from testbed.core.runs.load import Experiment, Run
from testbed.models import bottleneck, statistics
from testbed.report.finding import ALIKE, Finding, Verdict, graded, not_measured
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
CLAIM = (
    "Under the base the communication phases of two jobs collide; under MLTCP they interleave within a few iterations."
)
SOURCE = "paper, abstract and Fig. 1 [published]"
USE = "MLTCP uses the network efficiently: the link carries what its jobs would send if each had it to itself."
CONTROLS = {
    USE: "shares that do not follow F (fluid model, exponent 0), and a base that interleaves by itself",
    CLAIM: "shares that do not follow F (fluid model, exponent 0), and a base that interleaves by itself",
}
FULL = 0.98  # of what the jobs would send: as good as all of it
FEW = 20  # iterations; the paper gives no number in what is published


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``interleaving.{png,pdf,csv}``: the view of the study's first experiment."""
    return view.draw(study.experiments[0], out) if study.experiments else []


def find(study: Study) -> list[Finding]:
    """In how many seeds MLTCP interleaves, how its steady state compares with the base's, and how much the link carries."""
    if not study.experiments:
        return [not_measured(claim, SOURCE, "there are no results") for claim in (CLAIM, USE)]
    experiment = study.experiments[0]
    base, *others = experiment.systems
    if not others:
        why = f"{experiment.path} holds {base} alone, and nothing to compare it with"
        return [not_measured(claim, SOURCE, why) for claim in (CLAIM, USE)]
    return [_interleaves(study, experiment, base, others[0]), _uses(study, experiment, base, others[0])]


def _interleaves(study: Study, experiment: Experiment, base: str, other: str) -> Finding:
    steady = {cc: {run.seed: measured.last10_mean_s(run) for run in experiment.runs_of(cc)} for cc in (base, other)}
    seeds = sorted(steady[base].keys() & steady[other].keys())
    gains = [steady[base][seed] / steady[other][seed] for seed in seeds]
    at, base_at = (
        [one for run in experiment.runs_of(cc) if not isnan(one := measured.interleaved_at(experiment, run))]
        for cc in (other, base)
    )
    if not at or not base_at:
        return not_measured(CLAIM, SOURCE, "the jobs' times alone are missing, and nobody can tell what is interleaved")
    reached = [one for one in at if one <= FEW]
    verdict: Verdict
    if not reached or not gains:
        verdict = "not reproduced"
    elif all(each <= FEW for each in base_at) and statistics.geometric_mean(gains) <= 1 + ALIKE:
        verdict = "no difference"
    elif len(reached) == len(at) and all(one == inf for one in base_at):
        verdict = "reproduced"
    else:
        verdict = "partly"
    gain = statistics.geometric_mean(gains) if gains else None
    when = f" (median: iteration {np.median(reached):g})" if reached else ""
    faster = "" if gain is None else f"; the last ten iterations are {gain:.2f} times as fast"
    return Finding(
        CLAIM, SOURCE,
        f"{other} interleaves in {len(reached)} of {len(at)} seeds within {FEW} iterations{when}, {base} in "
        f"{sum(one < inf for one in base_at)} of {len(base_at)}{faster}",
        gain, "× as fast, last ten iterations", statistics.log_interval(gains), len(seeds), verdict,
        f"reproduced if MLTCP interleaves within {FEW} iterations in every seed and the base in none, no difference if the base does so in every seed as well; interleaved: from "
        "then on every job stays within 5 % of its time alone",
        study.paths,
    )  # fmt: skip


def _uses(study: Study, experiment: Experiment, base: str, other: str) -> Finding:
    link = bottleneck.busiest(experiment.runs)
    if link is None:
        return not_measured(USE, SOURCE, "nobody can tell which flows cross which link")
    theirs, ours = ([_used(run, link) for run in experiment.runs_of(system)] for system in (base, other))
    share, plain = float(np.mean(ours)), float(np.mean(theirs))
    verdict = graded(share >= FULL, share > plain + ALIKE, alike=share >= FULL and plain >= FULL)
    return Finding(
        USE, SOURCE,
        f"in the second half of a run {link} carries {share:.1%} of what the jobs would send alone under {other}, {plain:.1%} "
        f"under {base}",
        share, "of what the jobs would send alone", statistics.interval(ours), len(ours), verdict,
        f"reproduced from {FULL:.0%} on, partly if it is more than the base's, no difference if the base reaches {FULL:.0%} as well; by the counters of the link's queue",
        study.paths,
    )  # fmt: skip


def _used(run: Run, link: str) -> float:
    """What ``link`` carries in the second half of a run ÷ what it would if every iteration took the ideal time."""
    rows = run.links[run.links["link"] == link]
    end_s = float(run.iterations.groupby("job")["end_s"].max().min())
    first, last = np.interp([end_s / 2, end_s], rows["t_s"], rows["bytes"])
    ideals = pd.Series(measured.ideals_s(run), index=[job.job for job in run.jobs])
    needed = bottleneck.needs(run, ideals)[link] * bottleneck.rate_bps(run, link)
    return float((last - first) * 8 / (end_s / 2) / needed)

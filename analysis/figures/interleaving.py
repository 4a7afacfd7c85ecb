"""Fig. 1 of the paper: what two jobs get of one link over time, under the base and under MLTCP."""

from __future__ import annotations

from math import inf, isnan
from pathlib import Path

import numpy as np

from analysis.finding import ALIKE, Finding, Verdict, not_measured
from analysis.study import Study
from analysis.views import interleaving as view
from core.runs import measured
from theory import statistics

ID = "interleaving"
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
CONTROLS = {CLAIM: "shares that do not follow F (fluid model, exponent 0), and a base that interleaves by itself"}
FEW = 20  # iterations; the paper gives no number in what is published


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``interleaving.{png,pdf,csv}``: the view of the study's first experiment."""
    return view.draw(study.experiments[0], out) if study.experiments else []


def find(study: Study) -> list[Finding]:
    """One finding: in how many seeds MLTCP interleaves, and how its steady state compares with the base's."""
    if not study.experiments:
        return [not_measured(CLAIM, SOURCE, "there are no results")]
    experiment = study.experiments[0]
    base, *others = experiment.systems
    if not others:
        return [not_measured(CLAIM, SOURCE, f"{experiment.path} holds {base} alone, and nothing to compare it with")]
    steady = {cc: {run.seed: measured.steady_s(run) for run in experiment.of(cc)} for cc in (base, others[0])}
    seeds = sorted(steady[base].keys() & steady[others[0]].keys())
    gains = [steady[base][seed] / steady[others[0]][seed] for seed in seeds]
    at, base_at = (
        [one for run in experiment.of(cc) if not isnan(one := measured.interleaved_at(experiment, run))]
        for cc in (others[0], base)
    )
    if not at or not base_at:
        return [
            not_measured(CLAIM, SOURCE, "the jobs' times alone are missing, and nobody can tell what is interleaved")
        ]
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
    return [
        Finding(
            CLAIM, SOURCE,
            f"{others[0]} interleaves in {len(reached)} of {len(at)} seeds within {FEW} iterations{when}, {base} in "
            f"{sum(one < inf for one in base_at)} of {len(base_at)}{faster}",
            gain, "× as fast, last ten iterations", statistics.log_interval(gains), len(seeds), verdict,
            f"reproduced if MLTCP interleaves within {FEW} iterations in every seed and the base in none, no difference if the base does so in every seed as well; interleaved: from "
            "then on every job stays within 5 % of its time alone",
            study.paths,
        )
    ]  # fmt: skip

"""SJF-BCO's Fig. 5: the makespan by κ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from analysis import schedules
from analysis.finding import Finding
from analysis.schedules import PAPER, REPORT
from analysis.study import Study
from core.runs.load import LoadError
from core.runs.schedules import Setting

__all__ = ["PAPER"]

ID = "sjf-kappa"
TITLE = "SJF-BCO: the makespan by κ"
TEXT = (
    "Jobs of up to κ GPUs fill servers in use, larger ones wait for few servers with little work. Lines are means over seeds (dots), diamonds the "
    "report's values, which are of the published setting; scales differ from setting to setting. Without any contention (the control) packing "
    "everything is best."
)
LEAST = "The makespan has a turning point at κ = 8: it falls up to there, and rises to κ = 16."
MOST = "It has another one at κ = 16, after which it falls again."
SOURCES = dict.fromkeys((LEAST, MOST), f"Fig. 5 [published]; {REPORT}")
CONTROLS = dict.fromkeys(SOURCES, "uplinks without limit (b_e → ∞), where the makespan falls from κ to κ")
PUBLISHED = {1: 626, 2: 564, 4: 541, 8: 535, 10: 700, 16: 749, 32: 736}
POINTS = {f"sjf_bco:kappa={kappa}": kappa for kappa in PUBLISHED}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-kappa.{png,pdf,csv}``; the data: a row for each schedule."""
    return schedules.curve(study, out, POINTS, PUBLISHED, "κ (GPUs)")


def find(study: Study) -> list[Finding]:
    """For each setting: either turning point."""
    return schedules.findings(
        study,
        SOURCES,
        {
            LEAST: lambda setting: _turn(study, LEAST, setting, 8, (1, 16), np.minimum),
            MOST: lambda setting: _turn(study, MOST, setting, 16, (8, 32), np.maximum),
        },
    )


def _turn(study: Study, claim: str, setting: Setting, at: int, beside: tuple[int, int], nearer: np.ufunc) -> Finding:
    """The makespan at a turning point against the nearer of those on both sides: ÷ the lesser below, the greater ÷ it above."""
    table = schedules.of(study).table
    spans = {kappa: schedules.values(table, setting.name, name) for name, kappa in POINTS.items()}
    if any(spans[kappa].empty for kappa in (at, *beside)):
        raise LoadError("not every κ of it was computed")
    other = pd.Series(nearer(spans[beside[0]], spans[beside[1]]))
    lowest = nearer is np.minimum
    means = {kappa: float(found.mean()) for kappa, found in spans.items() if not found.empty}
    best = min(means, key=means.__getitem__)
    return schedules.judged(
        claim, SOURCES[claim], setting,
        schedules.ratio(spans[at], other) if lowest else schedules.ratio(other, spans[at]),
        f"mean makespan by κ: {', '.join(f'{kappa}: {mean:.0f}' for kappa, mean in means.items())} s; the best is κ = {best}; published "
        f"{', '.join(f'{kappa}: {slots}' for kappa, slots in PUBLISHED.items())}",
        f"the makespan at κ = {at} ÷ the lesser of those at {beside[0]} and {beside[1]}" if lowest else f"the greater makespan of κ = {beside[0]} and {beside[1]} ÷ that at {at}",
        f"the makespan at κ = {at} ÷ the lesser of its neighbours' (κ = {beside[0]}, {beside[1]})" if lowest else f"the greater of its neighbours' makespans (κ = {beside[0]}, {beside[1]}) ÷ that at κ = {at}",
    )  # fmt: skip

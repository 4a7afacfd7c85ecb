"""Slope and intercept of F: where MLTCP interleaves, how soon, and where the published values stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.congestion.curves import ONE
from testbed.core.runs.load import LoadError
from testbed.models.statistics import geometric_mean, log_interval, ratio_ends
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.finding import Finding, graded, no_difference, not_measured, not_measured_without
from testbed.report.study import Study

ID = "sensitivity"
POSITION = 170
TITLE = "Slope and intercept of F(r) = S r + I"
TEXT = (
    "Each cell is one pair of slope and intercept, left the iteration time of the settled half ÷ the ideal, mean over seeds (dark is "
    "good; below it least and largest of the seeds, if they differ; the base's mean stands in the title), right the iteration from which every job stays "
    "within 5 % of its time alone (the median; below it in how many of the seeds it does so at all). The frame marks the default, S = 1.75 and I = 0.25. White cells were not run."
)
CLAIM = "A range of F wide enough to overcome noise interleaves; the chosen slope and intercept (1.75, 0.25) are in it."
SOURCE = "requirement on F: paper [recalled with high confidence, unconfirmed]"
DEFAULT = (1.75, 0.25)
CONTROLS = {CLAIM: "every pair where the base is, and a default that is worse than the best"}
NEAR = 0.02  # of the ideal: as good as the best
FINE = 0.05  # of the ideal: interleaved


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sensitivity.{png,pdf,csv}``; the data: a row per run."""
    table = _table(study)
    variants = table.dropna(subset="slope")
    figure, axes = style.new_figure(1, 2, figsize=(11, 4.2))
    base = table[table["role"] != "treatment"]
    title = "Settled iteration time ÷ ideal"
    if len(base):
        title += f" ({base['cc'].iloc[0]}: {base['settled'].mean():.2f})"
    cells = variants.pivot_table(index="intercept", columns="slope", values="settled")
    worst = max(1.1, float(table["settled"].max()))
    numbers = variants.pivot_table(index="intercept", columns="slope", values="settled", aggfunc=_spread).reindex_like(
        cells
    )
    _heat(axes[0, 0], cells, numbers, title, 1.0, worst)
    at = variants.pivot_table(
        index="intercept", columns="slope", values="interleaved_at", aggfunc="median", dropna=False
    )
    words = variants.pivot_table(
        index="intercept", columns="slope", values="interleaved_at", aggfunc=_when
    ).reindex_like(at)
    last = float(study.runs[0].jobs[0].iterations)
    _heat(axes[0, 1], at.replace(np.inf, last), words, "Interleaved from iteration", 0.0, last)
    drawing.caption(
        figure,
        f"{drawing.setting(study.runs[0])}; {drawing.count(table['jobs'].iloc[0], 'job')}, together {table['load'].iloc[0]:.0%} of the link; "
        f"{drawing.count(table['seed'].nunique(), 'seed')}.",
    )
    return drawing.save(figure, table, out, ID)


@not_measured_without({CLAIM: SOURCE})
def find(study: Study) -> list[Finding]:
    """One finding: how the default compares with the best, and how many pairs are fine."""
    table = _table(study).dropna(subset="slope")
    means = table.groupby(["slope", "intercept"])["settled"].apply(geometric_mean)
    if DEFAULT not in means.index:
        return [not_measured(CLAIM, SOURCE, "the default slope and intercept were not run")]
    ours = list(table[(table["slope"] == DEFAULT[0]) & (table["intercept"] == DEFAULT[1])]["settled"])
    best = float(means.min())
    wide = means[[slope / intercept >= DEFAULT[0] / DEFAULT[1] for slope, intercept in means.index]]
    fine = int((means <= 1 + FINE).sum())
    fine_wide = int((wide <= 1 + FINE).sum())
    base = observed.table(study)
    base = base[base["role"] == "baseline"]
    alike = len(base) > 0 and no_difference(
        ratio_ends([means.max() / geometric_mean(base["settled"]), best / geometric_mean(base["settled"])])
    )
    middle = geometric_mean(ours)
    verdict = graded(middle <= best + NEAR and fine_wide == len(wide), middle <= best + FINE, alike=alike)
    return [
        Finding(
            CLAIM, SOURCE,
            f"settled half ÷ ideal: {observed.with_interval(ours, 3)} at S = 1.75, I = 0.25; the best of {len(means)} pairs {best:.3f}, "
            f"the worst {means.max():.3f}; {fine} pairs within {FINE:.0%} of the ideal",
            middle, "× ideal iteration time, the default, settled half", log_interval(ours), len(ours), verdict,
            f"reproduced if the default is within {NEAR:g} of the best and all {len(wide)} pairs with S/I of at least 7 are within "
            f"{FINE:.0%} of the ideal ({fine_wide} are), not reproduced if the default is more than {FINE:g} above the best, no difference if every pair is where "
            "the base is",
            study.paths,
        )
    ]  # fmt: skip


def _table(study: Study) -> pd.DataFrame:
    table = observed.table(study)
    if table.empty or not (table["role"] == "treatment").any():
        raise LoadError("sensitivity: there is no run of MLTCP; run experiments/sensitivity.toml")
    for name in ("slope", "intercept"):
        table[name] = [
            run.constants(run.system)[name] / ONE if run.role == "treatment" else np.nan for run in study.runs
        ]
        table[name] = table[name].round(2)
    return table


def _heat(axis: Any, cells: pd.DataFrame, words: pd.DataFrame, title: str, low: float, high: float) -> None:
    values = cells.to_numpy(dtype=float)
    axis.imshow(values, origin="lower", aspect="auto", cmap="cividis", vmin=low, vmax=high)
    for (y, x), word in np.ndenumerate(words.fillna("").to_numpy()):
        dark = (values[y, x] - low) / (high - low) < 0.5
        axis.text(x, y, word, ha="center", va="center", fontsize=10, color="white" if dark else "black")
    if DEFAULT[0] in cells.columns and DEFAULT[1] in cells.index:
        axis.add_patch(_frame([*cells.columns].index(DEFAULT[0]), [*cells.index].index(DEFAULT[1])))
    axis.set_xticks(range(len(cells.columns)), [f"{value:g}" for value in cells.columns])
    axis.set_yticks(range(len(cells.index)), [f"{value:g}" for value in cells.index])
    axis.grid(visible=False)
    axis.set_xlabel("slope S")
    axis.set_ylabel("intercept I")
    axis.set_title(title, fontsize=10)


def _spread(values: pd.Series[float]) -> str:
    ends = f"{values.min():.2f}", f"{values.max():.2f}"
    return f"{values.mean():.2f}" + ("" if ends[0] == ends[1] else f"\n{ends[0]}–{ends[1]}")


def _when(at: pd.Series[float]) -> str:
    """The median of iterations, infinite (never) ones included, and how many there are."""
    known = at.dropna()
    if known.empty:
        return ""
    middle = float(known.median())
    return ("never" if np.isinf(middle) else f"{middle:g}") + f"\n{np.isfinite(known).sum()} of {len(known)}"


def _frame(x: int, y: int) -> Any:
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    return Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor=drawing.BASE, linewidth=2.5)

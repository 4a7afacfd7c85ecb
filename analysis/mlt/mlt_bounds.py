"""How much may be missing before a training needs more rounds: at random, of what matters least, by magnitude, by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core.runs.load import LoadError
from testbed.models import gradient_masks, learning
from testbed.models.statistics import geometric_mean
from testbed.report import drawing, redrawing, style, trainings
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "mlt-bounds"
POSITION = 310
TITLE = "Losing large gradients costs 17 % more rounds than losing small ones; the layer hardly matters"
TEXT = (
    "Rounds to 90 % of the last accuracy with nothing missing, relative to those, over the share missing. Left: of all packets, any or the less important "
    "half. Middle: of a third by magnitude. Right: of a layer. Grey bands: the paper's bounds. A bound is the largest share with at most 5 % more rounds."
)
SHARES = (0.01, 0.03, 0.1, 0.3)
WITHIN = 0.05
NEVER = 10.0  # × the rounds: what never comes there
ALL = ("random", "what matters least")
NAMES = {"what matters least": "less important half"}  # as the legend has them
PANELS = {
    "of all packets": ALL,
    "of a third by magnitude": ("smallest third", "middle third", "largest third"),
    "of a layer": ("first layer", "last layer"),
}
PUBLISHED = {
    "of all packets": ((0.7, 3.3), (11, 18)),
    "of a third by magnitude": ((0.4, 0.4), (20, 30)),
    "of a layer": ((0.3, 0.3), (5, 30)),
}


def candidates(part: str) -> gradient_masks.Candidates:
    """Which packets may go; raises `KeyError` for another name."""
    task = learning.task()
    first = learning.first_layer()
    return {
        "random": gradient_masks.anywhere, "what matters least": gradient_masks.unimportant,
        "smallest third": gradient_masks.third(0), "middle third": gradient_masks.third(1), "largest third": gradient_masks.third(2),
        "first layer": gradient_masks.within(0, first), "last layer": gradient_masks.within(first, task.parameters),
    }[part]  # fmt: skip


@dataclass(frozen=True)
class _Loss:
    """A share of a part; called, a mean for a training (so that two alike are computed once)."""

    part: str
    share: float
    seed: int

    def __call__(self) -> learning.Mean:
        return gradient_masks.Dropped(self.share, candidates(self.part), self.seed, of_all=self.part in ALL)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-bounds.{png,pdf,csv}``; the data: a row per seed, part and share."""
    rows = _table(study)
    one, task = study.runs[0], learning.task()
    lost = [trainings.holes(run)[1] for run in study.runs]
    note = (
        f"{drawing.count(len(one.jobs[0].hosts), 'worker')}; {drawing.count(rows['seed'].nunique(), 'seed')} (dots). A perceptron of {task.parameters:,} numbers, "
        f"{drawing.count(-(-task.bytes // gradient_masks.PACKET_BYTES), 'packet')}; missing ranges are zeros. In the emulated network ({drawing.setting(one)}) MLT leaves {sum(lost) / len(lost):.1%} missing."
    )
    return redrawing.publish(plot, {ID: rows}, note, out)


def plot(tables: Tables) -> Any:
    """Rounds over the share missing: a panel for each kind of part."""
    rows = tables[ID]
    figure, axes = style.new_figure(1, len(PANELS), figsize=(14, 4.4), sharey=True)
    for axis, (title, parts) in zip(axes[0], PANELS.items(), strict=True):
        for low, high in PUBLISHED[title]:
            axis.axvspan(low * 0.93, high * 1.07, color="#EEEEEE", zorder=0)
        for colour, part in zip(style.JOBS, parts, strict=False):
            mine = rows[rows["part"] == part]
            means = mine.groupby("missing")["ratio"].mean()
            axis.plot(
                100 * means.index,
                means,
                color=colour,
                label=f"{NAMES.get(part, part)}: {_format_bound(_bound(rows, part))}",
            )
            axis.plot(100 * mine["missing"], mine["ratio"], "o", color=colour, markersize=3)
        axis.axhline(1 + WITHIN, color=style.REFERENCE, linewidth=0.9, linestyle="--")
        axis.set_xscale("log")
        axis.set_xticks([100 * share for share in SHARES], [f"{share:.0%}" for share in SHARES])
        axis.set(xlabel=f"missing ({title})", title=title.removeprefix("of ").capitalize())
        axis.legend(fontsize=8.5, loc="upper left")
    axes[0, 0].set_ylabel("rounds ÷ those with nothing missing")
    return figure


def _bound(rows: pd.DataFrame, part: str) -> float:
    """The largest share up to which rounds stay within 5 %, in the mean of the seeds; 0: none of the shares."""
    bound = 0.0
    for share in SHARES:
        if geometric_mean(_ratios(rows, part, share)) > 1 + WITHIN:
            break
        bound = share
    return bound


def _ratios(rows: pd.DataFrame, part: str, share: float) -> list[float]:
    return [float(ratio) for ratio in rows[(rows["part"] == part) & (rows["missing"] == share)]["ratio"]]


def _format_bound(bound: float) -> str:
    return f"below {SHARES[0]:.0%}" if not bound else f"{bound:.0%}" + (" or more" if bound == SHARES[-1] else "")


def _table(study: Study) -> pd.DataFrame:
    """``part, seed, missing, ratio``; raises `LoadError` without runs, which give the numbers of workers and seeds."""
    if not study.runs:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    workers = {run.seed: len(run.jobs[0].hosts) for run in study.runs}
    return pd.DataFrame([row for seed, count in workers.items() for row in _rows(seed, count)])


def _rows(seed: int, workers: int) -> Iterator[dict[str, Any]]:
    whole, limit = trainings.whole(seed, workers)
    for parts in PANELS.values():
        for part in parts:
            for share in SHARES:
                rounds = trainings.rounds(trainings.nothing(workers), seed, limit, _Loss(part, share, seed))
                yield {
                    "part": part,
                    "seed": seed,
                    "missing": share,
                    "ratio": rounds / whole if isfinite(rounds) else NEVER,
                }

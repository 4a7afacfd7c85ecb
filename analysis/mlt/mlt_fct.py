"""How long exchanges take under MLT and TCP, in the mean and at the tail, over the number of workers; published values beside."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean, log_interval, ratio_ends
from testbed.report import drawing, phases, style
from testbed.report import observations as observed
from testbed.report.finding import Finding, graded, no_difference, not_measured, not_measured_without
from testbed.report.study import Study

ID = "mlt-fct"
POSITION = 280
PAPER = "MLT"
TITLE = "How long an exchange takes under MLT"
TEXT = (
    "From the moment a layer's gradient is ready until its parameters are there: mean (left) and 99th percentile (right) over all layers, workers, and iterations "
    "but the first, ÷ that of DCTCP; dots are seeds. Like pFabric and PIAS: tensors in strict priority by what is left or was sent of them, over DCTCP (docs/baselines.md). "
    "Grey, to the right: the paper's flow completion times (ns-3, ResNet50), 36 to 144 workers, NDP's among them, which is not run here: a flow is a part of "
    "such an exchange, so that only the ratios can be compared."
)
MEAN = "Exchanges are shorter in the mean under MLT than under DCTCP."
TAIL = "The tail is shorter under MLT than under DCTCP, the more so the more workers there are."
BANDS = "Exchanges are shorter under MLT than where tensors with least left go first, mean and tail."
SOLVED = "With thresholds as its appendix has them solved for, MLT's exchanges are shorter than with thresholds in proportion to the bands."
SOURCES = {
    MEAN: "MLT, simulation: average flow completion time −43.1 % against DCTCP",
    TAIL: "MLT, simulation: tail flow completion time −91.8 % against DCTCP, above 72 workers",
    BANDS: "MLT, simulation: −35.5 % (average) and −88.6 % (tail) against pFabric",
    SOLVED: "ours; MLT, appendix [published], which has the program and not its solution",
}
CONTROLS = {
    MEAN: "an MLT that takes as long as DCTCP", TAIL: "an MLT that takes as long as DCTCP", BANDS: "bands that are as soon as MLT",
    SOLVED: "an MLT that takes as long as DCTCP",
}  # fmt: skip
# Average and tail in ms at 36, 72, 108 and 144 workers, ResNet50 (published figure, values read from the drawing).
PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    "mean_s": {
        "DCTCP": (1.72, 2.49, 3.20, 4.07), "MLT": (1.27, 1.73, 2.07, 2.32), "NDP": (1.32, 1.85, 2.14, 2.40), "pFabric": (1.53, 2.11, 2.95, 3.60),
        "PIAS": (1.77, 2.49, 3.38, 4.20),
    },
    "tail_s": {
        "DCTCP": (11, 13, 631, 634), "MLT": (8, 13, 17, 52), "NDP": (9, 14, 18, 57), "pFabric": (10, 17, 330, 453), "PIAS": (10, 17, 634, 634),
    },
}  # fmt: skip
ABOVE = 72  # workers, the published gain at the tail
PALE = "#999999"
DASHES = ("-", "--", ":", "-.")
AT = ("36", "72", "108", "144")
TITLES = {"mean_s": "mean", "tail_s": "99th percentile (published: tail)"}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-fct.{png,pdf,csv}``; the data: a row per run, seconds."""
    rows = _table(study)
    workers = sorted(rows["workers"].unique())
    figure, axes = style.new_figure(1, 2, figsize=(11, 4.4), sharey=True)
    for axis, (column, title) in zip(axes[0], TITLES.items(), strict=True):
        for colour, (system, mine) in zip(style.JOBS, rows.groupby("system", sort=False), strict=False):
            ratios = (
                mine[column]
                / _base(rows, column).reindex(pd.MultiIndex.from_frame(mine[["workers", "seed"]])).to_numpy()
            )
            x = mine["workers"].map(workers.index)
            means = ratios.groupby(x).mean()
            arrived = mine["delivered"].mean()
            axis.plot(
                means.index,
                means,
                color=colour,
                label=f"{system}" + ("" if arrived == 1 else f" ({arrived:.0%} arrived)"),
            )
            axis.plot(x, ratios, "o", color=colour, markersize=4)
        (_, base), *others = PUBLISHED[column].items()
        beyond = range(len(workers), len(workers) + len(AT))
        for dash, (name, values) in zip(DASHES, others, strict=True):
            shares = [value / of for value, of in zip(values, base, strict=True)]
            axis.plot(
                beyond,
                shares,
                dash,
                color=PALE,
                marker="o",
                markersize=3,
                linewidth=1.2,
                label=f"published: {name}",
            )
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set_xticks(range(len(workers) + len(AT)), [*map(str, workers), *AT])
        axis.set(title=title, xlabel="workers (right, grey: as published)")
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 0].set_ylabel("completion of an exchange ÷ DCTCP's")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=4,
        fontsize=9,
    )
    one = study.runs[0]
    drawing.caption(
        figure,
        f"{one.jobs[0].trace}, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')} (dots), {drawing.count(one.jobs[0].iterations, 'iteration')}. "
        "Of MLT's gradients up to a tenth may be missing.",
    )
    return drawing.save(figure, rows, out, ID)


@not_measured_without(SOURCES)
def find(study: Study) -> list[Finding]:
    """Mean and tail of MLT ÷ those of DCTCP, and both ÷ those by priority; and of MLT by other thresholds."""
    rows = _table(study)
    found = []
    for claim, column in ((MEAN, "mean_s"), (TAIL, "tail_s")):
        cells = _shorter(rows, column, _base(rows, column))
        partly = rows[rows["system"].str.contains("share=")].set_index(["workers", "seed"])[column]
        shares = _shorter(rows, column, partly)
        ends = [ratio_ends(values)[0] > 1 for values in cells.values()]
        means = [geometric_mean(values) for values in cells.values()]
        most = max(cells)
        grows = claim == MEAN or means == sorted(means)
        found.append(Finding(
            claim, SOURCES[claim],
            "DCTCP's ÷ MLT's: " + "; ".join(f"{observed.with_interval(values)} with {drawing.count(workers, 'worker')}" for workers, values in cells.items())
            + f"; of MLT's gradients {_mlt(rows)['delivered'].mean():.1%} arrived"
            + "".join(f"; that of TCP that sends 90 % of them ÷ MLT's {observed.with_interval(values)} with {workers}" for workers, values in shares.items() if values)
            + ("" if claim == MEAN else f"; {_begins(cells)} (published: above {ABOVE})"),
            geometric_mean(cells[most]), f"× as short as DCTCP's, {drawing.count(most, 'worker')}", log_interval(cells[most]), len(cells[most]),
            graded(all(ends) and grows, any(mean > 1 for mean in means)),
            f"reproduced if surely shorter with any number of workers{'' if claim == MEAN else ', and more so with more'}, partly if in the mean with one",
            study.paths,
        ))  # fmt: skip
    return [*found, _against_bands(rows, study.paths), _solved(rows, study.paths)]


def _shorter(rows: pd.DataFrame, column: str, base: pd.Series[float]) -> dict[int, list[float]]:
    """By workers: ``base`` ÷ MLT's, a ratio a seed."""
    return {
        int(str(workers)): [
            base[workers, seed] / value
            for seed, value in zip(mine["seed"], mine[column], strict=True)
            if (workers, seed) in base
        ]
        for workers, mine in _mlt(rows).groupby("workers")
    }


def _begins(cells: dict[int, list[float]]) -> str:
    """From how many workers on exchanges are surely shorter: with so many and with any more."""
    sure = list(takewhile(lambda workers: ratio_ends(cells[workers])[0] > 1, sorted(cells, reverse=True)))
    return (
        f"surely shorter from {drawing.count(sure[-1], 'worker')} on"
        if sure
        else "from no number of workers on surely shorter"
    )


def _against_bands(rows: pd.DataFrame, paths: tuple[Path, ...]) -> Finding:
    """MLT beside strict priority over TCP, with the most workers that both have."""
    banded = rows[rows["system"].str.startswith("priority")]
    mlt = _mlt(rows).set_index(["workers", "seed"])
    if banded.empty:
        return not_measured(BANDS, SOURCES[BANDS], "no run by priority")
    most = banded["workers"].max()
    ratios = {
        column: [
            float(row[column] / mlt.loc[(most, row["seed"]), column])
            for _, row in banded[banded["workers"] == most].iterrows()
            if (most, row["seed"]) in mlt.index
        ]
        for column in TITLES
    }
    sure = [ratio_ends(values)[0] > 1 for values in ratios.values()]
    mean = ratios["mean_s"]
    return Finding(
        BANDS, SOURCES[BANDS],
        f"theirs ÷ MLT's, {drawing.count(most, 'worker')}: mean {observed.with_interval(mean)}, 99th percentile {observed.with_interval(ratios['tail_s'])}",
        geometric_mean(mean), "× as short in the mean", log_interval(mean), len(mean), graded(all(sure), any(sure)),
        "reproduced if both are surely shorter, partly if one is", paths,
    )  # fmt: skip


def _mlt(rows: pd.DataFrame) -> pd.DataFrame:
    """Of MLT as it is by default, which the experiment lists first."""
    ours = rows[~rows["tcp"]]
    table: pd.DataFrame = ours[ours["system"] == ours["system"].iloc[0]]
    return table


def _solved(rows: pd.DataFrame, paths: tuple[Path, ...]) -> Finding:
    """MLT by the appendix's thresholds beside the default ones, over all numbers of workers."""
    other = rows[rows["system"].str.contains("solved")]
    if other.empty:
        return not_measured(SOLVED, SOURCES[SOLVED], "no run with thresholds that were solved for")
    usual, solved = (table.set_index(["workers", "seed"]) for table in (_mlt(rows), other))
    both = usual.index.intersection(solved.index)
    ratios = {
        column: (usual.loc[both, column] / solved.loc[both, column])
        .groupby("seed")
        .apply(lambda one: geometric_mean(one.tolist()))
        .tolist()
        for column in TITLES
    }
    ends = {column: ratio_ends(values) for column, values in ratios.items()}
    mean = ratios["mean_s"]
    return Finding(
        SOLVED, SOURCES[SOLVED],
        f"in proportion ÷ solved for: mean {observed.with_interval(mean)}, 99th percentile {observed.with_interval(ratios['tail_s'])}",
        geometric_mean(mean), "× as short in the mean", log_interval(mean), len(mean),
        graded(all(low > 1 for low, _ in ends.values()), any(low > 1 for low, _ in ends.values()), alike=all(map(no_difference, ends.values()))),
        "reproduced if mean and tail are surely shorter, partly if one is", paths,
    )  # fmt: skip


def _base(rows: pd.DataFrame, column: str) -> pd.Series[float]:
    """Of the system that the paper compares with, by workers and seed: the first TCP."""
    first = rows[rows["tcp"]]["system"].iloc[0]
    found: pd.Series[float] = rows[rows["system"] == first].set_index(["workers", "seed"])[column]
    return found


def _table(study: Study) -> pd.DataFrame:
    """``workers, system, role, tcp, seed, delivered, mean_s, tail_s``; raises `LoadError` without MLT beside TCP."""
    rows = pd.DataFrame([_row(run) for run in study.runs])
    if rows.empty or rows["tcp"].all() or not rows["tcp"].any():
        raise LoadError(f"{ID}: there are no results of both MLT and TCP; run experiments/{ID}.toml")
    return rows.sort_values("workers", kind="stable", ignore_index=True)


def _row(run: Run) -> dict[str, Any]:
    sends = {operation.id for operation in run.jobs[0].collectives}
    told = run.operations
    done = told[told["operation"].isin(sends) & (told["iteration"] > 0)]  # the first finds its rates
    took = (done["end_s"] - done["start_s"]).to_numpy()
    return {
        "workers": len(run.jobs[0].hosts), "system": run.system, "role": run.role, "tcp": run.jobs[0].by_tcp, "seed": run.seed,
        "delivered": phases.delivered(run), "mean_s": float(took.mean()), "tail_s": float(np.percentile(took, 99)),
    }  # fmt: skip

"""SJF-BCO and others on the TCP stack, with less and more communication: makespans, and what equation 8 foretells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from testbed.models.statistics import ends, estimate_ratio, geometric_mean, interval, log_interval, ratio_ends
from testbed.report import drawing, emulated, schedules, style
from testbed.report.finding import Finding, graded, no_difference, not_measured, not_measured_without
from testbed.report.study import Study

ID = "sjf-ratio"
POSITION = 450
PAPER = schedules.PAPER
TITLE = "SJF-BCO's schedules with real traffic, with less and more communication"
TEXT = (
    "Sixteen jobs in the report's proportions on six servers, in another order for each seed, carried out with real traffic. Left, the makespan over communication ÷ computing, by job scheduler (dots: seeds; bars: means, "
    "95 % intervals). Right, what equation 8 foretells of the same schedule with the constants that `sjf-model` fits to other runs, over what came out; between the dotted "
    "lines it is off by 15 % at most."
)
FORETELLS = "Equation 8 foretells the makespan of a schedule on the TCP stack to 15 %."
FIRST = "SJF-BCO has the last job end before list scheduling, first fit and random placement do, on the TCP stack."
BUDGET = "It ends before tightest fit in the best of 22 job orders, as many schedules as it evaluates at the most."
SOURCES = {
    FORETELLS: "ours: the report simulates its schedules, and carries none out",
    FIRST: f"{schedules.REPORT}, figure 4 [published], there by simulation",
    BUDGET: "ours: the report gives its rivals no search over orders",
}
CONTROLS = {
    FORETELLS: "iterations that take three times as long as alone, whoever contends",
    FIRST: "SJF-BCO's jobs take three times as long as the others'",
    BUDGET: "SJF-BCO's jobs take three times as long as the others'",
}
CLOSE = 0.15
BASELINES = ("list_scheduling", "first_fit", "random")
SEARCHED = ("best_of:n=22",)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-ratio.{png,pdf,csv}``; the data: a row per run."""
    table = emulated.table(study)
    figure, axes = style.new_figure(1, 2, figsize=(11.0, 4.6))
    left, right = axes[0]
    ratios = sorted(table["ratio"].unique())
    names = list(dict.fromkeys(table["scheduler"]))
    for place, (name, colour) in enumerate(zip(names, style.JOBS, strict=False)):
        rows = table[table["scheduler"] == name]
        for number, ratio in enumerate(ratios):
            own = rows.loc[rows["ratio"] == ratio, "makespan_s"].tolist()
            x = number + (place - (len(names) - 1) / 2) * 0.8 / len(names)
            drawing.seeds(
                left, x, own, colour, width=0.6 / len(names), label=schedules.short(name) if number == 0 else None
            )
        right.plot(rows["foretold_makespan_s"], rows["makespan_s"], "o", color=colour, markersize=5, markeredgewidth=0, alpha=0.7, label=schedules.short(name))  # fmt: skip
    left.set(xlabel="communication ÷ computing", ylabel="makespan (s)", title="With real traffic", ylim=(0, None))
    left.set_xticks(range(len(ratios)), [f"{ratio:.2g}" for ratio in ratios])
    left.legend(loc="upper left")
    reach = np.array([0.0, 1.05 * float(table[["makespan_s", "foretold_makespan_s"]].to_numpy().max())])
    right.plot(reach, reach, color=style.REFERENCE, linewidth=1)
    for off in (1 - CLOSE, 1 + CLOSE):
        right.plot(off * reach, reach, ":", color=style.REFERENCE, linewidth=1)
    right.set(xlabel="makespan foretold (s)", ylabel="measured (s)", title="Equation 8, fitted to other runs")
    drawing.caption(figure, f"{drawing.setting(study.runs[0])}; {drawing.count(table['seed'].nunique(), 'seed')}")
    return drawing.save(figure, table, out, ID)


@not_measured_without(SOURCES)
def find(study: Study) -> list[Finding]:
    """Whether the model holds for whole schedules, and whether SJF-BCO is ahead of the report's baselines."""
    table = emulated.table(study)
    ratios = sorted(table["ratio"].unique())
    earlier = [
        _earlier(study, table, claim, ratio, rivals)
        for claim, rivals in ((FIRST, BASELINES), (BUDGET, SEARCHED))
        for ratio in ratios
    ]
    return [_foretells(study, table), *earlier]


def _foretells(study: Study, table: pd.DataFrame) -> Finding:
    off = (table["foretold_makespan_s"] / table["makespan_s"] - 1).abs()
    errors = off.groupby(table["seed"]).mean().tolist()
    worst = off.groupby(table["scheduler"], sort=False).mean()
    jobs = table.groupby("seed")["job_off"].mean().tolist()
    high, value = ends(errors)[1], float(np.mean(errors))
    return Finding(
        FORETELLS, SOURCES[FORETELLS],
        f"off by {value:.1%} in the mean over {drawing.count(len(table), 'run')}, a job's completion by {float(np.mean(jobs)):.1%}; " + ", ".join(f"{schedules.short(str(name))} {one:.1%}" for name, one in worst.items()),
        value, "of the makespan, the mean error", interval(errors), len(errors), graded(high <= CLOSE, value <= CLOSE),
        f"reproduced if the mean error is surely at most {CLOSE:.0%} (95 % interval over seeds), partly if its mean is", study.paths,
    )  # fmt: skip


def _earlier(study: Study, table: pd.DataFrame, of: str, ratio: float, rivals: Sequence[str]) -> Finding:
    claim, rows = f"{of} Communication ÷ computing {ratio:.2g}.", table[table["ratio"] == ratio]
    wide = rows.pivot_table(index="seed", columns="scheduler", values="makespan_s").dropna()
    others = [name for name in rivals if name in wide]
    if schedules.MINE not in wide or not others or wide.empty:
        return not_measured(claim, SOURCES[of], "SJF-BCO or what it is compared with was not run")
    against = {name: (wide[schedules.MINE] / wide[name]).tolist() for name in others}
    best = max(others, key=lambda name: geometric_mean(against[name]))
    low, high = ratio_ends(against[best])
    rest = "; ".join(f"÷ {schedules.short(name)} {estimate_ratio(values)}" for name, values in against.items())
    return Finding(
        claim, SOURCES[of], f"SJF-BCO's makespan {rest}", geometric_mean(against[best]), f"of the makespan of {schedules.short(best)}" + (", the best of them" if len(others) > 1 else ""),
        log_interval(against[best]), len(wide),
        graded(high < 1, geometric_mean(against[best]) < 1, alike=no_difference((low, high))),
        "reproduced if the makespan is surely below that of the best of these (95 % interval over seeds), partly if in the mean", study.paths,
    )  # fmt: skip

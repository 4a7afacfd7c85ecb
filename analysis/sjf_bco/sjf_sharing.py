"""Which gains add up: job schedulers crossed with ways to share links, on one list of jobs, with real traffic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from testbed.core.runs.load import LoadError
from testbed.models.statistics import estimate_ratio, geometric_mean, log_interval, ratio_ends
from testbed.report import drawing, emulated, schedules, style
from testbed.report import observations as observed
from testbed.report.finding import ALIKE, Finding, graded, no_difference, not_measured, not_measured_without
from testbed.report.study import Study

ID = "sjf-sharing"
POSITION = 460
PAPER = schedules.PAPER
TITLE = "Who runs where, and who sends when: which gains add up"
TEXT = (
    "One list of sixteen jobs, given GPUs by each job scheduler (rows) and carried by each system (columns), with real traffic. Left the makespan, right the mean completion, in "
    "seconds, the mean over seeds; darker is longer. A row of panels for each communication ÷ computing."
)
MAKESPAN = "MLTCP shortens the makespan of a schedule, whoever made it."
COMPLETION = "MLTCP shortens the mean completion of a schedule's jobs, whoever made it."
ADD_UP = "SJF-BCO's schedule under MLTCP has the last job end before its schedule under the base, and before any other's under MLTCP."
SOURCES = dict.fromkeys((MAKESPAN, COMPLETION, ADD_UP), "ours: neither paper has the other's part")
CONTROLS = {
    MAKESPAN: "iterations that take longer under MLTCP",
    COMPLETION: "iterations that take longer under MLTCP",
    ADD_UP: "iterations that take longer under MLTCP",
}
PANELS = (("makespan_s", "Makespan (s)"), ("completion_s", "Mean completion (s)"))


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-sharing.{png,pdf,csv}``; the data: a row per run."""
    table = emulated.table(study)
    ratios = sorted(table["ratio"].unique())
    height = 1.4 + 0.55 * table["scheduler"].nunique()
    figure, axes = style.new_figure(len(ratios), 2, figsize=(11.0, len(ratios) * height))
    for row, ratio in zip(axes, ratios, strict=True):
        for axis, (column, title) in zip(row, PANELS, strict=True):
            _panel(axis, table[table["ratio"] == ratio], column)
            axis.set(title=f"{title}, communication ÷ computing {ratio:.2g}")
    drawing.caption(figure, f"{drawing.setting(study.runs[0])}; {drawing.count(table['seed'].nunique(), 'seed')}")
    return drawing.save(figure, table, out, ID)


def _panel(axis: Axes, table: pd.DataFrame, column: str) -> None:
    """The mean of a column, by job scheduler and system."""
    names, systems = (list(dict.fromkeys(table[key])) for key in ("scheduler", "system"))
    means = table.pivot_table(index="scheduler", columns="system", values=column).reindex(index=names, columns=systems)
    axis.imshow(means.to_numpy(), cmap="Greys", aspect="auto", vmin=0, vmax=1.6 * float(np.nanmax(means.to_numpy())))
    for row, name in enumerate(names):
        for place, system in enumerate(systems):
            axis.text(place, row, f"{means.loc[name, system]:.3g}", ha="center", va="center")
    axis.set_xticks(range(len(systems)), systems)
    axis.set_yticks(range(len(names)), [schedules.short(name) for name in names])
    axis.grid(visible=False)


@not_measured_without(SOURCES)
def find(study: Study) -> list[Finding]:
    """What MLTCP does to makespan and completion of each schedule, and whether both gains add up, by how much is communicated."""
    table = emulated.table(study)
    pair = observed.pair(dict(zip(table["system"], table["role"], strict=True)))
    if pair is None:
        raise LoadError("there are no runs of both a base and MLTCP")
    return [
        finding
        for ratio in sorted(table["ratio"].unique())
        for rows in [table[table["ratio"] == ratio]]
        for finding in (
            _shortens(study, rows, pair, MAKESPAN, "makespan_s"),
            _shortens(study, rows, pair, COMPLETION, "completion_s"),
            _add_up(study, rows, pair),
        )
    ]


def _wide(table: pd.DataFrame, system: str, column: str) -> pd.DataFrame:
    """By seed (rows) and job scheduler."""
    return table[table["system"] == system].pivot_table(index="seed", columns="scheduler", values=column)


def _named(claim: str, table: pd.DataFrame) -> str:
    return f"{claim} Communication ÷ computing {table['ratio'].iloc[0]:.2g}."


def _shortens(study: Study, table: pd.DataFrame, pair: tuple[str, str], claim: str, column: str) -> Finding:
    base, other = (_wide(table, system, column) for system in pair)
    ratios = (other / base).dropna(axis="columns", how="all").dropna()
    by_seed = ratios.apply(geometric_mean, axis="columns").tolist()
    each = {str(name): estimate_ratio(ratios[name].tolist()) for name in ratios}
    surely = all(ratio_ends(ratios[name].tolist())[1] < 1 - ALIKE for name in ratios)
    return Finding(
        _named(claim, table), SOURCES[claim],
        f"{pair[1]} ÷ {pair[0]}: " + "; ".join(f"{schedules.short(name)} {one}" for name, one in each.items()),
        geometric_mean(by_seed), f"of that under {pair[0]}, over all job schedulers", log_interval(by_seed), len(by_seed),
        graded(surely, ratio_ends(by_seed)[1] < 1, alike=no_difference(ratio_ends(by_seed))),
        f"reproduced if it is surely shorter under each job scheduler, by more than {ALIKE:.0%} (95 % interval over seeds), partly if over all of them together",
        study.paths,
    )  # fmt: skip


def _add_up(study: Study, table: pd.DataFrame, pair: tuple[str, str]) -> Finding:
    base, other = (_wide(table, system, "makespan_s").dropna() for system in pair)
    if schedules.MINE not in base or schedules.MINE not in other or len(other.columns) < 2:
        return not_measured(_named(ADD_UP, table), SOURCES[ADD_UP], "SJF-BCO was not run beside others")
    rivals = {f"{schedules.short(str(name))} under {pair[1]}": other[name] for name in other if name != schedules.MINE}
    rivals[f"SJF-BCO under {pair[0]}"] = base[schedules.MINE]
    best = min(rivals, key=lambda name: geometric_mean(rivals[name]))
    ratios = (other[schedules.MINE] / rivals[best]).dropna().tolist()
    return Finding(
        _named(ADD_UP, table), SOURCES[ADD_UP], f"SJF-BCO under {pair[1]} ÷ {best}, the best without one of both: {estimate_ratio(ratios)}", geometric_mean(ratios),
        f"of the makespan of {best}", log_interval(ratios), len(ratios),
        graded(ratio_ends(ratios)[1] < 1, geometric_mean(ratios) < 1, alike=no_difference(ratio_ends(ratios))),
        "reproduced if its makespan is surely below that of the best other (95 % interval over seeds), partly if in the mean", study.paths,
    )  # fmt: skip

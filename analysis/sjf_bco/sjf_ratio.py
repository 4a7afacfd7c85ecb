"""SJF-BCO and others on the TCP stack, with less and more communication: makespans, and equation 8's predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from testbed.report import drawing, emulated, redrawing, schedules, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "sjf-ratio"
POSITION = 450
TITLE = "Equation 8 predicts makespans on the TCP stack to 2 %; SJF-BCO loses to tightest fit in the best of 22 orders"
TEXT = (
    "Sixteen jobs in the paper's proportions on six servers, with real traffic. Left: makespan over communication ÷ computing, by job scheduler (dots: "
    "seeds; bars: means, 95 % intervals). Right: the prediction of equation 8, with the constants fitted by `sjf-model` to other runs, relative to the "
    "measurement; dotted: 15 % off."
)
CLOSE = 0.15


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-ratio.{png,pdf,csv}``; the data: a row per run."""
    table = emulated.table(study)
    note = f"{drawing.setting(study.runs[0])}; {drawing.count(table['seed'].nunique(), 'seed')}"
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """Makespans by job scheduler, and against equation 8."""
    table = tables[ID]
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
    right.set(xlabel="predicted makespan (s)", ylabel="measured (s)", title="Equation 8, fitted to other runs")
    return figure

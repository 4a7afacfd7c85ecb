"""Two jobs that need more of the link than there is: no interleaving stays, and what MLTCP still gains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "partial"
POSITION = 150
TITLE = "Jobs that do not fit together gain less the more of the link they need"
TEXT = (
    "Left: iteration time in steady state against load, under the base and MLTCP; dotted: fair sharing of phases that overlap in full, dashed: the "
    "least that the link allows. Right: speed-up, a dot a seed. Above 100 % some overlap is left in every iteration whatever the congestion control does."
)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``partial.{png,pdf,csv}``; the data: a row per run."""
    compared, _ = observed.compared(study)
    table = compared.sort_values(["load", "cc", "seed"])
    note = (
        f"{drawing.setting(study.runs[0])}. {drawing.count(table['seed'].nunique(), 'seed')} (dots), means (lines between them only guide "
        "the eye), 95 % intervals."
    )
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """Iteration times and the speed-up over load."""
    table = tables[ID]
    pair = observed.pair(observed.roles(table))
    assert pair is not None
    figure, axes = style.new_figure(1, 2, figsize=(10.4, 4.2))
    left, right = axes[0]
    loads = np.linspace(table["load"].min(), table["load"].max(), 200)
    jobs = int(table["jobs"].iloc[0])
    left.plot(
        loads,
        1 + loads * (1 - 1 / jobs),
        color=style.REFERENCE,
        linewidth=1.2,
        linestyle=":",
        label="fair, full overlap",
    )
    left.plot(loads, np.maximum(1, loads), color=style.REFERENCE, linewidth=1.2, linestyle="--", label="least possible")
    for cc, marker in zip(pair, "so", strict=True):
        drawing.trend(
            left,
            table[table["cc"] == cc],
            "load",
            "settled",
            drawing.colour(treatment=cc == pair[1]),
            label=cc,
            marker=marker,
        )
    left.set_xlabel("offered load ÷ link rate")
    left.set_ylabel("iteration time ÷ ideal, steady state")
    left.set_title(f"{drawing.count(jobs, 'job')}, 1 s each in isolation")
    left.legend(fontsize=9)
    drawing.trend(
        right, observed.speed_ups(table, pair, "settled", ["load"]), "load", "speed_up", drawing.MLTCP, label="measured"
    )
    right.plot(
        loads, (1 + loads * (1 - 1 / jobs)) / np.maximum(1, loads), color=style.REFERENCE, linewidth=1.2, linestyle="--",
        label="most possible",
    )  # fmt: skip
    right.axhline(1, color=style.REFERENCE, linewidth=0.8)
    right.axvline(1, color=style.REFERENCE, linewidth=0.8, alpha=0.5)
    right.set_xlabel("offered load ÷ link rate")
    right.set_ylabel(f"{pair[0]} ÷ {pair[1]}")
    right.set_title("Speed-up of the mean, steady state")
    right.set_ylim(bottom=min(0.93, right.get_ylim()[0]))
    right.legend(fontsize=9, loc="upper right")
    return figure

"""Which gains add up: job schedulers crossed with ways to share links, on one list of jobs, with real traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.report import drawing, emulated, redrawing, schedules, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "sjf-sharing"
POSITION = 460
TITLE = "On one job list MLTCP shortens schedules that contend; where placement avoids contention it changes nothing"
TEXT = (
    "One list of sixteen jobs, placed by each job scheduler (rows) and carried by each system (markers), over the emulated network: makespan and mean completion, means with 95 % intervals. "
    "Seeds vary the transport and drawn orders, not the list: this does not rank schedulers. Columns: communication ÷ computing."
)
PANELS = (("makespan_s", "makespan (s)"), ("completion_s", "mean completion (s)"))
MARKERS = ("o", "s", "D", "^", "v")


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-sharing.{png,pdf,csv}``; the data: a row per run."""
    table = emulated.table(study)
    note = f"{drawing.setting(study.runs[0])}; {drawing.count(table['seed'].nunique(), 'seed')} (dots)."
    return redrawing.publish(plot, {ID: table}, note, out)


def plot(tables: Tables) -> Any:
    """A row a job scheduler, a marker a system."""
    table = tables[ID]
    ratios = sorted(table["ratio"].unique())
    names, systems = (list(dict.fromkeys(table[key])) for key in ("scheduler", "system"))
    figure, axes = style.new_figure(
        2, len(ratios), figsize=(1.8 + 4.9 * len(ratios), 1.2 + 0.9 * len(names)), sharey=True, sharex="row"
    )
    for line, (column, label) in zip(axes, PANELS, strict=True):
        for axis, ratio in zip(line, ratios, strict=True):
            for place, (system, colour, marker) in enumerate(zip(systems, style.JOBS, MARKERS, strict=False)):
                aside = 0.7 * (place - (len(systems) - 1) / 2) / len(systems)
                for y, name in enumerate(names):
                    mine = table[(table["ratio"] == ratio) & (table["scheduler"] == name) & (table["system"] == system)]
                    drawing.across(
                        axis, y + aside, list(mine[column]), colour, marker=marker, label=system if y == 0 else None
                    )
            axis.set_xlabel(label)
            axis.grid(visible=False, axis="y")
            for y in range(1, len(names)):
                axis.axhline(y - 0.5, color="#DDDDDD", linewidth=0.8)
    for axis, ratio in zip(axes[0], ratios, strict=True):
        axis.set_title(f"communication ÷ computing {ratio:.2g}")
    axes[0, 0].set_yticks(range(len(names)), [schedules.short(name) for name in names])
    axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=len(systems), fontsize=9)
    return figure

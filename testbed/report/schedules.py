"""Shared parts of figures of computed schedules: makespans of settings, compared seed by seed, next to the paper's
values.

A slot of the paper is a second here. The *control* is the setting with unlimited uplinks: gains there are due to order
and search.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core.runs.load import LoadError, Schedules
from testbed.core.runs.schedules import Setting
from testbed.report import drawing, style
from testbed.report.study import Study

MINE = "sjf_bco"
SHORT = {
    MINE: "SJF-BCO", "sjf_bco:faffp=leastload": "SJF-BCO, faffp=leastload", "list_scheduling": "LS", "first_fit": "FF", "random": "RAND",
    "list_scheduling:orders=10": "LS, 10 orders", "first_fit:orders=10": "FF, 10 orders", "random:orders=10": "RAND, 10 orders",
    "tightest_fit": "tightest fit", "best_of:n={trials}": "tightest fit, as many orders",
    "best_of:n={trials},policy=random": "RAND, as many orders",
    "best_of:n=22": "tightest fit, 22 orders", "best_of:n=22,policy=random": "RAND, 22 orders",
}  # fmt: skip
USUAL_SERVERS = 20


def require_schedules(study: Study) -> Schedules:
    """The computed schedules; raises `LoadError`."""
    if study.schedules is None:
        raise LoadError(f"{study.id}: there are no schedules. Sweep experiments/{study.id}.toml")
    return study.schedules


def short(scheduler: str) -> str:
    """Return the name of a scheduler in figures."""
    return SHORT.get(scheduler, scheduler)


def values(table: pd.DataFrame, setting: str, scheduler: str, servers: int = USUAL_SERVERS, what: str = "makespan_s") -> pd.Series[float]:  # fmt: skip
    """Return column ``what`` by seed; empty if it was not computed."""
    rows = table[(table["setting"] == setting) & (table["scheduler"] == scheduler) & (table["servers"] == servers)]
    return rows.set_index("seed")[what]


def control(computed: Schedules) -> str | None:
    """The setting without a limit on uplinks."""
    return next((one.name for one in computed.made.asked.setting if one.unlimited), None)


def settings(computed: Schedules) -> list[Setting]:
    """The settings that claims are judged in: all but the control."""
    return [one for one in computed.made.asked.setting if not one.unlimited]


def ratio(over: pd.Series[float], under: pd.Series[float]) -> pd.Series[float]:
    """``over`` ÷ ``under`` of the seeds that both have; raises `LoadError` if there are none."""
    found = (over / under).dropna()
    if found.empty:
        raise LoadError("no seed has both of the compared schedules. Sweep the experiment again")
    return found


def heading(setting: Setting) -> str:
    """Return the heading of a setting's panel."""
    if setting.unlimited:
        return "control: no limit\non uplinks"
    if setting.most is not None:
        return f"published: at most\n{setting.most:.0%} communication"
    return f"communication ÷\ncomputing {setting.ratio:g}"


def panels(computed: Schedules, rows: int, height: float, *, sharey: bool = False) -> tuple[Any, Any]:
    """A figure with a column for each setting, titled, the control last."""
    shown = [*settings(computed), *(one for one in computed.made.asked.setting if one.unlimited)]
    figure, axes = style.new_figure(rows, len(shown), figsize=(2.9 * len(shown) + 0.6, height * rows), sharey=sharey)
    for axis, one in zip(axes[0], shown, strict=True):
        axis.set_title(heading(one))
    return figure, {one.name: axes[:, column] for column, one in enumerate(shown)}


def published_in(computed: Schedules) -> str | None:
    """The setting that the paper's values are of."""
    return next((one.name for one in computed.made.asked.setting if one.most is not None), None)


def caption(figure: Any, computed: Schedules, but: str = "") -> None:
    """The subject of the figure, in small print; ``but``: where equation 8 has another constant."""
    seeds = computed.table["seed"].nunique()
    drawing.caption(
        figure,
        f"160 jobs in the published mix, servers of 4 to 32 GPUs, sampled anew for each seed; {drawing.count(seeds, 'seed')}; equation 8 with "
        f"α = {computed.made.asked.alpha:g}{but}; computed, not emulated",
    )


def curve(study: Study, out: Path, points: Mapping[str, int], published: Mapping[int, float], label: str) -> list[Path]:
    """The makespan over a scheduler's option: ``points`` by scheduler; the paper's values next to ours."""
    computed = require_schedules(study)
    figure, columns = panels(computed, 1, 3.6)
    for setting, (axis,) in columns.items():
        rows = computed.table[computed.table["setting"] == setting]
        rows = rows.assign(x=rows["scheduler"].map(points)).dropna(subset="x")
        drawing.trend(axis, rows, "x", "makespan_s", drawing.MLTCP, label="here")
        if setting == published_in(computed):
            axis.plot(
                list(published), list(published.values()), "D--", color=style.REFERENCE, linewidth=1, label="paper"
            )
            axis.legend(loc="best")
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(points.values()), [str(x) for x in points.values()])
        axis.minorticks_off()
        axis.set_xlabel(label)
        axis.set_ylim(0, None)
    next(iter(columns.values()))[0].set_ylabel("makespan (s)")
    caption(figure, computed)
    table = computed.table.assign(
        published=[published.get(points.get(name, 0), nan) for name in computed.table["scheduler"]]
    )
    return drawing.save(figure, table, out, study.id)

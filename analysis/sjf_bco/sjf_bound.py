"""SJF-BCO's Theorem 5: its makespan ÷ the optimum, next to the theorem's ratio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core.runs.load import LoadError, Schedules
from testbed.core.runs.schedules import Setting
from testbed.models.statistics import ecdf
from testbed.report import drawing, schedules, style
from testbed.report.study import Study

ID = "sjf-bound"
POSITION = 430
TITLE = "SJF-BCO's makespan exceeds the bound of its Theorem 5 on a list that is checked by hand"
TEXT = (
    "Jobs on one server without communication, where Theorem 5 bounds makespan ÷ optimum by n_g, the GPUs of the largest job. Left: one list, FA-FFP as "
    "text (pack) or pseudo-code (leastload), θ from a grid or by bisection. Right: random lists, best reading; dashed: bounds. The optimum is by exhaustive "
    "search."
)
OPTIMUM = "optimum"
READINGS = {
    schedules.MINE: "pack, grid", "sjf_bco:faffp=leastload": "leastload, grid",
    "sjf_bco:theta=bisect": "pack, bisect", "sjf_bco:faffp=leastload,theta=bisect": "leastload, bisect",
}  # fmt: skip
EXACT = 1e-9


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-bound.{png,pdf,csv}``; the data: a row for each schedule, of lists that are given one."""
    computed = schedules.require_schedules(study)
    given, drawn = _settings(computed)
    figure, axes = style.new_figure(1, 2, figsize=(11.0, 3.9))
    left, right = axes[0]
    for setting in given[:1]:
        _bars(left, computed, setting)
    for setting, colour in zip(drawn, style.JOBS, strict=False):
        ratios = _best(_ratios(computed, setting))
        beyond = int((ratios > _bound(setting) * (1 + EXACT)).sum())
        label = f"n_g = {_bound(setting)}: {beyond or 'none'} of {len(ratios)}"
        x, y = ecdf(ratios)
        right.step([0, *x], [0, *y], where="post", color=colour, linewidth=2, label=label)
    low, high = 0.98, 1.02 * max(_best(_ratios(computed, one)).max() for one in drawn)
    for setting, colour in zip(drawn, style.JOBS, strict=False):
        if _bound(setting) < high:
            right.axvline(_bound(setting), color=colour, linestyle="--", linewidth=1.2)
    right.set(xlabel="makespan ÷ optimum", ylabel="share of the lists", xlim=(low, high), ylim=(0, 1.05))
    right.set_title("Random job lists")
    right.legend(loc="lower right", title="beyond the bound, n_g × the optimum", alignment="left")
    drawing.caption(figure, f"{computed.table['seed'].nunique()} lists for each n_g; computed, not emulated")
    rows = computed.table[(computed.table["seed"] == 1) | computed.table["setting"].isin([one.name for one in drawn])]
    worst = [_worst(computed, one) for one in (*given, *drawn)]
    written = drawing.save(figure, rows[["setting", "seed", "scheduler", "trials", "makespan_s"]], out, ID)
    return [*written, *drawing.write_tables({f"{ID}-worst": pd.DataFrame(worst)}, out)]


def _worst(computed: Schedules, setting: Setting) -> dict[str, object]:
    """The largest makespan ÷ optimum of all lists, ÷ the bound; nothing is inferred of lists that were not drawn."""
    ratios = _best(_ratios(computed, setting))
    value = float(ratios.max()) / _bound(setting)
    return {"setting": setting.name, "value": value, "low": value, "high": value, "seeds": len(ratios)}


def _bars(axis: Any, computed: Schedules, setting: Setting) -> None:
    """The makespans of a list that is given, the optimum first."""
    rows = computed.table[(computed.table["setting"] == setting.name) & (computed.table["seed"] == 1)]
    spans = rows.set_index("scheduler")["makespan_s"]
    names = [OPTIMUM, *(name for name in READINGS if name in spans)]
    for y, name in enumerate(names):
        axis.barh(y, spans[name], height=0.62, color=style.REFERENCE if name == OPTIMUM else drawing.MLTCP, alpha=0.85)
        axis.text(spans[name] - 0.12, y, f"{spans[name]:g} s", va="center", ha="right", color="white")
    bound_s = _bound(setting) * spans[OPTIMUM]
    axis.axvline(bound_s, color=drawing.BASE, linestyle="--", linewidth=1.5, label="bound of Theorem 5")
    axis.set_yticks(range(len(names)), [f"SJF-BCO, {READINGS[name]}" if name in READINGS else name for name in names])
    axis.set(
        ylim=(len(names) - 0.4, -0.6), xlabel="makespan (s)", title=_describe_jobs(setting).replace("jobs", "Jobs", 1)
    )
    axis.grid(visible=False, axis="y")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _settings(computed: Schedules) -> tuple[list[Setting], list[Setting]]:
    """Lists of jobs that are given, and those that are drawn."""
    every = schedules.settings(computed)
    return [one for one in every if one.seconds], [one for one in every if one.largest is not None]


def _ratios(computed: Schedules, setting: Setting) -> dict[str, pd.Series[float]]:
    """Makespan ÷ optimum by seed, of each reading; of a list that is given once."""
    rows = computed.table[computed.table["setting"] == setting.name]
    if setting.seconds:
        rows = rows[rows["seed"] == rows["seed"].min()]
    spans = {name: own.set_index("seed")["makespan_s"] for name, own in rows.groupby("scheduler")}
    if OPTIMUM not in spans:
        raise LoadError("the optimum was not computed")
    found = {name: schedules.ratio(spans[name], spans[OPTIMUM]) for name in READINGS if name in spans}
    if not found:
        raise LoadError("SJF-BCO was not computed")
    return found


def _best(ratios: dict[str, pd.Series[float]]) -> pd.Series[float]:
    """The least over readings."""
    return pd.DataFrame(ratios).min(axis="columns")


def _bound(setting: Setting) -> int:
    """n_g φ u / l: nothing that is communicated makes φ = u = l = 1."""
    return setting.largest or 1


def _describe_jobs(setting: Setting) -> str:
    """Which jobs those of a given list are."""
    return f"jobs of one GPU and {', '.join(f'{second:g}' for second in setting.seconds)} s on two GPUs"

"""The flow-level simulator against the kernel's own TCP, case by case: iteration times, gains, and when jobs interleave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs import measured
from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.report import drawing, redrawing, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "twin"
POSITION = 470
TITLE = "In its validated range the flow-level simulator is within 2 % of the kernel's mean and gain"
TEXT = (
    "The same cases with the kernel's TCP and by the flow-level simulator (`--on flow`). Left: mean iteration, a dot a case and system. Middle: the base's "
    "time divided by MLTCP's. Right: the iteration from which jobs stay interleaved. Filled: cases in the validated range; open: those that the simulator "
    "itself calls suspect."
)
SEVERAL_BACKENDS = True
MODEL = "model"  # the simulator's clock


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``twin.{png,pdf,csv}``; the data: a row per case and system."""
    rows = _table(study)
    kernels = [run for run in study.runs if run.manifest.clock != MODEL]
    note = (
        f"{rows['case'].nunique()} cases, {drawing.count(int(rows['seeds'].min()), 'seed')} each; {drawing.rate(kernels[0].rate_bps)}; "
        f"{drawing.backend(kernels[0])}, and the flow simulator. Means over all iterations."
    )
    return redrawing.publish(plot, {ID: rows}, note, out)


def plot(tables: Tables) -> Any:
    """The simulator against the kernel: mean iteration, gain, and when jobs interleave."""
    rows = tables[ID]
    figure, axes = style.new_figure(1, 3, figsize=(14, 4.8))
    systems = list(dict.fromkeys(rows["system"]))
    colours = dict(zip(systems, style.JOBS, strict=False))
    for column, axis, title in (
        ("mean_s", axes[0, 0], "Mean iteration (s)"),
        ("interleaved_at", axes[0, 2], "Interleaved from iteration"),
    ):
        for system in systems:
            _dots(axis, rows[rows["system"] == system], column, colours[system], system)
        _diagonal(axis, title)
    treated = rows[rows["gain_kernel"].notna()]
    for system, mine in treated.groupby("system", sort=False):
        _dots(axes[0, 1], mine, "gain", colours[str(system)], str(system))
    _diagonal(axes[0, 1], "Base ÷ MLTCP")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=len(systems), fontsize=9)
    return figure


def _dots(axis: Any, rows: pd.DataFrame, column: str, colour: str, label: str) -> None:
    """The kernel's value and the simulator's, a dot a case."""
    for suspect, face in ((False, colour), (True, "none")):
        mine = rows[rows["suspect"] == suspect]
        axis.plot(
            mine[f"{column}_kernel"], mine[f"{column}_twin"], "o", color=colour, markerfacecolor=face, markersize=6.5,
            label=None if suspect else label,
        )  # fmt: skip


def _diagonal(axis: Any, title: str) -> None:
    low, high = min(axis.get_xlim()[0], axis.get_ylim()[0]), max(axis.get_xlim()[1], axis.get_ylim()[1])
    axis.plot([low, high], [low, high], color=style.REFERENCE, linewidth=0.9, linestyle="--")
    axis.set(xlim=(low, high), ylim=(low, high), xlabel="kernel (uml)", ylabel="flow simulator (flow)", title=title)
    axis.set_aspect("equal")


def _table(study: Study) -> pd.DataFrame:
    """A row per case and system of what both backends ran: ``case, system, role, suspect, seeds``, and of each backend ``mean_s, interleaved_at, gain``."""
    runs = [_row(experiment, run) for experiment in study.experiments for run in experiment.runs]
    each = pd.DataFrame(
        runs, columns=["case", "backend", "system", "role", "seed", "mean_s", "interleaved_at", "suspect"]
    )
    if set(each["backend"]) != {"kernel", "twin"}:
        raise LoadError(f"{ID}: it takes both; sweep experiments/{ID}.toml and experiments/{ID}/{ID}.flow.toml")
    keys = ["case", "system", "role"]
    both = each.groupby([*keys, "backend"], sort=False).agg(
        mean_s=("mean_s", "mean"),
        interleaved_at=("interleaved_at", "mean"),
        seeds=("seed", "nunique"),
        suspect=("suspect", "any"),
    )
    kernel, twin = (both.xs(name, level="backend") for name in ("kernel", "twin"))
    rows = kernel.add_suffix("_kernel").join(twin.add_suffix("_twin"), how="inner")
    rows["suspect"] = rows["suspect_twin"].astype(bool)
    rows["seeds"] = np.minimum(rows["seeds_kernel"], rows["seeds_twin"])
    rows = rows.drop(columns=["suspect_kernel", "suspect_twin", "seeds_kernel", "seeds_twin"])
    rows = rows.reset_index()
    base = next((name for name in rows["system"] if set(rows[rows["system"] == name]["role"]) == {"baseline"}), None)
    bases = rows[rows["system"] == base].set_index("case")
    for name in ("kernel", "twin"):
        gain = rows["case"].map(bases[f"mean_s_{name}"]) / rows[f"mean_s_{name}"]
        rows[f"gain_{name}"] = gain.where(rows["role"] == "treatment")
    return rows


def _row(experiment: Experiment, run: Run) -> tuple[str, str, str, str, int, float, float, bool]:
    modelled = run.manifest.clock == MODEL
    case = experiment.path.name.removeprefix(f"{ID}.flow.").removeprefix(f"{ID}.")
    times = run.iterations["end_s"] - run.iterations["start_s"]
    at = measured.interleaved_at(experiment, run)
    return (
        case,
        "twin" if modelled else "kernel",
        run.system,
        run.role,
        run.seed,
        float(times.mean()),
        at,
        run.verdict.verdict == "suspect",
    )

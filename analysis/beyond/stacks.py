"""The same jobs on Linux's TCP, in ns-3 and in htsim: how two move apart, how long eight take, and what differs.

``stacks.csv`` and ``stacks.variants.csv`` next to this file hold what ns-3 and htsim gave; `benchmarks/stacks.py` writes both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from testbed.core.runs import measured, metrics
from testbed.core.runs.load import LoadError, Run
from testbed.models import curves as theory
from testbed.models.fluid import MLTCP_ACTIVE_FROM
from testbed.report import drawing, fluid_comparison, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "stacks"
POSITION = 475
TITLE = "MLTCP-Reno gains 1.2× in three stacks, and nothing where marks reach one flow at a time"
TEXT = (
    "The same starts and compute times in three stacks (dashed: Reno). Left: distance of two jobs' starts in communication phases A. "
    "Middle: eight jobs' iterations. Right: Reno's mean ÷ MLTCP-Reno's; below a stack, one change at a time."
)
KERNEL = "Linux"
SAME = "same"  # the variant in which nothing is changed
KEYS = ["stack", "jobs", "arm", "seed"]
COLOURS = {KERNEL: style.JOBS[0], "ns-3": style.JOBS[1], "htsim": style.JOBS[2]}
LINES = {"base": "--", "paper": "-"}
SHIFTED, SPREAD = 2, 8  # jobs of the left and the middle panel
QUANTILES = np.linspace(0, 1, 101)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``stacks.{png,pdf,csv}``, a row a pair of runs, and ``stacks-apart.csv`` and ``stacks-times.csv`` of the other panels."""
    if not study.runs:
        return []
    every = _iterations(study.runs)
    apart = [_apart(run, every) for run in study.runs if len(run.jobs) == SHIFTED]
    times = every[every["jobs"] == SPREAD].groupby(["stack", "arm"], sort=False)["time_s"].quantile(QUANTILES)
    tables = {
        ID: _gains(every),
        f"{ID}-apart": pd.concat(apart, ignore_index=True) if apart else pd.DataFrame(columns=["stack"]),
        f"{ID}-times": times.rename_axis(["stack", "arm", "share"]).reset_index(),
    }
    note = (
        f"{drawing.setting(study.runs[0])}; {drawing.count(every['seed'].nunique(), 'seed')}; compute noise 1 %. ns-3 3.44 with RED on the instantaneous "
        "queue; htsim with a queue that marks on arrival. Dots: seeds; bars: 95 % intervals; lines: means. Dotted: the paper's shift equation, shares ∝ F."
    )
    return redrawing.publish(plot, tables, note, out)


def plot(tables: Tables) -> Any:
    """Two jobs' distance over iterations, the distribution of eight jobs' iterations, and the gain in each stack and variant."""
    figure, axes = style.new_figure(1, 3, figsize=(14, 4.8), width_ratios=(1, 1, 1.1))
    left, middle, right = axes[0]
    _distances(left, tables[f"{ID}-apart"])
    for (stack, arm), rows in tables[f"{ID}-times"].groupby(["stack", "arm"], sort=False):
        middle.plot(rows["time_s"], rows["share"], LINES[str(arm)], color=COLOURS[str(stack)], linewidth=1.6)
    middle.set(xlabel="iteration time (s)", ylabel="share of iterations", title="Eight jobs", ylim=(0, 1.02))
    _compared(right, tables[ID])
    for stack in dict.fromkeys(tables[ID]["stack"]):
        left.plot([], [], color=COLOURS[str(stack)], linewidth=2, label=f"{stack}, MLTCP-Reno")
    left.plot([], [], "--", color=style.REFERENCE, label="Reno")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=5, fontsize=9)
    return figure


def _distances(axis: Any, table: pd.DataFrame) -> None:
    for (stack, arm), rows in table.groupby(["stack", "arm"], sort=False):
        lines = rows.pivot(index="iteration", columns="seed", values="d")
        if arm == "base":
            axis.plot(lines.index, lines.mean(axis="columns"), "--", color=COLOURS[str(stack)], linewidth=1.2)
        else:
            drawing.bundle(axis, lines, COLOURS[str(stack)], "", band=False)
    equation = table.dropna(subset="equation").groupby("iteration")["equation"].mean()
    axis.plot(equation.index, equation, ":", color=style.REFERENCE, linewidth=2, label="shift equation")
    axis.axvline(MLTCP_ACTIVE_FROM, color=style.REFERENCE, linewidth=0.8, linestyle=":")
    axis.set(xlabel="iteration", ylabel="difference of starts, D ÷ A", ylim=(0, 1.12), title="Two jobs move apart")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _compared(axis: Any, table: pd.DataFrame) -> None:
    rows = list(dict.fromkeys(zip(table["stack"], table["variant"], strict=True)))
    rows.sort(key=lambda row: (list(COLOURS).index(row[0]), row[1] != SAME))
    for y, (stack, variant) in enumerate(rows):
        mine = table[(table["stack"] == stack) & (table["variant"] == variant)]
        for jobs, marker, up in ((SHIFTED, "o", -0.17), (SPREAD, "s", 0.17)):
            gains = list(mine.loc[mine["jobs"] == jobs, "gain"])
            label = drawing.count(jobs, "job") if y == 0 else None
            drawing.across(axis, y + up, gains, COLOURS[stack], marker=marker, fill=jobs == SPREAD, label=label)
    axis.axvline(1, color=style.REFERENCE, linewidth=0.9, linestyle="--")
    axis.set_yticks(range(len(rows)), [stack if variant == SAME else variant for stack, variant in rows], fontsize=9)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set(xlabel="× as fast as Reno", title="Gain, and what changes it")
    axis.legend(fontsize=8, loc="upper left")


def _iterations(runs: list[Run]) -> pd.DataFrame:
    """A row an iteration of every stack: `KEYS`, ``job, iteration, start_s, comm_start_s, end_s, time_s``.

    Of other stacks only what the runs at hand have, too.
    """
    columns = ["job", "iteration", "start_s", "comm_start_s", "end_s"]
    mine = [
        run.iterations.loc[run.iterations["bytes"] > 0, columns].assign(
            stack=KERNEL, jobs=len(run.jobs), arm=observed.arm(run), seed=run.seed
        )
        for run in runs
    ]
    kernel = pd.concat(mine)
    same = [*KEYS[1:], "job", "iteration"]
    others = _kept("stacks.csv").merge(kernel[same], on=same)
    found = pd.concat([kernel, others], ignore_index=True)
    return found.assign(time_s=found["end_s"] - found["start_s"])


def _kept(name: str) -> pd.DataFrame:
    place = Path(__file__).with_name(name)
    if not place.is_file():
        raise LoadError(
            f"{ID}: {place} is missing, which holds what other simulators gave. Write it with `python -m benchmarks.stacks results`, "
            "which installs ns-3 (PyPI package ns3) below build/."
        )
    return pd.read_csv(place, keep_default_na=False)


def _apart(run: Run, every: pd.DataFrame) -> pd.DataFrame:
    """D ÷ A of one pair of jobs in every stack: ``stack, arm, seed, iteration, d``, and of MLTCP what the equation makes of Linux's first."""
    comm_s, arm = float(fluid_comparison.comm_s(run)[0]), observed.arm(run)
    rows = every[(every["jobs"] == len(run.jobs)) & (every["arm"] == arm) & (every["seed"] == run.seed)]
    tables = []
    for stack, mine in rows.groupby("stack", sort=False):
        d = metrics.start_difference(mine.assign(bytes=1), measured.ideal_s(run)) / comm_s
        tables.append(
            pd.DataFrame({"stack": stack, "arm": arm, "seed": run.seed, "iteration": d.index, "d": d.to_numpy()})
        )
    found = pd.concat(tables, ignore_index=True)
    if arm != "base":
        first = tables[0].set_index("iteration")["d"]
        found["equation"] = found["iteration"].map(_equation(first, fluid_comparison.curve(run)))
    return found


def _equation(d: pd.Series[float], curve: theory.Curve) -> pd.Series[float]:
    """The shift equation from where the jobs are as MLTCP becomes active, in units of A."""
    path = [float(d.loc[MLTCP_ACTIVE_FROM])]
    for _ in d.loc[MLTCP_ACTIVE_FROM + 1 :]:
        path.append(path[-1] + float(theory.shift(path[-1], 1.0, curve)))
    return pd.Series(path, index=d.loc[MLTCP_ACTIVE_FROM:].index)


def _gains(every: pd.DataFrame) -> pd.DataFrame:
    """``stack, variant, jobs, seed, base_s, mltcp_s, gain``, and Linux's with the same draws: ``kernel_gain, kernel_s``; a row a pair of runs."""
    means = every.groupby(KEYS, sort=False)["time_s"].mean().reset_index(name="mean_s").assign(variant=SAME)
    changed = _kept("stacks.variants.csv").merge(means.loc[means["stack"] == KERNEL, KEYS[1:]], on=KEYS[1:])
    rows = pd.concat([means, changed]).pivot(index=["stack", "variant", "jobs", "seed"], columns="arm", values="mean_s")
    found = rows.rename(columns={"base": "base_s", "paper": "mltcp_s"}).dropna().reset_index()
    found["gain"] = found["base_s"] / found["mltcp_s"]
    kernel = found.loc[found["stack"] == KERNEL, ["jobs", "seed", "gain", "mltcp_s"]]
    return found.merge(
        kernel.rename(columns={"gain": "kernel_gain", "mltcp_s": "kernel_s"}), on=["jobs", "seed"]
    ).assign(arm="paper")

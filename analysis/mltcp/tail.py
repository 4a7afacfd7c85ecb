"""Where a 99th percentile gains four times: many long jobs next to a short one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import nan
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from testbed.core.runs import measured
from testbed.core.runs.load import LoadError, Run
from testbed.models import fair_share
from testbed.models.statistics import log_interval
from testbed.report import drawing, redrawing, style
from testbed.report import observations as observed
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "tail"
POSITION = 100
TITLE = "Next to twenty long jobs, a short job's 99th percentile gains 4.2 times under Reno, 3.1 times with the paper's rule"
TEXT = (
    "Without noise `recommended` gains 3.5 to 4.8 times for 20 or 32 long jobs, a short one of 30 or 50 % of the link, and three or more frames a flow; "
    "the paper's rule 2.8 to 3.7. With 70 % it is at most 2.8, with noise 0.7 to 3.5. Steady state: last half. Dotted: fair sharing without packets."
)
CLAIMED = 4.0
LONG_JOBS = dict(zip((8, 12, 20, 32), style.JOBS, strict=False))  # colours
DASHES: dict[str, Any] = {"recommended": "-", "paper": "--", "placebo": ":"}
MARKERS: dict[str, Any] = {"recommended": "o", "paper": "^", "placebo": "x"}
POINT = ["long_jobs", "duty", "frames", "noise"]


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``tail.{png,pdf,csv}``, a row a run, and ``tail-p99.csv``, a row a gain, pooled over jobs and seeds."""
    pooled = _pooled(study)
    tables = {ID: pd.DataFrame([row for row, _ in pooled]), f"{ID}-p99": _gains(pooled)}
    most = _most(tables[ID])
    shown = next(run for run, (row, _) in zip(study.runs, pooled, strict=True) if _point(row) == most)
    note = (
        f"{most[0]:.0f} jobs of {max(measured.ideals_s(shown)):.2g} s next to one of {1e3 * min(measured.ideals_s(shown)):.0f} ms; {drawing.setting(shown)}; "
        f"{drawing.count(int(_at(tables[ID], most)['seed'].nunique()), 'seed')} (dots). Right: small markers have one seed and no interval."
    )
    return redrawing.publish(plot, tables, note if _has_map(tables) else note.partition(" Right:")[0], out)


def plot(tables: Tables) -> Any:
    """The 99th percentile at the point with most runs, a dot a seed; next to it the map: a row a noise, a column a share of the short job."""
    table, gains = tables[ID], tables[f"{ID}-p99"]
    most, base = _most(table), str(table["base"].iloc[0])
    noises, duties = (sorted(gains[one].dropna().unique()) if _has_map(tables) else [] for one in ("noise", "duty"))
    rows, columns = max(1, len(noises)), 1 + len(duties)
    figure, axes = style.new_figure(
        rows,
        columns,
        figsize=(3.5 * columns, 3.4 * rows) if duties else (8.8, 3.5),
        width_ratios=[1.3] + [1] * len(duties),
    )
    _arms(axes[0, 0], _at(table, most), base)
    for axis in axes[1:, 0]:
        axis.set_axis_off()
    frames = sorted(gains["frames"][gains["seeds"] == 1].unique())
    lowest, highest = min(0.5, 0.9 * gains["value"].min()), 1.08 * max(CLAIMED, gains["value"].max())
    for line, noise in zip(axes[:, 1:], noises, strict=False):
        for axis, duty in zip(line, duties, strict=True):
            here = gains[(gains["noise"] == noise) & (gains["duty"] == duty)]
            if here.empty:  # not run
                axis.set_axis_off()
                continue
            _map(axis, here)
            axis.set(
                title=f"short job {duty:.0%}, noise {noise:.0%}",
                ylim=(lowest, highest),
                xlim=(frames[0] - 0.4, frames[-1] + 0.4),
            )
            axis.set_xticks(frames)
            axis.set_xlabel("marking threshold (frames a flow)")
        line[0].set_ylabel("99th percentile, × shorter")
    if duties:
        legend = axes[1, 0] if rows > 1 else axes[0, 1]
        named = [
            Line2D([], [], color=colour, label=f"{long_jobs} long jobs") for long_jobs, colour in LONG_JOBS.items()
        ]
        arms = [
            Line2D([], [], color="black", linestyle=dash, marker=MARKERS[arm], markersize=5, label=arm)
            for arm, dash in DASHES.items()
        ]
        several = Line2D(
            [], [], color="black", linestyle="", marker="|", markersize=12, label="interval, several seeds"
        )
        legend.legend(handles=[*named, *arms, several], loc="center" if rows > 1 else "best")
    return figure


def _has_map(tables: Tables) -> bool:
    """Whether there is more than the one point."""
    return len(tables[f"{ID}-p99"][POINT].drop_duplicates()) > 1


def _most(table: pd.DataFrame) -> tuple[float, ...]:
    """The point with most runs."""
    return tuple(map(float, cast(Any, table.groupby(POINT, dropna=False).size().idxmax())))


def _point(row: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(float(row[name]) for name in POINT)


def _at(table: pd.DataFrame, point: tuple[float, ...]) -> pd.DataFrame:
    return table[(table[POINT] == list(point)).all(axis="columns")]


def _arms(axis: Any, rows: pd.DataFrame, base: str) -> None:
    """The 99th percentile of every system, a dot a seed."""
    arms = [arm for arm in (observed.BASE, *observed.ARMS) if arm in set(rows["arm"])]
    for x, arm in enumerate(arms):
        drawing.seeds(axis, x, list(rows[rows["arm"] == arm]["p99"]), drawing.ARMS[arm], width=0.5)
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8)
    if len(rows):
        axis.axhline(float(rows["fair_p99"].mean()), color=style.REFERENCE, linewidth=1, linestyle=":")
    axis.set_xticks(range(len(arms)), [base if arm == observed.BASE else arm for arm in arms])
    axis.set_ylim(bottom=0)
    axis.grid(visible=False, axis="x")
    axis.set(ylabel="99th percentile ÷ ideal", title=base)


def _map(axis: Any, gains: pd.DataFrame) -> None:
    """Gains over the marking threshold: a colour for each number of long jobs, a line and a marker for each arm; points of several seeds are larger, with intervals."""
    for key, rows in gains.groupby(["long_jobs", "arm"]):
        colour, arm = LONG_JOBS.get(int(str(key[0])), "black"), str(key[1])
        shown = rows[rows["seeds"] == 1].sort_values("frames")
        axis.plot(shown["frames"], shown["value"], DASHES[arm], marker=MARKERS[arm], markersize=5, color=colour)
        several = rows[rows["seeds"] > 1]
        axis.plot(several["frames"], several["value"], MARKERS[arm], markersize=9, color=colour, zorder=4)
        axis.vlines(several["frames"], several["low"], several["high"], color=colour, linewidth=2)
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8)
    axis.axhline(CLAIMED, color=style.REFERENCE, linewidth=1, linestyle="-.")


def _pooled(study: Study) -> list[tuple[dict[str, Any], np.ndarray]]:
    """A row a run, and the steady-state iterations of all its jobs ÷ ideal."""
    if not study.runs:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    return [_row(run) for run in study.runs]


def _row(run: Run) -> tuple[dict[str, Any], np.ndarray]:
    ideals = measured.ideals_s(run)
    short = int(np.argmin(ideals))
    settled = observed.second_halves(run)
    every = np.concatenate(settled)
    return {
        "cc": run.system, "base": observed.base(run), "arm": observed.arm(run), "seed": run.seed, "long_jobs": len(ideals) - 1,
        "duty": round(observed.duty(run, short), 1), "frames": observed.threshold_frames(run),
        "noise": _noise(run), "p99": np.percentile(every, 99), "mean": every.mean(), "short_mean": settled[short].mean(),
        "short_p99": np.percentile(settled[short], 99), "fair_p99": _fair(run), "iterations": len(every),
        "timeouts": run.manifest.measured.counters.tcp_timeouts,
    }, every  # fmt: skip


def _noise(run: Run) -> float:
    """Of computing, as a share; of noise that is written otherwise unknown."""
    said = run.jobs[0].noise
    try:
        return float(said.rstrip("%")) / 100 if said.endswith("%") else float(said or 0)
    except ValueError:
        return nan


def _fair(run: Run) -> float:
    """The 99th percentile under exactly fair sharing, from the same starts."""
    ideals = tuple(measured.ideals_s(run))
    compute = tuple(job.compute_ns / 1e9 for job in run.jobs)
    return _fair_p99(
        compute, ideals, tuple(job.offset_ns / 1e9 for job in run.jobs), tuple(job.iterations for job in run.jobs)
    )


@cache
def _fair_p99(
    compute: tuple[float, ...], ideals: tuple[float, ...], offsets: tuple[float, ...], iterations: tuple[int, ...]
) -> float:
    comm = [ideal - own for ideal, own in zip(ideals, compute, strict=True)]
    times = fair_share.iteration_times(compute, comm, offsets, iterations)
    settled = [one[len(one) // 2 :] / ideal for one, ideal in zip(times, ideals, strict=True)]
    return float(np.percentile(np.concatenate(settled), 99))


def _gains(pooled: list[tuple[dict[str, Any], np.ndarray]]) -> pd.DataFrame:
    """The base's 99th percentile ÷ an arm's, pooled over jobs and seeds; the interval is over the seeds' own percentiles."""
    table = pd.DataFrame([row for row, _ in pooled])
    found = []
    for key, rows in table.groupby([*POINT, "base"], sort=True, dropna=False):
        before = rows[rows["arm"] == observed.BASE].set_index("seed")
        for arm in observed.ARMS:
            after = rows[rows["arm"] == arm].set_index("seed")
            seeds = before.index.intersection(after.index)
            if seeds.empty:
                continue
            ratios = list(before.loc[seeds, "p99"] / after.loc[seeds, "p99"])
            first, second = (
                np.concatenate(
                    [pooled[place][1] for place in rows.index[(rows["arm"] == one) & rows["seed"].isin(seeds)]]
                )
                for one in (observed.BASE, arm)
            )
            low, high = log_interval(ratios) or (nan, nan)
            found.append({
                **dict(zip([*POINT, "base"], key, strict=True)), "arm": arm,
                "value": np.percentile(first, 99) / np.percentile(second, 99), "low": low, "high": high, "seeds": len(seeds), "iterations": len(second),
            })  # fmt: skip
    if not found:
        raise LoadError(f"{ID}: there are no results of both a base and MLTCP; run experiments/{ID}.toml")
    return pd.DataFrame(found)

"""Where a 99th percentile gains four times: many long jobs next to a short one."""

from __future__ import annotations

from functools import cache
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs import measured
from testbed.core.runs.load import LoadError, Run
from testbed.models import fair_share
from testbed.models.statistics import log_interval
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.study import Study

ID = "tail"
POSITION = 100
TITLE = "Next to twenty long jobs, a short job's 99th percentile gains 4.2 times under Reno, 3.1 times with the paper's rule"
TEXT = (
    "Four times happens where many long jobs share a link with one short job that needs half of it, and each flow has five frames of marking threshold. "
    "Computing has no noise; with 2 % the gains are 2.5 and 2.2 (one seed). Steady state: last half of the iterations. Dotted: fair sharing without packets."
)
CLAIMED = 4.0
POINT = ["long_jobs", "duty", "frames", "noise"]


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``tail.{png,pdf,csv}``, a row a run, and ``tail-p99.csv``, a row a gain, pooled over jobs and seeds."""
    pooled = _pooled(study)
    table = pd.DataFrame([row for row, _ in pooled])
    gains = _gains(pooled)
    bases = list(dict.fromkeys(table["base"]))
    several = gains.groupby(POINT, dropna=False).ngroups > 1
    figure, axes = style.new_figure(
        3 if several else 1, len(bases), figsize=(4.4 * max(2, len(bases)), 3.5 * (3 if several else 1))
    )
    most: Any = table.groupby(POINT, dropna=False)["seed"].nunique().idxmax()
    for column, base in enumerate(bases):
        of_base = table[table["base"] == base]
        _arms(axes[0, column], _at(of_base, most), base)
        if several:
            here = gains[(gains["base"] == base) & (gains["noise"] == 0)]
            _over(axes[1, column], here[here["duty"] == 0.5], "long_jobs", "frames", "{:g} frames a flow")
            many, frames = most[0], here["frames"].max()
            mine = gains[(gains["base"] == base) & (gains["long_jobs"] == many) & (gains["frames"] == frames)]
            _over(axes[2, column], mine, "duty", "noise", "noise {:g} %")
            axes[1, column].set_xlabel("long jobs (short one: half of the link)")
            axes[2, column].set_xlabel(f"share of the link of the short job ({many} long ones)")
    drawing.caption(
        figure,
        f"{int(most[0])} jobs of {max(measured.ideals_s(study.runs[0])):.2g} s next to one of {1e3 * min(measured.ideals_s(study.runs[0])):.0f} ms; {drawing.setting(study.runs[0])}; "
        f"{drawing.count(int(_at(table, most)['seed'].nunique()), 'seed')} (dots){', one in the map below' if several else ''}.",
    )
    return [*drawing.save(figure, table, out, ID), *drawing.write_tables({f"{ID}-p99": gains}, out)]


def _at(table: pd.DataFrame, point: Any) -> pd.DataFrame:
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


def _over(axis: Any, gains: pd.DataFrame, x: str, line: str, label: str) -> None:
    """Gains over ``x``: a colour an arm, a line style a value of ``line``."""
    for key, rows in gains.groupby(["arm", line]):
        arm, value = str(key[0]), float(str(key[1]))
        order = sorted(gains[line].unique(), reverse=True)
        shown = rows.sort_values(x)
        dashes = ("-", "--", ":")[order.index(value) % 3]
        named = f"{arm}, {label.format(100 * value if line == 'noise' else value)}"
        axis.plot(shown[x], shown["value"], dashes, marker="o", markersize=4, color=drawing.ARMS[arm], label=named)
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8)
    axis.axhline(CLAIMED, color=style.REFERENCE, linewidth=1, linestyle="-.")
    axis.set_ylabel("99th percentile, × shorter")
    if len(gains):
        axis.legend(fontsize=6)


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

"""The gain from compression where TCP waits for its minimum RTO, and where there are no timeouts: the tail of exchanges over their bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import NullLocator

from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean
from testbed.report import drawing, phases, redrawing, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "mlt-rto"
POSITION = 290
TITLE = "What a minimum RTO of 200 ms takes from compression is undecided: the intervals are wide"
TEXT = (
    "One of three jobs sends 1 to 32 times less. Left: 99th percentile of its exchanges over their bytes (dashed: in proportion); dots: seeds. Right: the "
    "smallest relative to the uncompressed, with the published values (grey; GoogLeNet, 64 nodes, 32 times compressed). CUBIC's queues drop, those of "
    "DCTCP and MLT mark."
)
# Tail at 32 times ÷ uncompressed (published figure, values read from the drawing).
PUBLISHED = {"TCP, 200 ms": 231 / 358, "TCP, 10 ms": 140 / 286, "TCP, 1 ms": 100 / 251, "MLT": 2.9 / 53}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-rto.{png,pdf,csv}``; the data: a row per run."""
    rows = _table(study)
    one = study.runs[0]
    note = f"{drawing.count(len(one.jobs), 'job')} of {drawing.count(len(one.jobs[0].hosts), 'worker')}, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')}."
    return redrawing.publish(plot, {ID: rows.assign(left=_left(rows))}, note, out)


def plot(tables: Tables) -> Any:
    """Tails over bytes, and those of the smallest messages next to the published ones."""
    rows = tables[ID]
    figure, axes = style.new_figure(1, 2, figsize=(12, 4.8), width_ratios=[1.4, 1])
    lines, bars = axes[0]
    kinds = list(dict.fromkeys(rows["kind"]))
    for colour, kind in zip(style.JOBS, kinds, strict=False):
        mine = rows[rows["kind"] == kind]
        means = mine.groupby("bytes")["tail_s"].apply(geometric_mean)
        lines.plot(means.index, 1e3 * means, color=colour, label=kind)
        lines.plot(mine["bytes"], 1e3 * mine["tail_s"], "o", color=colour, markersize=4)
    most, least = rows["bytes"].max(), rows["bytes"].min()
    from_s = float(rows[rows["bytes"] == most]["tail_s"].min())
    lines.plot(
        [least, most], [1e3 * from_s * least / most, 1e3 * from_s], color=style.REFERENCE, linestyle="--", linewidth=0.9
    )
    sizes = sorted(rows["bytes"].unique())
    lines.set(
        xscale="log",
        yscale="log",
        xlabel="kB per iteration",
        ylabel="99th percentile of an exchange (ms)",
        title="Tail by message size",
    )
    lines.xaxis.set_minor_locator(NullLocator())
    lines.set_xticks(sizes, [f"{size / 1000:g}" for size in sizes])
    drawing.plain_log(lines.yaxis)
    gains = _gains(rows)
    names = [*gains, *PUBLISHED]
    for y, name in enumerate(names):
        ours = name in gains
        bars.barh(
            y,
            geometric_mean(gains[name]) if ours else PUBLISHED[name],
            height=0.6,
            color=style.JOBS[y] if ours else "#BBBBBB",
        )
        bars.plot(gains.get(name, []), [y] * len(gains.get(name, [])), "o", color="black", markersize=3)
    bars.set_yticks(
        range(len(names)), [name if name in gains else f"published: {name}" for name in names], fontsize=8.5
    )
    bars.set_ylim(len(names) - 0.5, -0.5)
    bars.grid(visible=False, axis="y")
    bars.axvline(least / most, color=style.REFERENCE, linestyle="--", linewidth=0.9)
    bars.set(xlabel=f"tail ÷ uncompressed tail (dashed: 1/{most / least:.3g})", title="Tail with the smallest messages")
    figure.legend(*lines.get_legend_handles_labels(), loc="outside upper center", ncols=len(kinds), fontsize=9)
    return figure


def _left(rows: pd.DataFrame) -> pd.Series[float]:
    """Of the smallest messages: their tail ÷ that of the largest, of the same kind and seed; nothing of others."""
    largest = rows[rows["bytes"] == rows["bytes"].max()].set_index(["kind", "seed"])["tail_s"]
    whole = [largest.get((kind, seed), np.nan) for kind, seed in zip(rows["kind"], rows["seed"], strict=True)]
    return (rows["tail_s"] / whole).where(rows["bytes"] == rows["bytes"].min())


def _gains(rows: pd.DataFrame) -> dict[str, list[float]]:
    """Of each kind, by seed: the tail with the smallest messages ÷ that with the largest."""
    found = {}
    for kind, mine in rows.groupby("kind", sort=False):
        tails = mine.set_index(["bytes", "seed"])["tail_s"]
        least, most = mine["bytes"].min(), mine["bytes"].max()
        found[str(kind)] = [float(tails[least, seed] / tails[most, seed]) for seed in sorted(mine["seed"].unique())]
    return found


def _table(study: Study) -> pd.DataFrame:
    """``kind, system, role, lossy, rto_ms, bytes, seed, tail_s, timeouts, delivered``; raises `LoadError` where sizes do not differ."""
    rows = pd.DataFrame([_row(run) for run in study.runs])
    if rows.empty or rows["bytes"].nunique() < 2:
        raise LoadError(f"{ID}: there are no results of messages of several sizes; run experiments/{ID}.toml")
    return rows.sort_values(["lossy", "system", "rto_ms", "bytes"], kind="stable", ignore_index=True)


def _row(run: Run) -> dict[str, Any]:
    first = run.jobs[0]
    sends = {operation.id for operation in first.collectives}
    done = run.operations[(run.operations["job"] == first.job) & run.operations["operation"].isin(sends)]
    rto = run.plan.rto_min_ms
    return {
        "kind": run.system if not first.by_tcp else f"{run.system}, {rto:g} ms", "system": run.system, "role": run.role, "lossy": not first.by_tcp,
        "rto_ms": rto, "bytes": sum(each.bytes or 0 for each in first.collectives), "seed": run.seed,
        "tail_s": float(np.percentile(done["end_s"] - done["start_s"], 99)), "timeouts": run.manifest.measured.counters.tcp_timeouts,
        "delivered": phases.delivered(run),
    }  # fmt: skip

"""MLT where one worker's link loses packets at random: the published curve, and ours, at two minimum RTOs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core import builtin_transport
from testbed.core.runs.load import LoadError, Run
from testbed.report import drawing, phases, redrawing, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "mlt-loss"
POSITION = 300
TITLE = "1 % of loss on one worker's link costs MLT 2 % of its speed, CUBIC with a minimum RTO of 200 ms three quarters"
TEXT = (
    "Speed of an iteration relative to the same system without loss, over the loss of one worker's link, a panel for each minimum RTO; dots are seeds. "
    "Grey: published (PyTorch, 64 GPUs, VGG16) for MLT, BytePS and a parameter server over TCP. The paper's TCP had 1 ms; Linux has 200 ms by default."
)
# Images/s of VGG16 at 0, 0.01, 0.1 and 1 % (published figure, values read from the drawing).
PUBLISHED = {"MLT": (381, 381, 381, 381), "BytePS": (244, 239, 175, 94), "plain": (165, 160, 113, 63)}
LOSSES = (0.0, 0.0001, 0.001, 0.01)


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-loss.{png,pdf,csv}``; the data: a row per run."""
    rows = _table(study)
    one = study.runs[0]
    note = (
        f"{drawing.count(len(one.jobs[0].hosts), 'worker')}, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')} (dots), {drawing.count(one.jobs[0].iterations, 'iteration')}. "
        "Of MLT's gradients up to a tenth may be missing."
    )
    return redrawing.publish(plot, {ID: rows}, note, out)


def plot(tables: Tables) -> Any:
    """A panel for each minimum RTO, a line for each system."""
    rows = tables[ID]
    timeouts = sorted(rows["rto_ms"].unique(), reverse=True)
    figure, axes = style.new_figure(1, len(timeouts), figsize=(1.6 + 5.4 * len(timeouts), 4.4), sharey=True)
    for axis, rto in zip(axes[0], timeouts, strict=True):
        for speeds in PUBLISHED.values():
            axis.plot(
                range(len(LOSSES)), [speed / speeds[0] for speed in speeds], color="#BBBBBB", linewidth=1.2, zorder=1
            )
        for name, end in {"MLT": "MLT", "BytePS": "BytePS, plain"}.items():  # which end alike
            axis.annotate(
                end, (len(LOSSES) - 1, PUBLISHED[name][-1] / PUBLISHED[name][0]),
                textcoords="offset points", xytext=(5, -3), fontsize=8, color="#888888",
            )  # fmt: skip
        _lines(axis, rows[rows["rto_ms"] == rto], rows.groupby("system")["delivered"].mean())
        axis.set(title=f"minimum RTO {rto:g} ms", xlabel="loss on one worker's link", ylim=(0, 1.35))
    axes[0, 0].set_ylabel("speed ÷ that without loss")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=rows["system"].nunique(), fontsize=9
    )
    return figure


def _lines(axis: Any, rows: pd.DataFrame, arrived: pd.Series[float]) -> None:
    """A line a system over the losses that the paper has, a dot a run; ``arrived``: of each system's gradients."""
    for colour, (system, mine) in zip(style.JOBS, rows.groupby("system", sort=False), strict=False):
        base = mine[mine["loss"] == 0].set_index("seed")["iteration_s"]
        speed = mine["seed"].map(base) / mine["iteration_s"]
        x = mine["loss"].map({loss: place for place, loss in enumerate(LOSSES)})
        means = speed.groupby(x).mean()
        share = arrived[str(system)]
        axis.plot(
            means.index, means, color=colour, label=f"{system}" + ("" if share == 1 else f" ({share:.0%} arrived)")
        )
        axis.plot(x, speed, "o", color=colour, markersize=4)
    axis.set_xticks(range(len(LOSSES)), [f"{100 * loss:g} %" for loss in LOSSES])


def _table(study: Study) -> pd.DataFrame:
    """``system, role, tcp, lossy, marked, delivered, seed, rto_ms, loss, iteration_s``; raises `LoadError` without runs."""
    if not study.runs:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    rows = pd.DataFrame([_row(run) for run in study.runs])
    own = rows["system"] == phases.lossy(study)
    whole = rows["lossy"] & rows["system"].str.endswith(":parameters=whole")
    return rows.assign(own=own, whole_parameters=whole).sort_values("loss", kind="stable", ignore_index=True)


def _row(run: Run) -> dict[str, Any]:
    per = run.iterations.groupby("iteration").agg(start=("start_s", "min"), end=("end_s", "max"))
    return {
        "system": run.system, "role": run.role, "tcp": builtin_transport.plain(run.jobs[0].transport), "lossy": not run.jobs[0].by_tcp, "marked": run.jobs[0].cc.traits.needs_marks,
        "delivered": phases.delivered(run), "seed": run.seed, "rto_ms": run.plan.rto_min_ms,
        "loss": max((wire.loss for wire in run.plan.wires.values()), default=0.0), "iteration_s": float((per["end"] - per["start"]).mean()),
    }  # fmt: skip

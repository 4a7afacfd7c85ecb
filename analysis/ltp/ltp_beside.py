"""LTP beside TCP, and beside itself, on one link: who gets how much of it, by the length of the queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.core.runs.metrics import jain_index
from testbed.models.statistics import geometric_mean, log_interval, ratio_ends
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.coexistence import FAIR, HALF, shares
from testbed.report.finding import Finding, graded, not_measured, not_measured_without
from testbed.report.study import Study

ID = "ltp-beside"
POSITION = 240
PAPER = "LTP"
TITLE = "LTP beside other traffic"
TEXT = (
    "One job sends by LTP, the other by what the colour says, a message after the other, as fast as they go. Left: the other's share of the link; "
    "middle: LTP's; right: how even they are (Jain's index; 1: equal, 0.5: one has everything). Queues are in bandwidth-delay products. "
    "LTP does not slow down for losses, so a short queue is where a TCP that does has to give way."
)
TCP = "A TCP that takes losses for congestion keeps half of its fair share beside LTP."
ITSELF = "Two LTP flows share a link evenly."
SOURCE = "ours: the paper's abstract does not speak of other traffic"
CONTROLS = {
    TCP: "a neighbour beside which LTP takes nine tenths of the link",
    ITSELF: "two LTP flows of which one gets three quarters of the link",
}
EVEN = 0.95


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-beside.{png,pdf,csv}``; the data: a row per run."""
    rows = _table(study)
    figure, axes = style.new_figure(1, 3, figsize=(13, 4.2))
    _lines(axes[0, 0], rows, "other_share", "share of the link", "What the other gets")
    _lines(axes[0, 1], rows, "ltp_share", "share of the link", "What LTP gets")
    _lines(axes[0, 2], rows, "jain", "Jain's index", "How even that is")
    for axis in axes[0, :2]:
        axis.axhline(FAIR, color=style.REFERENCE, linewidth=0.9, linestyle="--")
        axis.set_ylim(0, 1.02)
    axes[0, 2].set_ylim(0.48, 1.02)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=rows["system"].nunique(), fontsize=9
    )
    plan = study.runs[0].plan
    drawing.caption(
        figure,
        f"{drawing.rate(study.runs[0].rate_bps)}, round trip {plan.base_rtt_s * 1e3:.0f} ms; {drawing.count(rows['seed'].nunique(), 'seed')} (dots), "
        f"means; {drawing.backend(study.runs[0])}. Payload acknowledged, of what the link can carry of it. Dashed: half.",
    )
    return drawing.save(figure, rows, out, ID)


@not_measured_without(dict.fromkeys((TCP, ITSELF), SOURCE))
def find(study: Study) -> list[Finding]:
    """Two findings: a TCP that slows down for losses, and LTP beside LTP."""
    rows = _table(study)
    return [_tcp(study, rows[~rows["alike"] & rows["yields"]]), _itself(study, rows[rows["alike"]])]


def _tcp(study: Study, rows: pd.DataFrame) -> Finding:
    if rows.empty:
        return not_measured(TCP, SOURCE, "LTP was not run beside a TCP that takes losses for congestion")
    kept = {
        (str(system), float(str(queue))): [float(value) / FAIR for value in cell["other_share"]]
        for (system, queue), cell in rows.groupby(["system", "queue_bdp"], sort=False)
    }
    fine = [min(shares) >= HALF for shares in kept.values()]
    least = min(kept, key=lambda at: geometric_mean(kept[at]))
    return Finding(
        TCP, SOURCE,
        "its share ÷ half of the link: " + "; ".join(f"{observed.with_interval(shares)} {name}, {queue:g} BDP" for (name, queue), shares in kept.items()),
        geometric_mean(kept[least]), f"of its fair share, the least: {least[0]}, {least[1]:g} BDP of queue", log_interval(kept[least]), len(kept[least]),
        graded(all(fine), any(fine)),
        f"reproduced if in every cell and seed it gets at least {HALF:.0%} of half the link, partly if in some cell",
        study.paths,
    )  # fmt: skip


def _itself(study: Study, rows: pd.DataFrame) -> Finding:
    if rows.empty:
        return not_measured(ITSELF, SOURCE, "two jobs on LTP were not run")
    found = {float(str(queue)): [float(v) for v in cell["jain"]] for queue, cell in rows.groupby("queue_bdp")}
    fine = [ratio_ends(values)[0] >= EVEN for values in found.values()]
    least = min(found, key=lambda queue: geometric_mean(found[queue]))
    return Finding(
        ITSELF, SOURCE,
        "Jain's index: " + "; ".join(f"{observed.with_interval(values)} at {queue:g} BDP" for queue, values in found.items()),
        geometric_mean(found[least]), f"Jain's index, the least: {least:g} BDP of queue", log_interval(found[least]), len(found[least]),
        graded(all(fine), any(fine)),
        f"reproduced if it is surely at least {EVEN:g} at every length of the queue, partly if at some",
        study.paths,
    )  # fmt: skip


def _lines(axis: Any, rows: pd.DataFrame, column: str, label: str, title: str) -> None:
    """A line a system over the queue's length, a dot a run."""
    for colour, (system, mine) in zip(style.JOBS, rows.groupby("system", sort=False), strict=False):
        means = mine.groupby("queue_bdp")[column].mean()
        axis.plot(means.index, means, color=colour, label=f"beside {system}")
        axis.plot(mine["queue_bdp"], mine[column], "o", color=colour, markersize=3.5)
    axis.set_xscale("log", base=2)
    axis.set_xticks(sorted(rows["queue_bdp"].unique()), [f"{value:g}" for value in sorted(rows["queue_bdp"].unique())])
    axis.set_xlabel("queue (bandwidth-delay products)")
    axis.set_ylabel(label)
    axis.set_title(title)


def _table(study: Study) -> pd.DataFrame:
    """``system, role, seed, queue_bdp, alike, yields, ltp_share, other_share, jain, drops``; raises `LoadError` without LTP."""
    rows = [row for run in study.runs if (row := _row(run)) is not None]
    if not rows:
        raise LoadError(f"{ID}: there are no runs with LTP; run experiments/{ID}.toml")
    return pd.DataFrame(rows).sort_values("queue_bdp", kind="stable", ignore_index=True)


def _row(run: Run) -> dict[str, Any] | None:
    found, other = shares(run), run.jobs[-1]
    if found is None:
        return None
    bdp = run.rate_bps / 8 * run.plan.base_rtt_s
    return {
        "system": run.system, "role": run.role, "seed": run.seed, "queue_bdp": float(f"{run.plan.link.buffer_bytes / bdp:.2g}"),
        "alike": not other.by_tcp, "yields": not (other.cc.traits.paced or other.cc.traits.may_leave_idle), "ltp_share": found[0], "other_share": found[1], "jain": jain_index(np.array(found)),
        "drops": int(run.links["drops"].max()) if len(run.links) else 0,
    }  # fmt: skip

"""LTP where some paths lose: from every worker alike or from one alone, in the gather or in the broadcast, the same number in all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.core.runs.load import Run
from testbed.report import drawing, phases, style
from testbed.report.study import Study

ID = "ltp-uneven"
POSITION = 230
TITLE = "LTP where one worker loses more than the others"
TEXT = (
    "A row each: nothing is lost; the gather loses, from all workers alike or from one alone, the same number of packets in all; the broadcast does. "
    "Left: a mean iteration, from computing over the gather to the broadcast. Right: what of each worker's gradients arrived, a dot a worker and run. "
    "A dot far to the left is a worker whose data hardly count."
)
CELLS = {
    "none": "nothing is lost", "gather all": "gather, from all alike", "gather one": "gather, from one worker",
    "broadcast all": "broadcast, to all alike", "broadcast one": "broadcast, to one worker",
}  # fmt: skip


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-uneven.{png,pdf,csv}``; the data: a row per run."""
    rows, workers = _table(study)
    cells = [cell for cell in CELLS if cell in set(rows["cell"])]
    systems = list(dict.fromkeys(rows["system"]))
    figure, axes = style.new_figure(
        len(cells), 2, figsize=(12, 1.0 + len(cells) * (0.75 + 0.3 * len(systems))), width_ratios=[1.5, 1]
    )
    longest = 1e3 * float(rows["iteration_s"].max())
    for (left, right), cell in zip(axes, cells, strict=True):
        phases.bars(left, rows[rows["cell"] == cell])
        left.set_xlim(0, 1.3 * longest)
        loss = float(rows[rows["cell"] == cell]["loss"].iloc[0])
        left.set_title(CELLS[cell] + (f" ({100 * loss:g} %)" if loss else ""), fontsize=10)
        _dots(right, workers[workers["cell"] == cell])
    axes[-1, 0].set_xlabel("mean iteration (ms)")
    axes[-1, 1].set_xlabel("share of a worker's gradients that arrived")
    for part, colour in phases.COLOURS.items():
        axes[0, 0].barh(0, 0, color=colour, label=phases.NAMES[part])
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=3, fontsize=9)
    one = study.runs[0]
    drawing.caption(
        figure,
        f"{drawing.rate(one.rate_bps)}, {drawing.count(len(one.jobs[0].hosts) - 1, 'worker')} and a server, {drawing.count(rows['seed'].nunique(), 'seed')} (ticks), "
        f"{drawing.count(one.jobs[0].iterations, 'iteration')}; {drawing.backend(one)}. Speed-ups are over the first system; dashed: ideal.",
        "Right: the worker that loses is an open circle.",
    )
    return [
        *drawing.save(figure, rows, out, ID),
        *drawing.write_tables({f"{ID}-shares": _shares(workers, phases.lossy(study))}, out),
    ]


def _shares(workers: pd.DataFrame, own: str) -> pd.DataFrame:
    """``system, own, seed, value``: what of the gradients of the worker that loses arrived ÷ of the others'."""
    lossy = workers[workers["cell"] == "gather one"]
    wide = lossy.pivot_table(index=["system", "seed"], columns="loses", values="delivered").reindex(
        columns=[True, False]
    )
    found = (wide[True] / wide[False]).dropna().rename("value").reset_index()
    return found.assign(own=found["system"] == own)


def _dots(axis: Any, workers: pd.DataFrame) -> None:
    """What arrived of each worker, a line a system."""
    systems = list(dict.fromkeys(workers["system"]))
    for y, system in enumerate(systems):
        mine = workers[workers["system"] == system]
        for loses, face in ((False, style.JOBS[0]), (True, "none")):
            dots = mine[mine["loses"] == loses]
            axis.plot(
                dots["delivered"], np.full(len(dots), y), "o",
                markersize=6, alpha=0.8, color=style.JOBS[1 if loses else 0], markerfacecolor=face,
            )  # fmt: skip
    axis.set_yticks(range(len(systems)), systems, fontsize=9)
    axis.set_ylim(len(systems) - 0.5, -0.5)
    axis.set_xlim(0, 1.03)
    axis.grid(visible=False, axis="y")


def _table(study: Study) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row per run (`phases.table`, and ``cell``), and one per run and worker where messages are told: ``cell, system, seed, worker, loses, delivered``."""
    rows = phases.table(study)
    places = [_place(run) for run in study.runs]
    rows["cell"] = [places[place][0] for place in rows.index]
    rows["loss"] = [places[place][1] for place in rows.index]
    workers = [
        row for run, (cell, _, loser) in zip(study.runs, places, strict=True) for row in _workers(run, cell, loser)
    ]
    told = pd.DataFrame(workers, columns=["cell", "system", "seed", "worker", "loses", "delivered"])
    return rows.sort_values(
        "cell", key=lambda cells: cells.map(list(CELLS).index), kind="stable", ignore_index=True
    ), told


def _place(run: Run) -> tuple[str, float, int | None]:
    """Which cell a run is, what its lossy direction loses, and the worker that it concerns, if one alone."""
    lossy = [(name, wire.loss) for name, wire in run.plan.wires.items() if wire.loss]
    if not lossy:
        return "none", 0.0, None
    (name, loss) = lossy[0]
    switch = dict(way.split("-") for way in run.plan.nics)  # of each host
    of = {switch[host]: rank for rank, host in enumerate(run.plan.jobs[0].hosts)}
    source, target = name.split("-")
    sends = source in of  # towards the spine
    rank = of[source if sends else target]
    if rank == phases.SERVER:
        return ("broadcast all" if sends else "gather all"), loss, None
    return ("gather one" if sends else "broadcast one"), loss, rank


def _workers(run: Run, cell: str, loser: int | None) -> list[dict[str, object]]:
    if run.messages is None:
        return []
    gradients = run.messages[(run.messages["side"] == "receive") & (run.messages["stage"] == "gradient")]
    sums = gradients.groupby("peer")[["delivered", "bytes"]].sum()
    return [
        {"cell": cell, "system": run.system, "seed": run.seed, "worker": int(str(peer)), "loses": peer == loser, "delivered": row["delivered"] / row["bytes"]}
        for peer, row in sums.iterrows()
    ]  # fmt: skip

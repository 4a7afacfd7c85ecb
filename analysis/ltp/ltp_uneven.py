"""LTP where some paths lose: from every worker alike or from one alone, in the gather or in the broadcast, the same number in all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core.runs.load import Run
from testbed.report import drawing, phases, redrawing, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "ltp-uneven"
POSITION = 230
TITLE = "One worker whose path loses slows Reno 2.4 times; LTP keeps its speed and that worker's share"
TEXT = (
    "Left: mean iteration of each system, one marker for each place of the loss; the number of lost packets is the same everywhere. Middle: the share of all gradients that arrived. "
    "Right: the share that arrived of the worker whose path loses, divided by that of the other workers (1: its data count as much)."
)
CELLS = {
    "none": ("no loss", style.JOBS[7], "o"), "gather all": ("gather, all workers", style.JOBS[0], "s"), "gather one": ("gather, one worker", style.JOBS[1], "D"),
    "broadcast all": ("broadcast, all workers", style.JOBS[4], "^"), "broadcast one": ("broadcast, one worker", style.JOBS[3], "v"),
}  # fmt: skip


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-uneven.{png,pdf,csv}``, a row per run, and ``ltp-uneven-shares.csv``, a row per system and seed."""
    rows, workers = _table(study)
    one = study.runs[0]
    note = (
        f"{drawing.rate(one.rate_bps)}, {drawing.count(len(one.jobs[0].hosts) - 1, 'worker')} and a server, {drawing.count(rows['seed'].nunique(), 'seed')} (dots), "
        f"means, 95 % intervals, {drawing.count(one.jobs[0].iterations, 'iteration')}; {drawing.backend(one)}. Dashed: ideal."
    )
    return redrawing.publish(plot, {ID: rows, f"{ID}-shares": _shares(workers, phases.lossy(study))}, note, out)


def plot(tables: Tables) -> Any:
    """Systems from above to below: iterations, what was delivered, and what of it was the lossy worker's."""
    rows, shares = tables[ID], tables[f"{ID}-shares"]
    systems = list(dict.fromkeys(rows["system"]))
    cells = [cell for cell in CELLS if cell in set(rows["cell"])]
    figure, axes = style.new_figure(
        1, 3, figsize=(11.5, 1.6 + 0.55 * len(systems)), width_ratios=[1.7, 1, 0.8], sharey=True
    )
    times, delivered, worker = axes[0]
    for place, cell in enumerate(cells):
        name, colour, marker = CELLS[cell]
        aside = (place - (len(cells) - 1) / 2) * 0.72 / len(cells)
        for y, system in enumerate(systems):
            mine = rows[(rows["system"] == system) & (rows["cell"] == cell)]
            drawing.across(
                times, y + aside, list(mine["iteration_s"]), colour, marker=marker, label=name if y == 0 else None
            )
            drawing.across(delivered, y + aside, list(mine["delivered"]), colour, marker=marker)
    for y, system in enumerate(systems):
        mine = shares[shares["system"] == system]
        drawing.across(worker, y, list(mine["value"]), CELLS["gather one"][1], marker=CELLS["gather one"][2])
        if "low" in mine and len(mine):
            worker.hlines(y, mine["low"], mine["high"], color=CELLS["gather one"][1], linewidth=2, alpha=0.6)
    times.axvline(float(rows["ideal_s"].iloc[0]), color=style.REFERENCE, linewidth=0.9, linestyle="--")
    worker.axvline(1, color="black", linewidth=0.8)
    times.set_yticks(range(len(systems)), systems, fontsize=9)
    times.set_ylim(len(systems) - 0.5, -0.5)
    times.set(xlabel="mean iteration (s)", title="Iteration")
    delivered.set(xlabel="share of the gradients", title="Delivered", xlim=(None, 1.02))
    worker.set(xlabel="its share ÷ others'", title="Lossy worker", xlim=(0.8, 1.15))
    for axis in axes[0]:
        for y in range(1, len(systems)):
            axis.axhline(y - 0.5, color="#DDDDDD", linewidth=0.8)
        axis.grid(visible=False, axis="y")
    figure.legend(*times.get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=9)
    return figure


def _shares(workers: pd.DataFrame, own: str) -> pd.DataFrame:
    """``system, own, seed, value``: what of the gradients of the worker that loses arrived ÷ of the others'."""
    lossy = workers[workers["cell"] == "gather one"]
    wide = lossy.pivot_table(index=["system", "seed"], columns="loses", values="delivered").reindex(
        columns=[True, False]
    )
    found = (wide[True] / wide[False]).dropna().rename("value").reset_index()
    return found.assign(own=found["system"] == own)


def _table(study: Study) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row per run (`phases.table`, and ``cell``), and one per run and worker where messages are logged: ``cell, system, seed, worker, loses, delivered``."""
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

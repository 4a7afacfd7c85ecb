"""How much faster models train by MLT, by parameter servers and in a ring; published speed-ups beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from analysis import drawing, phases, style
from analysis import observations as observed
from analysis.finding import Finding, graded, not_measured
from analysis.study import Study
from core.runs.load import LoadError, Run
from theory.statistics import geometric_mean, log_interval, ratio_ends

ID = "mlt-speedup"
PAPER = "MLT"
TITLE = "How much faster models train by MLT"
TEXT = (
    "Iteration time of the fastest TCP (with partitions and priorities as BytePS has them) ÷ that of MLT, by model, by how gradients are exchanged, and by workers; "
    "dots are seeds. Orange lines: the same over the fastest TCP that sends every tensor whole, one after the other. Grey: MLT over BytePS as published, PyTorch with parameter servers and ring, 64 GPUs."
)
SERVERS = "With parameter servers every model trains faster by MLT."
RING = "In a ring every model trains faster by MLT."
FSDP = "Fully sharded, a model trains faster by MLT, whose parameters arrive whole."
MOST = "The headline: 84.3 % faster (DLCP), 62.2 % (MLT)."
PLAINLY = "By parameter servers MLT gains more over TCP that sends tensors whole, one after the other: 34.5 % at least."
SOURCES = {
    SERVERS: "MLT, speed with parameter servers at 64 workers [published figure]",
    RING: "MLT, speed in a ring at 64 workers [published figure]",
    FSDP: "MLT, FSDP at 64 GPUs: T5-3B 1.36× [published table]; abstract: up to 35.5 %",
    MOST: "DLCP, abstract: up to 84.3 % over the best existing system; MLT: up to 62.2 %",
    PLAINLY: "MLT, over the plain baseline at 64 workers: 34.5 to 141 % [published figure]",
}
CONTROLS = {
    SERVERS: "an MLT that takes as long as TCP",
    RING: "an MLT that takes as long as TCP",
    FSDP: "an MLT that takes as long as TCP",
    MOST: "an MLT that takes as long as TCP",
    PLAINLY: "an MLT that takes as long as TCP",
}
SHARDED = "sharded_parameter_server"
GATHERED = "all_gather"  # what a fully sharded model begins with
NAMES = {SHARDED: "parameter servers", "ring": "ring", GATHERED: "fully sharded"}
# MLT ÷ BytePS at 64 workers, PyTorch (published figure, values read from the drawing).
PUBLISHED = {
    (SHARDED, "vgg16-layers"): 381 / 243, (SHARDED, "resnet50-layers"): 2.75 / 2.38,
    (SHARDED, "googlenet-layers"): 12.5 / 9.3, (SHARDED, "t5-layers"): 29.1 / 21.1,
    ("ring", "vgg16-layers"): 811 / 736, ("ring", "resnet50-layers"): 5.12 / 4.79,
    ("ring", "googlenet-layers"): 19.0 / 17.9, ("ring", "t5-layers"): 58.7 / 54.3,
    (GATHERED, "t5-fsdp"): 31.3 / 23.1,  # T5-3B, FSDP [published table]
}  # fmt: skip
HEADLINE, HALF = 1.622, 1.3  # MLT's own, and about half of that gain
PLAIN_GAIN = 1.345  # the least published over the plain baseline


class Cell(NamedTuple):
    """A model, how and among how many workers it is exchanged, and by what."""

    collective: str
    trace: str
    workers: int
    system: str

    @property
    def setting(self) -> str:
        return f"{NAMES.get(self.collective, self.collective)}, {self.workers} workers"


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-speedup.{png,pdf,csv}``; the data: a row per run."""
    rows = _table(study)
    gains = _gains(rows)
    figure, axes = style.new_figure(1, 1, figsize=(8.2, 1.4 + 0.55 * len(gains)))
    axis = axes[0, 0]
    delivered = rows.groupby(list(Cell._fields))["delivered"].mean()
    plain = {cell: geometric_mean(values) for cell, (_, values) in _over_plain(rows).items()}
    for y, (cell, values) in enumerate(gains.items()):
        mean, arrived = geometric_mean(values), delivered[cell]
        axis.barh(y - 0.18, mean, height=0.34, color=style.JOBS[0 if cell.collective == SHARDED else 1])
        axis.plot(values, [y - 0.18] * len(values), "o", color="black", markersize=3)
        if cell in plain:
            axis.plot([plain[cell]] * 2, [y - 0.46, y - 0.3], color=style.JOBS[1], linewidth=2)
        axis.annotate(
            f"{mean:.2f}, {arrived:.0%} of gradients arrived",
            (max(mean, *values), y - 0.18),
            textcoords="offset points",
            xytext=(6, -3),
            fontsize=8,
        )
        if published := PUBLISHED.get((cell.collective, cell.trace)):
            axis.barh(y + 0.18, published, height=0.34, color="#CCCCCC")
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_yticks(
        range(len(gains)),
        [f"{cell.trace}, {cell.setting}\n{cell.system}" for cell in gains],
        fontsize=8,
    )
    axis.set_ylim(len(gains) - 0.5, -0.5)
    axis.set(
        xlabel="× as fast as the fastest TCP (grey: published, over BytePS)",
        xlim=(0, max(2.2, 1.05 * max(plain.values(), default=0))),
    )
    axis.grid(visible=False, axis="y")
    one = study.runs[0]
    drawing.caption(
        figure,
        f"{drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')} (dots), "
        f"{one.jobs[0].iterations} iterations, the first left out; layers from public shapes, t5 for the paper's Transformer.",
    )
    return drawing.save(figure, rows, out, ID)


def find(study: Study) -> list[Finding]:
    """Five findings: by parameter servers, in a ring, fully sharded, the largest, and over TCP that sends tensors whole."""
    try:
        rows = _table(study)
        gains = _gains(rows)
    except LoadError as error:
        return [not_measured(claim, SOURCES[claim], str(error)) for claim in SOURCES]
    found = []
    for claim, collective in ((SERVERS, SHARDED), (RING, "ring"), (FSDP, GATHERED)):
        cells = {cell: values for cell, values in gains.items() if cell.collective == collective}
        if not cells:
            found.append(not_measured(claim, SOURCES[claim], f"{NAMES[collective]} were not run"))
            continue
        ends = [ratio_ends(values)[0] > 1 for values in cells.values()]
        least = min(cells, key=lambda at: geometric_mean(cells[at]))
        found.append(
            _finding(
                study,
                claim,
                cells,
                least,
                graded(all(ends), any(ends)),
                "reproduced if surely faster for each model, partly if for one",
            )
        )
    most = max(gains, key=lambda at: geometric_mean(gains[at]))
    gain = geometric_mean(gains[most])
    graded_by = f"reproduced if the largest gain is at least MLT's own ({HEADLINE:.3f}), partly if at least {HALF:g}; DLCP's 1.843 is of other hardware"
    found.append(_finding(study, MOST, {most: gains[most]}, most, graded(gain >= HEADLINE, gain >= HALF), graded_by))
    return [*found, _plainly(study, rows)]


def _plainly(study: Study, rows: pd.DataFrame) -> Finding:
    over = _over_plain(rows)
    served = [cell for cell in over if cell.collective == SHARDED]
    if not served:
        return not_measured(PLAINLY, SOURCES[PLAINLY], "TCP was not run without partitions and priorities")
    least = min(served, key=lambda cell: geometric_mean(over[cell][1]))
    return Finding(
        PLAINLY, SOURCES[PLAINLY],
        "× as fast: " + "; ".join(
            f"{observed.with_interval(values)} {cell.trace} by {cell.system} ({cell.setting}), over {base}" for cell, (base, values) in over.items()
        ),
        geometric_mean(over[least][1]), f"× as fast as {over[least][0]}, {least.trace} by {least.system}", log_interval(over[least][1]), len(over[least][1]),
        graded(
            all(geometric_mean(over[cell][1]) >= PLAIN_GAIN for cell in served),
            any(geometric_mean(over[cell][1]) >= PLAIN_GAIN for cell in served),
        ),
        f"reproduced if each model gains at least {PLAIN_GAIN - 1:.1%} over the fastest such TCP, whatever its least timeout, partly if one does",
        study.paths,
    )  # fmt: skip


def _over_plain(rows: pd.DataFrame) -> dict[Cell, tuple[str, list[float]]]:
    """By cell the fastest TCP that sends tensors whole, and its iteration time ÷ MLT's, a ratio a seed."""
    found: dict[Cell, tuple[str, list[float]]] = {}
    for (collective, trace, workers), cell in rows.groupby(["collective", "trace", "workers"], sort=False):
        plain = cell[cell["plain"]]
        if plain.empty:
            continue
        named = plain["system"] + plain["rto_ms"].map(", {:g} ms".format)
        fastest = str(plain["iteration_s"].groupby(named).mean().idxmin())
        base = plain[named == fastest].set_index("seed")["iteration_s"]
        for system, mine in cell[~cell["tcp"]].groupby("system", sort=False):
            values = [
                float(base[seed]) / s for seed, s in zip(mine["seed"], mine["iteration_s"], strict=True) if seed in base
            ]
            if values:
                found[Cell(str(collective), str(trace), int(str(workers)), str(system))] = fastest, values
    return found


def _finding(study: Study, claim: str, cells: dict[Cell, list[float]], at: Cell, verdict: Any, rule: str) -> Finding:
    return Finding(
        claim, SOURCES[claim],
        "× as fast: " + "; ".join(f"{observed.with_interval(values)} {cell.trace} by {cell.system} ({cell.setting})" for cell, values in cells.items()),
        geometric_mean(cells[at]), f"× as fast as the fastest TCP, {at.trace} by {at.system}, {at.workers} workers", log_interval(cells[at]), len(cells[at]),
        verdict, rule, study.paths,
    )  # fmt: skip


def _gains(rows: pd.DataFrame) -> dict[Cell, list[float]]:
    """By cell and what is no TCP: the fastest TCP's iteration time ÷ its own, a ratio a seed."""
    found: dict[Cell, list[float]] = {}
    for (collective, trace, workers), cell in rows[~rows["plain"]].groupby(
        ["collective", "trace", "workers"], sort=False
    ):
        stock = cell[cell["tcp"]].groupby("system")["iteration_s"].mean()
        if stock.empty:
            continue
        base = dict(
            zip(
                cell[cell["system"] == stock.idxmin()]["seed"],
                cell[cell["system"] == stock.idxmin()]["iteration_s"],
                strict=True,
            )
        )
        for system, mine in cell[~cell["tcp"]].groupby("system", sort=False):
            values = [base[seed] / s for seed, s in zip(mine["seed"], mine["iteration_s"], strict=True) if seed in base]
            if values:
                found[Cell(str(collective), str(trace), int(str(workers)), str(system))] = values
    if not found:
        raise LoadError(f"{ID}: there are no results of both MLT and TCP; run experiments/{ID}.toml")
    return found


def _table(study: Study) -> pd.DataFrame:
    """``collective, trace, workers, system, role, tcp, plain, rto_ms, seed, iteration_s, delivered, dropped``; raises `LoadError` without MLT beside TCP."""
    rows = pd.DataFrame([_row(run) for run in study.runs])
    if rows.empty:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    _gains(rows)
    return rows


def _row(run: Run) -> dict[str, Any]:
    job = run.jobs[0]
    return {
        "collective": next(operation.algorithm or operation.kind for operation in job.operations if not operation.computes), "trace": job.trace, "workers": len(job.hosts), "system": run.system,
        "role": run.role, "tcp": job.by_tcp, "plain": job.window is None, "rto_ms": run.plan.rto_min_ms, "seed": run.seed,
        "iteration_s": phases.settled_s(run), "delivered": phases.delivered(run), "dropped": phases.dropped(run),
    }  # fmt: skip

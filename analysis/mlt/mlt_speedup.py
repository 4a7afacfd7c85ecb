"""How much faster models train by MLT, by parameter servers and in a ring; published speed-ups next to ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from testbed.core import builtin_transport, system_text
from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean
from testbed.report import drawing, phases, redrawing, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "mlt-speedup"
POSITION = 260
TITLE = "MLT trains up to 1.4 times as fast as TCP with priorities (published: 1.62); some models gain nothing"
TEXT = (
    "Iteration of the fastest TCP with BytePS's priorities divided by MLT's, by model, collective and workers; dots: seeds. Crosses: over TCP that sends "
    "tensors whole; dashes: over TCP that sends 90 % of gradients. Diamonds, squares: published (PyTorch, TensorFlow). x: DLCP. Below: share of the "
    "gradients that arrived."
)
OLDER = "DLCP"  # MLT's form before
SHARDED = "sharded_parameter_server"
GATHERED = "all_gather"  # what a fully sharded model begins with
NAMES = {SHARDED: "parameter servers", "ring": "ring", GATHERED: "fully sharded"}
# MLT ÷ BytePS by workers (GPUs): servers and rings PyTorch's (published figures, values read from the drawings), fully sharded T5-3B [published table].
PUBLISHED = {
    (SHARDED, "vgg16-layers"): {8: 63.6 / 51.2, 16: 131 / 109, 32: 236 / 163, 64: 381 / 243},
    (SHARDED, "resnet50-layers"): {64: 2.75 / 2.38},
    (SHARDED, "googlenet-layers"): {64: 12.5 / 9.3},
    (SHARDED, "t5-layers"): {8: 5.8 / 4.8, 16: 11.2 / 9.1, 32: 16.2 / 13.1, 64: 29.1 / 21.1},
    ("ring", "vgg16-layers"): {8: 228 / 212, 16: 344 / 303, 32: 486 / 441, 64: 811 / 736},
    ("ring", "resnet50-layers"): {64: 5.12 / 4.79},
    ("ring", "googlenet-layers"): {64: 19.0 / 17.9},
    ("ring", "t5-layers"): {8: 9.3 / 8.5, 16: 17.4 / 16.2, 32: 31.7 / 30.1, 64: 58.7 / 54.3},
    (GATHERED, "t5-fsdp"): {16: 13.8 / 11.3, 32: 22.9 / 17.4, 64: 31.3 / 23.1},
}
TENSORFLOW = {  # the same by another framework (published figure, values read from the drawing)
    (SHARDED, "resnet50-layers"): {8: 750 / 695, 16: 1574 / 1274, 32: 2209 / 1975, 64: 3165 / 2775},
    (SHARDED, "googlenet-layers"): {8: 2530 / 2220, 16: 4810 / 3930, 32: 8480 / 6520, 64: 13010 / 9250},
}
MODELS = ("VGG16", "ResNet50", "GoogleNet", "T5")
WORKERS = (4, 8, 16, 32, 64)


class Cell(NamedTuple):
    """A model, how and among how many workers it is exchanged, and by what."""

    collective: str
    trace: str
    workers: int
    system: str

    @property
    def setting(self) -> str:
        return f"{NAMES.get(self.collective, self.collective)}, {drawing.count(self.workers, 'worker')}"


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-speedup.{png,pdf,csv}``: a column a model; the data: a row per run."""
    rows = _table(study)
    dlcp = [system_text.name_of(name).upper() == OLDER for name in rows["system"]]
    note = (
        f"{drawing.setting(study.runs[0])}; {drawing.count(rows['seed'].nunique(), 'seed')} at most (dots), {_lengths(study)} iterations, of which the last "
        "counts. Layer sizes from public models; t5 stands for the paper's Transformer. Fully sharded: parameters must arrive."
    )
    return redrawing.publish(plot, {ID: rows.assign(dlcp=dlcp, named=_named(rows))}, note, out)


def plot(tables: Tables) -> Any:
    """Speed-ups by model, collective and workers, and below the share of gradients that arrived."""
    rows = tables[ID]
    gains, plain, shares = _gains(rows), _over_plain(rows), _over_share(rows)
    delivered = rows.groupby(list(Cell._fields))["delivered"].mean()
    older = {cell: values for cell, values in gains.items() if _older(cell)}
    models = [model for model in MODELS if any(_model(cell.trace) == model for cell in gains)]
    gains = {cell: values for cell, values in gains.items() if not _older(cell)}
    figure, axes = style.new_figure(
        2, len(models), figsize=(2.2 + 2.6 * len(models), 5.4), height_ratios=(3, 1), sharex=True, sharey="row"
    )
    for column, model in enumerate(models):
        gain, arrived = axes[0, column], axes[1, column]
        for colour, (collective, name) in zip(style.JOBS, NAMES.items(), strict=False):
            cells = [cell for cell in gains if (cell.collective, _model(cell.trace)) == (collective, model)]
            for whole in (True, False):
                chosen = [cell for cell in cells if ("parameters=whole" in cell.system) == whole]
                if not chosen:
                    continue
                beside = whole and collective != GATHERED  # left of what may lose parameters, too, and hollow
                at = [(0.94 if beside else 1) * cell.workers for cell in chosen]
                means = [geometric_mean(gains[cell]) for cell in chosen]
                look = {"color": colour, "markerfacecolor": "white" if beside else colour}
                gain.plot(at, means, "o-", markersize=6, label=None if beside else name, **look)
                arrived.plot(at, [100 * delivered[cell] for cell in chosen], "o-", markersize=4, **look)
                for x, cell in zip(at, chosen, strict=True):
                    gain.plot([1.05 * x] * len(gains[cell]), gains[cell], ".", color=colour, markersize=3, alpha=0.6)
                    for marker, over in (("+", plain), ("_", shares)):
                        if cell in over:
                            gain.plot(x, geometric_mean(over[cell][1]), marker, color=colour, markersize=8)
            for cell, ratios in older.items():
                if (cell.collective, _model(cell.trace)) == (collective, model):
                    gain.plot(1.12 * cell.workers, geometric_mean(ratios), "x", color=colour, markersize=6)
            for look_of, size, published in (("D:", 5, PUBLISHED), ("s:", 4, TENSORFLOW)):
                for (how, trace), by in published.items():
                    if how == collective and _model(trace) == model:
                        gain.plot(list(by), list(by.values()), look_of, color=colour, markersize=size, alpha=0.4)
        gain.axhline(1, color=style.REFERENCE, linewidth=0.8)
        gain.set_title(model)
        arrived.set_xscale("log", base=2)
        arrived.set_xticks(WORKERS, [str(count) for count in WORKERS])
        arrived.set(xlabel="workers", ylim=(85, 101), xlim=(3.2, 80))
    axes[0, 0].set_ylabel("× as fast as the fastest TCP")
    axes[1, 0].set_ylabel("gradients\narrived, %")
    handles = {
        line.get_label(): line for axis in axes[0] for line in axis.get_lines() if not line.get_label().startswith("_")
    }
    for marker, label in (
        ("D", "as published, over BytePS: PyTorch"),
        ("s", "as published, over BytePS: TensorFlow"),
        ("+", "over TCP that sends complete tensors"),
        ("_", "over TCP that sends 90 % of the gradients"),
        ("o", "parameters must arrive, too"),
        ("x", OLDER),
    ):
        hollow = {"markerfacecolor": "white"} if marker == "o" else {}
        handles[label] = axes[0, 0].plot(
            [], [], marker, color=style.REFERENCE, alpha=0.6 if marker in "Ds" else 1, **hollow
        )[0]
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=3, fontsize=9)
    return figure


def _older(cell: Cell) -> bool:
    return system_text.name_of(cell.system).upper() == OLDER


def _model(trace: str) -> str:
    return next((model for model in MODELS if trace.startswith(model.lower())), trace)


def _lengths(study: Study) -> str:
    """The numbers of iterations of its runs: such as 2 or 3."""
    return " or ".join(map(str, sorted({run.jobs[0].iterations for run in study.runs})))


def _named(rows: pd.DataFrame) -> pd.Series[str]:
    """Systems with their minimum RTOs."""
    return rows["system"] + rows["rto_ms"].map(", {:g} ms".format)


def _fastest(rows: pd.DataFrame) -> tuple[str, dict[int, float]]:
    """The fastest system there with its minimum RTO, and its iteration time by seed; nothing, of no rows."""
    if rows.empty:
        return "", {}
    named = _named(rows)
    best = str(rows["iteration_s"].groupby(named).mean().idxmin())
    # A run that two experiments share is there twice.
    own = rows[named == best].groupby("seed", as_index=False)["iteration_s"].mean()
    return best, {int(seed): float(s) for seed, s in zip(own["seed"], own["iteration_s"], strict=True)}


def _over_plain(rows: pd.DataFrame) -> dict[Cell, tuple[str, list[float]]]:
    """Over the fastest TCP that sends tensors whole."""
    return _over(rows, rows["tcp"] & rows["plain"])


def _over_share(rows: pd.DataFrame) -> dict[Cell, tuple[str, list[float]]]:
    """Over the fastest TCP, with partitions and priorities, that sends a share of the gradients only."""
    return _over(rows, ~rows["tcp"] & ~rows["lossy"])


def _over(rows: pd.DataFrame, bases: pd.Series[bool]) -> dict[Cell, tuple[str, list[float]]]:
    """By cell of what may lose: the fastest of ``bases`` there, and its iteration time ÷ the cell's own, a ratio a seed."""
    found: dict[Cell, tuple[str, list[float]]] = {}
    for (collective, trace, workers), cell in rows.groupby(["collective", "trace", "workers"], sort=False):
        fastest, base = _fastest(cell[bases[cell.index]])
        for system, mine in cell[cell["lossy"]].groupby("system", sort=False):
            values = [base[seed] / s for seed, s in zip(mine["seed"], mine["iteration_s"], strict=True) if seed in base]
            if values:
                found[Cell(str(collective), str(trace), int(str(workers)), str(system))] = fastest, values
    return dict(sorted(found.items()))


def _gains(rows: pd.DataFrame) -> dict[Cell, list[float]]:
    """Over the fastest TCP with partitions and priorities; raises `LoadError` without one for the lossy systems."""
    found = {cell: values for cell, (_, values) in _over(rows, rows["tcp"] & ~rows["plain"]).items()}
    if not found:
        raise LoadError(f"{ID}: there are no results of both MLT and TCP; run experiments/{ID}.toml")
    return found


def _table(study: Study) -> pd.DataFrame:
    """``collective, trace, workers, system, role, tcp, lossy, plain, rto_ms, seed, iteration_s, delivered, dropped``; raises `LoadError` without both MLT and TCP."""
    rows = pd.DataFrame([_row(run) for run in study.runs])
    if rows.empty:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    _gains(rows)
    return rows


def _row(run: Run) -> dict[str, Any]:
    job = run.jobs[0]
    return {
        "collective": next(operation.algorithm or operation.kind for operation in job.operations if not operation.computes), "trace": job.trace, "workers": len(job.hosts), "system": run.system,
        "role": run.role, "tcp": builtin_transport.plain(job.transport), "lossy": not job.by_tcp, "plain": job.window is None, "rto_ms": run.plan.rto_min_ms, "seed": run.seed,
        "iteration_s": phases.settled_s(run), "delivered": phases.delivered(run), "dropped": phases.dropped(run),
    }  # fmt: skip

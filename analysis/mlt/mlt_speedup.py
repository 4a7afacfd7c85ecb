"""How much faster models train by MLT, by parameter servers and in a ring; published speed-ups beside ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from testbed.core import builtin_transport, system_text
from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean, log_interval, pairs, ratio_ends
from testbed.report import drawing, phases, style
from testbed.report import observations as observed
from testbed.report.finding import Finding, graded, not_measured, not_measured_without
from testbed.report.study import Study

ID = "mlt-speedup"
POSITION = 260
PAPER = "MLT"
TITLE = "How much faster models train by MLT"
TEXT = (
    "Iteration time of the fastest TCP (with partitions and priorities as BytePS has them) ÷ that of MLT, by model, by how gradients are exchanged, and by workers; "
    "small dots are seeds. Crosses: the same over the fastest TCP that sends every tensor whole, one after the other; dashes: over one that sends 90 % of each gradient and every parameter, of which MLT may go without a tenth, too. "
    "Diamonds: MLT over BytePS as published, PyTorch; squares: TensorFlow, of models whose PyTorch was published with 64 workers alone. "
    "x: DLCP. Below: what of the gradients arrived: of a message of fewer than ten packets a tenth is none."
)
SERVERS = "With parameter servers every model trains faster by MLT."
RING = "In a ring every model trains faster by MLT."
FSDP = "Fully sharded, a model trains faster by MLT, whose parameters arrive whole."
MOST = "The headline of MLT: up to 62.2 % faster."
MOST_OF_DLCP = "The headline of DLCP: up to 84.3 % faster."
PLAINLY = "By parameter servers MLT gains more over TCP that sends tensors whole, one after the other: 34.5 % at least."
ORDERED = "TCP gains by partitions, priorities and overlap, as BytePS has them, alone."
SOURCES = {
    SERVERS: "MLT, speed with parameter servers at 64 workers [published figure]",
    RING: "MLT, speed in a ring at 64 workers [published figure]",
    FSDP: "MLT, FSDP at 64 GPUs: T5-3B 1.36× [published table]; abstract: up to 35.5 %",
    MOST: "MLT, abstract [published]: up to 62.2 % over prior work",
    MOST_OF_DLCP: "DLCP, abstract [published]: up to 84.3 % over the best there is",
    ORDERED: "BytePS, as MLT's baseline; ours",
    PLAINLY: "MLT, over the plain baseline at 64 workers: 34.5 to 141 % [published figure]",
}
CONTROLS = {
    SERVERS: "an MLT that takes as long as TCP",
    RING: "an MLT that takes as long as TCP",
    FSDP: "an MLT that takes as long as TCP",
    MOST: "an MLT that takes as long as TCP; one whose gain the next seed may take back",
    MOST_OF_DLCP: "an MLT that takes as long as TCP; one that gains what MLT's own headline says, for more than partly",
    ORDERED: "a TCP that takes as long with them as without",
    PLAINLY: "an MLT that takes as long as TCP",
}
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
HEADLINES = {MOST: (1.622, 1.3), MOST_OF_DLCP: (1.843, 1.42)}  # as published, and about half of that gain
PLAIN_GAIN = 1.345  # the least published over the plain baseline


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
        ("+", "over TCP that sends tensors whole"),
        ("_", "over TCP that sends 90 % of the gradients"),
        ("o", "parameters arrive whole, too"),
        ("x", OLDER),
    ):
        hollow = {"markerfacecolor": "white"} if marker == "o" else {}
        handles[label] = axes[0, 0].plot(
            [], [], marker, color=style.REFERENCE, alpha=0.6 if marker in "Ds" else 1, **hollow
        )[0]
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=3, fontsize=9)
    one = study.runs[0]
    drawing.caption(
        figure,
        f"{drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')} at most (dots), "
        f"{_lengths(study)} iterations, of which the last counts: in the second the exchange of the first ends, which finds its rates; layers from public shapes, t5 for the paper's Transformer; fully sharded: its parameters have to arrive.",
    )
    return drawing.save(figure, rows, out, ID)


def _older(cell: Cell) -> bool:
    return system_text.name_of(cell.system).upper() == OLDER


def _model(trace: str) -> str:
    return next((model for model in MODELS if trace.startswith(model.lower())), trace)


@not_measured_without(SOURCES)
def find(study: Study) -> list[Finding]:
    """Seven findings: by parameter servers, in a ring, fully sharded, the largest beside each headline, over TCP that sends tensors whole, and that TCP
    beside the one that does not."""
    rows = _table(study)
    of_both, shares = _gains(rows), _over_share(rows)
    gains = {cell: values for cell, values in of_both.items() if not _older(cell)}
    arrived = rows.groupby(list(Cell._fields))["delivered"].mean()
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
                shares,
                arrived,
            )
        )
    found += [
        _headline(study, claim, of_both if claim == MOST_OF_DLCP else gains, shares, arrived) for claim in HEADLINES
    ]
    return [*found, _plainly(study, rows), _ordered(study, rows)]


def _headline(
    study: Study, claim: str, gains: dict[Cell, list[float]], shares: dict[Cell, tuple[str, list[float]]], arrived: pd.Series[float]
) -> Finding:  # fmt: skip
    """The largest gain of those with an interval, without which nothing is sure; beside it one of fewer seeds, if that is larger."""
    published, half = HEADLINES[claim]
    certain = {cell: values for cell, values in gains.items() if log_interval(values)}
    largest, most = (max(among, key=lambda at: geometric_mean(gains[at])) for among in (gains, certain or gains))
    ends = log_interval(gains[most])
    surely = ends is not None and ends[0] >= half
    found = _finding(
        study, claim, {cell: gains[cell] for cell in (most, largest)}, most,
        graded(surely and geometric_mean(gains[most]) >= published, surely),
        f"reproduced if the largest gain with an interval is at least {published:.3f} in the mean and surely at least {half:g}, "
        f"about half of it; partly if surely at least {half:g}", shares, arrived,
    )  # fmt: skip
    if claim != MOST_OF_DLCP:
        return found
    own = "; ".join(
        f"{observed.with_interval(values)} {_where(cell)}" for cell, values in gains.items() if _older(cell)
    )
    said = f"DLCP itself: {own}" if own else "by runs of MLT"
    return replace(found, measured=f"{found.measured}; {said}; its parts are in mlt-components")


def _where(cell: Cell) -> str:
    return f"{cell.trace} by {cell.system} ({cell.setting})"


def _plainly(study: Study, rows: pd.DataFrame) -> Finding:
    over = _over_plain(rows)
    served = [cell for cell in over if cell.collective == SHARDED]
    if not served:
        return not_measured(PLAINLY, SOURCES[PLAINLY], "TCP was not run without partitions and priorities")
    least = min(served, key=lambda cell: geometric_mean(over[cell][1]))
    return Finding(
        PLAINLY, SOURCES[PLAINLY],
        "× as fast: " + "; ".join(
            f"{observed.with_interval(values)} {_where(cell)}, over {base}" for cell, (base, values) in over.items()
        ),
        geometric_mean(over[least][1]), f"× as fast as {over[least][0]}, {least.trace} by {least.system}", log_interval(over[least][1]), len(over[least][1]),
        graded(
            all(geometric_mean(over[cell][1]) >= PLAIN_GAIN for cell in served),
            any(geometric_mean(over[cell][1]) >= PLAIN_GAIN for cell in served),
        ),
        f"reproduced if each model gains at least {PLAIN_GAIN - 1:.1%} over the fastest such TCP, whatever its least timeout, partly if one does",
        study.paths,
    )  # fmt: skip


def _ordered(study: Study, rows: pd.DataFrame) -> Finding:
    """By collective, model and workers: the fastest plain TCP's iterations ÷ those of the fastest that has partitions and priorities, a ratio a seed."""
    found: dict[Any, list[float]] = {}
    for at, cell in rows[rows["tcp"]].groupby(["collective", "trace", "workers"], sort=False):
        (_, plain), (_, ordered) = (_fastest(cell[cell["plain"] == sends_whole]) for sends_whole in (True, False))
        if ratios := [base / own for base, own in pairs(plain, ordered)]:
            found[at] = ratios
    served = {at: ratios for at, ratios in found.items() if at[0] == SHARDED}
    if not served:
        return not_measured(ORDERED, SOURCES[ORDERED], "TCP was not run with and without them")
    least = min(served, key=lambda at: geometric_mean(served[at]))
    ends = [ratio_ends(ratios)[0] > 1 for ratios in served.values()]
    return Finding(
        ORDERED, SOURCES[ORDERED],
        "× as fast as tensors sent whole, one after the other: " + "; ".join(
            f"{observed.with_interval(ratios)} {trace} ({NAMES.get(how, how)}, {drawing.count(workers, 'worker')})" for (how, trace, workers), ratios in found.items()
        ),
        geometric_mean(served[least]), f"× as fast, {least[1]}, {NAMES[SHARDED]}", log_interval(served[least]), len(served[least]),
        graded(all(ends), any(ends)), "reproduced if surely faster for each model by parameter servers, partly if for one", study.paths,
    )  # fmt: skip


def _lengths(study: Study) -> str:
    """How many iterations its runs have: 2 or 3, say."""
    return " or ".join(map(str, sorted({run.jobs[0].iterations for run in study.runs})))


def _fastest(rows: pd.DataFrame) -> tuple[str, dict[int, float]]:
    """The fastest system there with its least timeout, and its iteration time by seed; nothing, of no rows."""
    if rows.empty:
        return "", {}
    named = rows["system"] + rows["rto_ms"].map(", {:g} ms".format)
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


def _finding(
    study: Study, claim: str, cells: dict[Cell, list[float]], at: Cell, verdict: Any, rule: str,
    shares: dict[Cell, tuple[str, list[float]]], arrived: pd.Series[float],
) -> Finding:  # fmt: skip
    beside = [f"{observed.with_interval(shares[cell][1])} {_where(cell)}" for cell in cells if cell in shares]
    return Finding(
        claim, SOURCES[claim],
        "× as fast: " + "; ".join(f"{observed.with_interval(values)} {_where(cell)}, {arrived[cell]:.0%} arrived" for cell, values in cells.items())
        + ("; over TCP that sends 90 % of the gradients: " + "; ".join(beside) if beside else ""),
        geometric_mean(cells[at]), f"× as fast as the fastest TCP, {at.trace} by {at.system}, {drawing.count(at.workers, 'worker')}", log_interval(cells[at]), len(cells[at]),
        verdict, rule, study.paths,
    )  # fmt: skip


def _gains(rows: pd.DataFrame) -> dict[Cell, list[float]]:
    """Over the fastest TCP with partitions and priorities; raises `LoadError` if there is none beside what may lose."""
    found = {cell: values for cell, (_, values) in _over(rows, rows["tcp"] & ~rows["plain"]).items()}
    if not found:
        raise LoadError(f"{ID}: there are no results of both MLT and TCP; run experiments/{ID}.toml")
    return found


def _table(study: Study) -> pd.DataFrame:
    """``collective, trace, workers, system, role, tcp, lossy, plain, rto_ms, seed, iteration_s, delivered, dropped``; raises `LoadError` without MLT beside TCP."""
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

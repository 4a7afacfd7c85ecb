"""MLT where one worker's link loses packets at random: the published curve, and ours, at two least timeouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.core import builtin_transport
from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean, log_interval, ratio_ends
from testbed.report import drawing, phases, style
from testbed.report import observations as observed
from testbed.report.finding import Finding, graded, not_measured, not_measured_without
from testbed.report.study import Study

ID = "mlt-loss"
POSITION = 300
PAPER = "MLT"
TITLE = "MLT where one worker's link loses"
TEXT = (
    "Speed of an iteration beside that of the same system without loss, over what one worker's link loses; a panel for each least timeout of the "
    "kernel, dots are seeds. Grey: as published (PyTorch, 64 GPUs, VGG16), for MLT, BytePS and a plain parameter server over TCP. The paper's own "
    "TCP had 1 ms; Linux has 200 ms unless told otherwise."
)
STAYS = "1 % of loss on one worker's link leaves MLT within 5 % of its speed."
FALLS = "The same loss slows down TCP."
FASTER = "MLT is faster than the fastest TCP where one worker's link loses 1 %."
SMALL = "With 1 % of loss on one worker's link MLT is faster than TCP with a least timeout of 5 ms, too."
NONE = "Without loss MLT is faster than TCP with a least timeout of 5 ms, too."
EQUAL = "With 1 % of loss and parameters that arrive whole MLT is faster than TCP that sends no more than that, with a least timeout of 5 ms."
CUBIC = "MLT is faster than CUBIC where one worker's link loses 1 %."
CUBIC_SMALL = "With 1 % of loss MLT is faster than CUBIC with a least timeout of 5 ms, too."
SOURCES = {
    STAYS: "MLT, random loss on one link [published figure]",
    FALLS: "MLT, random loss on one link [published figure]",
    FASTER: "MLT, random loss on one link [published figure]: 381 against 94 images/s by BytePS",
    SMALL: "ours",
    EQUAL: "ours",
    CUBIC: "MLT, random loss on one link [published figure]: 381 against 94 images/s by BytePS",
    CUBIC_SMALL: "ours",
    NONE: "MLT, random loss on one link [published figure]: 381 against 244 images/s by BytePS",
}
CONTROLS = {
    STAYS: "an MLT that takes 1.4 times as long where packets are lost",
    FALLS: "a TCP that takes no longer where packets are lost",
    FASTER: "an MLT that takes as long as TCP",
    SMALL: "an MLT that takes as long as TCP",
    EQUAL: "an MLT that takes as long as TCP",
    CUBIC: "an MLT that takes as long as TCP",
    CUBIC_SMALL: "an MLT that takes as long as TCP",
    NONE: "an MLT that takes as long as TCP",
}
# Images/s of VGG16 at 0, 0.01, 0.1 and 1 % (published figure, values read from the drawing).
PUBLISHED = {"MLT": (381, 381, 381, 381), "BytePS": (244, 239, 175, 94), "plain": (165, 160, 113, 63)}
WHOLE = "parameters=whole"
LOSSES = (0.0, 0.0001, 0.001, 0.01)
WORST, WITHIN, LONG_MS = 0.01, 0.05, 200.0


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-loss.{png,pdf,csv}``; the data: a row per run."""
    rows = _table(study)
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
        axis.set(title=f"least timeout {rto:g} ms", xlabel="loss on one worker's link", ylim=(0, 1.35))
    axes[0, 0].set_ylabel("speed ÷ that without loss")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=rows["system"].nunique(), fontsize=9
    )
    one = study.runs[0]
    drawing.caption(
        figure,
        f"{drawing.count(len(one.jobs[0].hosts), 'worker')}, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')} (dots), {drawing.count(one.jobs[0].iterations, 'iteration')}. "
        "Of MLT's gradients up to a tenth may be missing.",
    )
    return drawing.save(figure, rows, out, ID)


@not_measured_without(SOURCES)
def find(study: Study) -> list[Finding]:
    """Eight findings: MLT's speed, and TCP's, with 1 % of loss beside none; MLT beside the fastest TCP, at both least timeouts, and without loss;
    beside CUBIC; and beside TCP that sends as many bytes."""
    rows = _table(study)
    kept = _kept(rows)
    lossy = {
        at: values for at, values in kept.items() if rows[(rows["system"] == at[0])]["lossy"].any() and ":" not in at[0]
    }
    stock = {at: values for at, values in kept.items() if rows[(rows["system"] == at[0])]["tcp"].all()}
    found = []
    for claim, cells in ((STAYS, lossy), (FALLS, stock)):
        if not cells:
            found.append(not_measured(claim, SOURCES[claim], "it was not run with and without loss"))
            continue
        worst = (min if claim == STAYS else max)(cells, key=lambda at: geometric_mean(cells[at]))
        ends = [ratio_ends(values) for values in cells.values()]
        told = [low >= 1 - WITHIN if claim == STAYS else high <= 1 - WITHIN for low, high in ends]
        found.append(Finding(
            claim, SOURCES[claim],
            "speed with 1 % ÷ without: " + "; ".join(f"{observed.with_interval(values)} {name} (least timeout {rto:g} ms)" for (name, rto), values in cells.items()),
            geometric_mean(cells[worst]), f"× the speed without loss, {worst[0]}, {worst[1]:g} ms", log_interval(cells[worst]), len(cells[worst]),
            graded(all(told), any(told)),
            f"reproduced if surely {'within' if claim == STAYS else 'more than'} {WITHIN:.0%}{'' if claim == STAYS else ' slower'} at every least timeout, partly if at one",
            study.paths,
        ))  # fmt: skip
    long, short = rows[rows["rto_ms"] >= LONG_MS], rows[rows["rto_ms"] < LONG_MS]
    faster = {
        FASTER: long[long["loss"] == WORST],
        SMALL: short[short["loss"] == WORST],
        NONE: short[short["loss"] == 0],
    }
    found += [_faster(study, claim, cell) for claim, cell in faster.items()]
    found += [
        _faster(study, claim, faster[cell], lambda cell: cell["tcp"] & ~cell["marked"])
        for claim, cell in ((CUBIC, FASTER), (CUBIC_SMALL, SMALL))
    ]
    return [*found, _faster(study, EQUAL, faster[SMALL], lambda cell: ~cell["tcp"] & ~cell["lossy"], whole=True)]


def _faster(
    study: Study, claim: str, cell: pd.DataFrame, among: Callable[[pd.DataFrame], pd.Series[bool]] | None = None, *, whole: bool = False
) -> Finding:  # fmt: skip
    """Of MLT with its transport's own defaults, or with whole parameters, over the fastest TCP, or the fastest ``among`` some, a ratio a seed."""
    stock = list(dict.fromkeys(cell[cell["tcp"] if among is None else among(cell)]["system"]))
    lossy = dict.fromkeys(cell[cell["lossy"]]["system"])
    own = [name for name in lossy if (name.endswith(f":{WHOLE}") if whole else ":" not in name)]
    partial = [] if among else list(dict.fromkeys(cell[~cell["tcp"] & ~cell["lossy"]]["system"]))
    if not stock or not own:
        return not_measured(claim, SOURCES[claim], "MLT was not run beside TCP there")
    best = phases.best(cell, stock)
    gains = {name: phases.speed_ups(cell, name, own[0]) for name in (*stock, *partial)}
    return Finding(
        claim, SOURCES[claim],
        "speed-up of an iteration: " + "; ".join(f"{observed.with_interval(ratios)}× over {name}" for name, ratios in gains.items())
        + f"; of its gradients {phases.delivered_by(cell, own[0]):.1%} arrived",
        geometric_mean(gains[best]), f"× as fast as {best}", log_interval(gains[best]), len(gains[best]),
        graded(ratio_ends(gains[best])[0] > 1, geometric_mean(gains[best]) > 1.001),
        f"reproduced if surely faster than {'the fastest TCP' if among is None else best}, partly if in the mean",
        study.paths,
    )  # fmt: skip


def _kept(rows: pd.DataFrame) -> dict[tuple[str, float], list[float]]:
    """By system and least timeout: speed with the most loss ÷ without, a ratio a seed."""
    found: dict[tuple[str, float], list[float]] = {}
    for (system, rto), mine in rows.groupby(["system", "rto_ms"], sort=False):
        wide = mine.pivot_table(index="seed", columns="loss", values="iteration_s")
        if {0.0, WORST} <= set(wide.columns):
            found[str(system), float(str(rto))] = [float(v) for v in (wide[0.0] / wide[WORST]).dropna()]
    return {at: values for at, values in found.items() if values}


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
    return rows.sort_values("loss", kind="stable", ignore_index=True)


def _row(run: Run) -> dict[str, Any]:
    per = run.iterations.groupby("iteration").agg(start=("start_s", "min"), end=("end_s", "max"))
    return {
        "system": run.system, "role": run.role, "tcp": builtin_transport.plain(run.jobs[0].transport), "lossy": not run.jobs[0].by_tcp, "marked": run.jobs[0].cc.traits.needs_marks,
        "delivered": phases.delivered(run), "seed": run.seed, "rto_ms": run.plan.rto_min_ms,
        "loss": max((wire.loss for wire in run.plan.wires.values()), default=0.0), "iteration_s": float((per["end"] - per["start"]).mean()),
    }  # fmt: skip

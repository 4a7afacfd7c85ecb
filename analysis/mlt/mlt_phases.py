"""A tolerance that follows the training's phase, beside constant ones and TCP, where a link loses packets in bursts."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
import pandas as pd

from testbed.core.runs.load import LoadError, Run
from testbed.models.statistics import geometric_mean, log_interval, ratio_ends
from testbed.report import drawing, style, trainings
from testbed.report import observations as observed
from testbed.report.finding import Finding, graded, not_measured, not_measured_without
from testbed.report.study import Study

ID = "mlt-phases"
POSITION = 330
PAPER = "MLT"
TITLE = "A tolerance that follows the training"
TEXT = (
    "A small model learns over the emulated network, closed loop, while one of three workers' links loses packets in bursts. "
    "Left: the share that is missing, by round. Middle: accuracy by time; dots: 95 % of the last accuracy with nothing missing. Right: how long rounds take, in "
    "the mean (squares) and at the 99th percentile (dots: seeds), by the share of the packets that bursts lose."
)
SOONER = "A tolerance that follows the training's phase brings a training sooner to 95 % of its accuracy than a constant one."
ROUND = "In bursts of loss a round ends sooner than over TCP."
SOURCES = {
    SOONER: "DBLP, abstract: training time −24.4 % in the mean, −33.9 % at most, against its baseline",
    ROUND: "DBLP, abstract: a single round's latency 5.88 times lower in microbursts",
}
CONTROLS = {SOONER: "systems that all take as long", ROUND: "systems that all take as long"}
NEAR = 0.95  # of the last accuracy with nothing missing


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-phases.{png,pdf,csv}``; the data: a row per training and look at its accuracy."""
    rows = _table(study)
    figure, axes = style.new_figure(1, 3, figsize=(14, 4.6), width_ratios=[1, 1, 0.9])
    lost, seconds, lengths = axes[0]
    colours = dict(zip(dict.fromkeys(rows["system"]), style.JOBS, strict=False))
    shares = sorted(rows["burst"].unique())
    shown = shares[len(shares) // 2]
    for system, colour in colours.items():
        mine = rows[(rows["system"] == system) & (rows["burst"] == shown)]
        means = mine.groupby("round")[["missing", "end_s", "accuracy"]].mean()
        lost.plot(means.index, 100 * means["missing"], color=colour, label=system)
        seconds.plot(means["end_s"], 100 * means["accuracy"], color=colour)
        there = [at for at in _near_s(mine).values() if at is not None]
        if there:
            seconds.plot(np.mean(there), 100 * NEAR * mine["whole"].mean(), "o", color=colour, markersize=6)
    for place, share in enumerate(shares):
        for step, (system, colour) in enumerate(colours.items()):
            mine = rows[(rows["system"] == system) & (rows["burst"] == share)].drop_duplicates("seed")
            if mine.empty:  # not everything is run with every burst
                continue
            y = place + (step - (len(colours) - 1) / 2) * 0.8 / len(colours)
            ends = [1e3 * mine["mean_s"].mean(), 1e3 * geometric_mean(list(mine["p99_s"]))]
            lengths.plot(ends, [y, y], color=colour, linewidth=1.5)
            lengths.plot(ends[0], y, "s", color=colour, markersize=7)
            lengths.plot(1e3 * mine["p99_s"], [y] * len(mine), "o", color=colour, markersize=3.5, alpha=0.6)
    drawing.plain_log(lengths.xaxis)
    lengths.set_yticks(range(len(shares)), [f"{share:.0%}" for share in shares])
    lengths.set_ylim(len(shares) - 0.5, -0.5)
    lengths.grid(visible=False, axis="y")
    lost.set(
        xlabel="round", ylabel="missing of gradients (%)", title=f"Missing, bursts lose {shown:.0%}", ylim=(0, None)
    )
    seconds.set(xlabel="time (s)", ylabel="accuracy (%)", title=f"By time, bursts lose {shown:.0%}")
    lengths.set(xlabel="time of a round (ms)", ylabel="lost in bursts", title="Rounds")
    figure.legend(*lost.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=9)
    one = study.runs[0]
    drawing.caption(
        figure,
        f"{drawing.count(len(one.jobs[0].hosts) - 1, 'worker')} and a server, {drawing.setting(one)}; {drawing.count(rows['seed'].nunique(), 'seed')}.",
        f"{trainings.described(one)}; holes are zeros. A phase is ours: DBLP's rule is not known to us.",
    )
    return drawing.save(figure, rows, out, ID)


@not_measured_without(SOURCES)
def find(study: Study) -> list[Finding]:
    """Two findings: the time to 95 % of the accuracy, and the longest rounds, by how much bursts lose."""
    rows = _table(study)
    return [_sooner(study, rows), _round(study, rows)]


def _sooner(study: Study, rows: pd.DataFrame) -> Finding:
    found = {
        share: sooner
        for share in sorted(set(rows["burst"]))
        if (sooner := _how_soon(rows[rows["burst"] == share])) is not None
    }
    if not found:
        return not_measured(SOONER, SOURCES[SOONER], "no tolerance that follows a phase was run beside a constant one")
    there = {share: sooner for share, sooner in found.items() if sooner.ratios}
    most = max(there, key=lambda share: (len(there[share].ratios), geometric_mean(there[share].ratios)), default=None)
    best = [] if most is None else there[most].ratios
    surely = all(len(each.ratios) == each.seeds and ratio_ends(each.ratios)[0] > 1 for each in found.values())
    return Finding(
        SOONER, SOURCES[SOONER],
        f"time to {NEAR:.0%} of the last accuracy with nothing missing, "
        + "; ".join(f"where bursts lose {share:.0%}: {each.said}" for share, each in found.items()),
        geometric_mean(best) if best else None,
        f"× as soon as with the best constant tolerance, bursts of {most:.0%}" if best else "",
        log_interval(best) if best else None, len(best),
        graded(surely, bool(best) and geometric_mean(best) > 1.001),
        "reproduced if surely sooner in every seed whatever bursts lose, partly if in the mean of those that come there somewhere",
        study.paths,
    )  # fmt: skip


@dataclass(frozen=True)
class _Sooner:
    """The best constant tolerance's time ÷ that of the best one that follows a phase, by seed where both come there; of so many seeds."""

    ratios: list[float]
    seeds: int
    said: str


def _how_soon(rows: pd.DataFrame) -> _Sooner | None:
    times = {(kind, system): _near_s(mine) for (kind, system), mine in rows.groupby(["kind", "system"], sort=False)}
    own, constant = ([name for name in times if name[0] == kind] for kind in ("phase", "constant"))
    if not own or not constant:
        return None
    best, beside = (
        min(names, key=lambda name: float(np.mean([inf if at is None else at for at in times[name].values()])))
        for names in (own, constant)
    )
    ratios = [other / at for seed, at in times[best].items() if at and (other := times[beside].get(seed))]
    said = ", ".join(
        f"{system} {drawing.count(sum(at is not None for at in each.values()), 'seed')} there"
        + (f" ({np.mean(there):.2f} s)" if (there := [at for at in each.values() if at is not None]) else "")
        for (_, system), each in times.items()
    )
    compared = observed.with_interval(ratios) if ratios else "never there"
    return _Sooner(
        ratios, len(times[best]), f"{said}, the best constant tolerance's ({beside[1]}) ÷ that of {best[1]}: {compared}"
    )


def _round(study: Study, rows: pd.DataFrame) -> Finding:
    runs = rows.drop_duplicates(["burst", "system", "seed"])
    reliable, lossy = (runs[(runs["kind"] == "reliable") == whole] for whole in (True, False))
    stock = dict(zip(zip(reliable["burst"], reliable["seed"], strict=True), reliable["p99_s"], strict=True))
    longest: dict[tuple[float, str], list[float]] = {}
    for share, system, seed, own in zip(*(lossy[name] for name in ("burst", "system", "seed", "p99_s")), strict=True):
        if (share, seed) in stock:
            longest.setdefault((share, system), []).append(stock[share, seed] / own)
    if not longest:
        return not_measured(ROUND, SOURCES[ROUND], "MLT was not run beside TCP")
    shares = sorted({share for share, _ in longest})
    best = [
        max((name for name in longest if name[0] == share), key=lambda name: geometric_mean(longest[name]))
        for share in shares
    ]
    most = max(best, key=lambda name: (len(longest[name]), geometric_mean(longest[name])))
    return Finding(
        ROUND, SOURCES[ROUND],
        "99th percentile of a round's time, TCP's ÷ MLT's, "
        + "; ".join(
            f"where bursts lose {share:.0%}: "
            + ", ".join(f"{observed.with_interval(values)} {name[1]}" for name, values in longest.items() if name[0] == share)
            for share in shares
        ),
        geometric_mean(longest[most]), f"× as short as over TCP, {most[1]}, bursts of {most[0]:.0%}", log_interval(longest[most]), len(longest[most]),
        graded(
            all(ratio_ends(longest[name])[0] > 1 for name in best),
            any(geometric_mean(longest[name]) > 1.001 for name in best),
        ),
        "reproduced if surely shorter whatever bursts lose, by the best of the tolerances; partly if in the mean somewhere",
        study.paths,
    )  # fmt: skip


def _near_s(rows: pd.DataFrame) -> dict[int, float | None]:
    """By seed: when a training first was near the last accuracy of the one with nothing missing; None: never."""
    found: dict[int, float | None] = {}
    for seed, mine in rows.groupby("seed"):
        there = mine[mine["accuracy"] >= NEAR * mine["whole"]]
        found[int(str(seed))] = float(there["end_s"].min()) if len(there) else None
    return found


def _table(study: Study) -> pd.DataFrame:
    """``burst, system, kind, role, seed, round, end_s, accuracy, whole, missing, mean_s, p99_s``; raises `LoadError` where nothing fits."""
    runs = [run for run in study.runs if trainings.model(run)]
    curves = [trainings.learnt(run) for run in runs]
    whole = {
        (_burst(run), run.seed): float(curve["accuracy"].iloc[-1])
        for run, curve in zip(runs, curves, strict=True)
        if run.jobs[0].by_tcp
    }
    both = [(run, curve) for run, curve in zip(runs, curves, strict=True) if (_burst(run), run.seed) in whole]
    if len({_kind(run) for run, _ in both}) < 2:
        raise LoadError(f"{ID}: there are no trainings over MLT beside others; run experiments/{ID}.toml")
    return pd.concat([_rows(run, curve, whole[_burst(run), run.seed]) for run, curve in both], ignore_index=True)


def _burst(run: Run) -> float:
    """Which share of the packets is lost within bursts."""
    return max((wire.loss for wire in run.plan.wires.values()), default=0.0)


def _kind(run: Run) -> str:
    if run.jobs[0].by_tcp:
        return "reliable"
    return "phase" if trainings.follows(run) else "constant"


def _rows(run: Run, curve: pd.DataFrame, whole: float) -> pd.DataFrame:
    times = np.diff(run.iterations.groupby("iteration")["end_s"].max().to_numpy())
    return curve.assign(
        burst=_burst(run), system=run.system, kind=_kind(run), role=run.role, seed=run.seed, whole=whole, mean_s=float(times.mean()),
        p99_s=float(np.percentile(times, 99)),
    )  # fmt: skip

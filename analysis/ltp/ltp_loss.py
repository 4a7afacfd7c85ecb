"""LTP over paths that lose packets at random: loss × round-trip time, against every TCP, and against itself without loss."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.report import drawing, phases, redrawing, style
from testbed.report.figures import Tables
from testbed.report.study import Study

ID = "ltp-loss"
POSITION = 220
TITLE = "Over paths that lose, LTP gains 1.0 to 1.6 times over the fastest TCP from 10 ms round trip on, up to 4.4 times below"
TEXT = (
    "Above: mean iteration relative to the ideal (logarithmic), one row for each rate, one column for each round-trip time. Below: the speed of LTP "
    "relative to the fastest stock TCP. LTP can beat the ideal: it delivers less. LTP that delivers everything shows what its rate control gains alone. Open: minimum RTO 5 ms instead of 200 ms."
)
LONG_MS = 200.0
CELL = ["rate_bps", "rtt_ms", "rto_ms"]
BELOW_LONG = 0.18  # where a small timeout is drawn, in steps between two losses
STOCK = (("reno", style.JOBS[1], "s"), ("cubic", style.JOBS[3], "v"), ("bbr", style.JOBS[2], "^"))
KINDS = (("own", style.JOBS[0], "o", "LTP"), ("whole", style.JOBS[4], "D", "LTP, delivers everything"))
GAINS = (1, 1.5, 2, 3, 4)
LINES = ("-", "--", ":")  # of rates


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``ltp-loss.{png,pdf,csv}``; the data: a row per run."""
    rows = phases.table(study)
    job = study.runs[0].jobs[0]
    note = (
        f"{drawing.count(len(job.hosts) - 1, 'worker')} and a server; {drawing.count(rows['seed'].nunique(), 'seed')} (dots), means, 95 % intervals; "
        f"{drawing.count(job.iterations, 'iteration')}; {drawing.backend(study.runs[0])}."
    )
    return redrawing.publish(plot, {ID: rows.assign(complete=_complete(rows))}, note, out)


def plot(tables: Tables) -> Any:
    """A column a round-trip time; a row a rate, and one of LTP's speed relative to the fastest stock TCP."""
    rows = tables[ID]
    losses = sorted(rows["loss"].unique())
    small = rows["rto_ms"] < LONG_MS
    rows = rows.assign(
        x=rows["loss"].map(losses.index) + BELOW_LONG * small, ratio=rows["iteration_s"] / rows["ideal_s"]
    )
    rates, trips = sorted(rows["rate_bps"].unique(), reverse=True), sorted(rows["rtt_ms"].unique())
    figure, axes = style.new_figure(
        len(rates) + 1, len(trips), figsize=(1 + 2.75 * len(trips), 1 + 2.8 * (len(rates) + 1)), sharex=True, sharey="row"
    )  # fmt: skip
    for column, trip in zip(axes.T, trips, strict=True):
        column[0].set_title(f"round trip {trip:g} ms")
        column[-1].set_xlabel("random loss (%)")
        for rate, axis, line in zip(rates, column, LINES, strict=False):
            here = rows[(rows["rate_bps"] == rate) & (rows["rtt_ms"] == trip)]
            for system, colour, marker in STOCK:
                _line(axis, here[here["system"] == system], "ratio", colour, marker, system)
            for kind, colour, marker, name in KINDS:
                _line(axis, here[here[kind]], "ratio", colour, marker, name)
                _line(
                    column[-1], _gains(here, kind), "gain", colour, marker, f"{name}, {drawing.rate(int(rate))}", line
                )
            axis.axhline(1, color=style.REFERENCE, linewidth=0.8)
        column[-1].axhline(1, color="black", linewidth=0.8)
    for rate, axis in zip(rates, axes[:, 0], strict=False):
        drawing.plain_log(axis.yaxis)
        axis.set_ylabel(f"iteration ÷ ideal\n{drawing.rate(int(rate))}")
    axes[-1, 0].set_ylabel("× the fastest stock TCP")
    axes[-1, 0].set_xticks(range(len(losses)), [f"{100 * loss:g}" for loss in losses])
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=9)
    axes[-1, -1].legend(fontsize=7.5)
    drawing.plain_log(axes[-1, 0].yaxis)
    axes[-1, 0].set_yticks(GAINS, map(str, GAINS))
    return figure


def _line(axis: Any, rows: pd.DataFrame, y: str, colour: str, marker: str, name: str, line: str = "-") -> None:
    """Means joined by a line, of the kernel's own minimum RTO; open markers for a small one."""
    long = rows["rto_ms"] >= LONG_MS
    drawing.trend(axis, rows[long], "x", y, colour, label=name, marker=marker, line=line)
    for x, mine in rows[~long].groupby("x"):
        drawing.seeds(axis, float(str(x)), list(mine[y]), colour, width=0.01)
        axis.plot(x, mine[y].mean(), marker, markersize=6, color=colour, markerfacecolor="white", zorder=5)


def _gains(rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The fastest stock TCP's iteration ÷ that of a kind of LTP, by loss, minimum RTO and seed."""
    found = []
    for _, cell in rows.groupby(["loss", "rto_ms"]):
        base = cell[cell["system"] == phases.best(cell, phases.tcp(cell))].set_index("seed")["iteration_s"]
        mine = cell[cell[kind]].set_index("seed", drop=False)
        found.append(mine.assign(gain=base / mine["iteration_s"]).dropna(subset="gain"))
    return pd.concat(found, ignore_index=True)


def _complete(rows: pd.DataFrame) -> pd.Series[bool]:
    """Whether no stock TCP is missing in a run's cell that most cells have: else the fastest is not known."""
    keys = [*CELL, "loss"]
    cells = {at: set(phases.tcp(cell)) for at, cell in rows.groupby(keys) if cell["own"].any()}
    counts = Counter(base for bases in cells.values() for base in bases)
    usual = {base for base, count in counts.items() if 2 * count > len(cells)}
    return pd.Series([usual <= cells.get(tuple(at), set()) for at in rows[keys].to_numpy().tolist()], index=rows.index)

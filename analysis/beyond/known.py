"""Known curves: stock protocols of this testbed next to published curves; `mltcp doctor --curves` has a short form of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from testbed.report import drawing, known_curves, style
from testbed.report.study import Study

ID = "known"
POSITION = 18
TITLE = "Stock protocols follow their published curves, but RED marks 25 to 35 % more with few flows"
TEXT = (
    "Stock congestion controls and queues (dots: seeds and their mean) next to published formulas (line; band: tolerance), without MLTCP. "
    "Losses that are random, not periodic, give Reno 1.31 ÷ √p, which is within the band."
)
COLUMNS = 4
STEEP = 3  # largest measured value ÷ smallest from which the axis is logarithmic


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``known.{png,pdf,csv}`` (a row per run) and ``known-goodput.csv`` (a row per incast)."""
    table, goodput = known_curves.table(study), known_curves.goodput(study)
    found = [name for name in known_curves.CURVES if name in set(table["curve"])]
    lines = -(-(len(found) + (not goodput.empty)) // COLUMNS)
    figure, axes = style.new_figure(lines, COLUMNS, figsize=(3.5 * COLUMNS, 3.4 * lines))
    places = list(axes.ravel())
    for name, axis in zip(found, places, strict=False):
        _curve(axis, table[table["curve"] == name], known_curves.CURVES[name])
    if not goodput.empty:
        _goodput(places[len(found)], goodput)
    for axis in places[len(found) + (not goodput.empty) :]:
        axis.set_axis_off()
    drawing.caption(
        figure,
        f"{drawing.count(table['seed'].nunique(), 'seed')}; {drawing.backend(study.runs[0])}. Formulas use what was configured. "
        "Those of RED and incast use the measured queue and the measured number of stalled blocks. The factor 1.23 of CUBIC and the tolerances of RED and BBR were set after the first seed.",
    )
    return [*drawing.save(figure, table, out, ID), *drawing.write_tables({f"{ID}-goodput": goodput}, out)]


def _curve(axis: Any, rows: pd.DataFrame, curve: known_curves.Curve) -> None:
    expected = rows.groupby("x")["expected"].mean()
    low, high = (expected * (1 + sign * curve.tolerance) for sign in (-1, 1))
    axis.fill_between(expected.index, low, high, color=style.REFERENCE, alpha=0.15, linewidth=0)
    axis.plot(
        expected.index, expected, color=style.REFERENCE, linewidth=1.4, marker="_", markersize=12, label=curve.formula
    )
    drawing.trend(axis, rows, "x", "measured", drawing.MLTCP, label="measured", ratios=False)
    axis.lines[-1].set_linestyle("")
    if rows["x"].max() > 10 * rows["x"].min():
        drawing.plain_log(axis.xaxis)
    if rows["measured"].max() > STEEP * rows["measured"].min() and rows["x"].max() > 10 * rows["x"].min():
        drawing.plain_log(axis.yaxis)
    else:
        axis.set_ylim(0, 1.25 * max(float(rows["measured"].max()), float(high.max())))
    axis.set(xlabel=curve.x, ylabel=curve.y, title=curve.title)
    axis.legend(fontsize=7.5, loc="best")


def _goodput(axis: Any, rows: pd.DataFrame) -> None:
    for (rto_ms, mine), colour, marker in zip(rows.groupby("rto_ms"), style.JOBS, "so", strict=False):
        drawing.trend(
            axis, mine, "senders", "goodput", colour, marker=marker, label=f"minimum RTO {rto_ms:g} ms", ratios=False
        )
    axis.set_ylim(0, 1.25)
    axis.set(xlabel="senders", ylabel="goodput ÷ link", title="Incast: collapse and cure")
    axis.legend(fontsize=7.5, loc="best")

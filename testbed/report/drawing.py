"""Shared elements of figures: seeds and their mean, colours of congestion controls, captions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from testbed.core import folders
from testbed.core import text as text_of
from testbed.core.runs.load import Run
from testbed.core.runs.plan import Link
from testbed.core.units import Duration, rate_text, size_text
from testbed.models.statistics import estimate_ratio, interval, mean, median
from testbed.report import style

BASE, MLTCP = style.JOBS[1], style.JOBS[0]
ARMS = {"base": BASE, "placebo": style.JOBS[7], "paper": style.JOBS[2], "recommended": MLTCP}  # colours
LETTERS_AN_INCH = 15  # of small print


def colour(*, treatment: bool) -> str:
    """Return the colour of treatments (MLTCP on any base), or that of their references."""
    return MLTCP if treatment else BASE


rate, size, count = rate_text, size_text, text_of.count  # as in all figures


def seeds(
    axis: Any, x: float, values: Sequence[float], colour: str, *, width: float = 0.2, label: str | None = None,
    ratios: bool = True,
) -> None:  # fmt: skip
    """One dot a seed side by side within ``width``, their mean as a bar, its 95 % interval as a line; of ``ratios``
    by their logarithms."""
    if not len(values):
        return
    spread = np.linspace(-0.35, 0.35, len(values)) * width if len(values) > 1 else np.zeros(len(values))
    axis.plot(x + spread, values, "o", markersize=3.5, markeredgewidth=0, color=colour, alpha=0.45, zorder=3)
    found = estimate_ratio(values) if ratios else mean(values)
    axis.hlines(found.value, x - width / 2, x + width / 2, color=colour, linewidth=2.2, label=label, zorder=4)
    if found.interval:
        axis.vlines(x, *found.interval, color=colour, linewidth=1.3, zorder=4)


def trend(
    axis: Any, table: pd.DataFrame, x: str, y: str, colour: str, *, label: str | None = None, marker: str = "o",
    ratios: bool = True, line: str = "-",
) -> None:  # fmt: skip
    """``y`` over ``x``: one small dot a seed (a row each), the means joined by a line, their 95 % intervals as bars; of
    ``ratios`` by their logarithms."""
    axis.plot(table[x], table[y], marker, markersize=3.5, markeredgewidth=0, color=colour, alpha=0.35, zorder=3)
    found = {at: (estimate_ratio if ratios else mean)(list(rows)) for at, rows in table.groupby(x)[y]}
    means = [each.value for each in found.values()]
    axis.plot(
        list(found),
        means,
        linestyle=line,
        marker=marker,
        markersize=5,
        linewidth=1.4,
        color=colour,
        label=label,
        zorder=4,
    )
    for at, each in found.items():
        if each.interval:
            axis.vlines(at, *each.interval, color=colour, linewidth=3, alpha=0.4, zorder=2)


def across(
    axis: Any, y: float, values: Sequence[float], colour: str, *, marker: str = "o", fill: bool = True, ratios: bool = True,
    label: str | None = None,
) -> None:  # fmt: skip
    """Draw one row from left to right: a pale dot per seed, their mean as a marker, its 95 % interval as a line (see
    `seeds`)."""
    if not len(values):
        return
    axis.plot(
        values, np.full(len(values), y), marker, markersize=3, markeredgewidth=0, color=colour, alpha=0.35, zorder=3
    )
    found = estimate_ratio(values) if ratios else mean(values)
    face = colour if fill else "white"
    axis.plot(found.value, y, marker, markersize=6, color=colour, markerfacecolor=face, label=label, zorder=5)
    if found.interval:
        axis.hlines(y, *found.interval, color=colour, linewidth=2, alpha=0.6, zorder=4)


def plain_log(axis: Any) -> None:
    """A logarithmic scale (an x or y axis) with plain numbers at 1 and 3 of each decade."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: text_of.decimal(value, 6)))
    axis.set_minor_locator(NullLocator())


def caption(figure: Any, *lines: str) -> None:
    """Small print below a figure, no wider than it."""
    wide = int(figure.get_figwidth() * LETTERS_AN_INCH)
    text = "\n".join(textwrap.fill(line, wide) for line in lines)
    figure.text(0.01, -0.01, text, va="top", fontsize=8, color=style.REFERENCE, gid=style.NOTE, label="\n".join(lines))


def setting(*runs: Run) -> str:
    """Network and backend in one line; of several runs every link, and the rest of the first."""
    links = dict.fromkeys(_link(run) for run in runs)
    return f"{runs[0].plan.topology}, {' or '.join(links)}; {backend(runs[0])}"


def backend(run: Run) -> str:
    """The backend of a run: ``uml, Linux 6.12.117``; a model has no kernel."""
    if is_model(run):
        return f"{run.manifest.backend}, a model without packets"
    return f"{run.manifest.backend}, {run.manifest.kernel.split(' #')[0]}"


def is_model(run: Run) -> bool:
    """Return True if the flow simulator computed the run, without queues, packets, and acknowledgements."""
    return run.manifest.clock == "model"


def _link(run: Run) -> str:
    if is_model(run):
        return link_rate(run)
    link, nic_bps = run.plan.link, run.plan.sender.nic_bps
    nics = (
        "NICs unshaped"
        if not nic_bps
        else "NICs at link rate"
        if nic_bps == link.rate_bps
        else f"NICs of {rate(nic_bps)}"
    )
    return f"{link_rate(run)} ({queue(run)}, MTU {link.mtu:,}, {nics}{wires(run)})"


def link_rate(run: Run, name: str | None = None) -> str:
    """The rate of the bottleneck ``name``; None: of all, the lowest and the highest if they are several."""
    return _range([rate(link.rate_bps) for link in _bottlenecks(run, name)])


def queue(run: Run, name: str | None = None) -> str:
    """The buffer of the bottleneck ``name``, and from where on it marks or drops; None: of all, as in `link_rate`."""
    return _range([_queue(link) for link in _bottlenecks(run, name)])


def _bottlenecks(run: Run, name: str | None) -> list[Link]:
    """Bottlenecks by rate; a link of a topology may override the experiment's rate and buffer."""
    shaped = run.plan.bottlenecks
    found = [shaped[name]] if name in shaped else list(shaped.values()) or [run.plan.link]
    return sorted(found, key=lambda link: (link.rate_bps, link.buffer_bytes))


def _range(texts: Sequence[str]) -> str:
    different = list(dict.fromkeys(texts))
    return different[0] if len(different) == 1 else f"{different[0]} to {different[-1]}"


def _queue(link: Link) -> str:
    if link.queue is not None:
        return f"{link.queue.typed}, {'ECN marks' if link.marks else 'drops'}, buffer {size(link.buffer_bytes)}"
    threshold = "drop-tail" if link.ecn_threshold is None else f"ECN marks from {size(link.ecn_threshold.min_bytes)}"
    return f"buffer {size(link.buffer_bytes)}, {threshold}"


def wires(run: Run) -> str:
    """The effect of wires on packets, after a comma: the largest of any; empty if there is none."""
    every = list(run.plan.wires.values())
    delay_ns, loss = (max((getattr(wire, name) for wire in every), default=0) for name in ("delay_ns", "loss"))
    return (f", delay {Duration(delay_ns)}" if delay_ns else "") + (
        f", random loss {text_of.decimal(loss * 100)} %" if loss else ""
    )


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write the data behind a figure as CSV; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = table.map(_no_formula).rename(columns=_no_formula).to_csv(index=False, float_format="%.6g")
    folders.put(path, written.encode())


def _no_formula(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def save(figure: Any, table: pd.DataFrame, out: Path, id: str) -> list[Path]:
    """Write ``<id>.png``, ``.pdf`` and the data behind them, ``.csv``."""
    return [*style.save(figure, out / id), *write_tables({id: table}, out)]


def write_tables(tables: Mapping[str, pd.DataFrame], out: Path) -> list[Path]:
    """Write ``NAME.csv`` for each: the data that claims are measured from, in addition to the figure's own."""
    for name, table in tables.items():
        write_table(table, out / f"{name}.csv")
    return [out / f"{name}.csv" for name in tables]


def bundle(axis: Any, table: pd.DataFrame, colour: str, label: str, *, band: bool = True) -> None:
    """Draw a thin line per column (seed) over the index, their mean, and its 95 % interval as a band (if ``band``)."""
    axis.plot(table.index, table, color=colour, linewidth=0.5, alpha=0.35, zorder=2)
    axis.plot(table.index, table.mean(axis="columns"), color=colour, linewidth=2, label=label, zorder=4)
    if not band:
        return
    bands = [interval(row.dropna()) or (np.nan, np.nan) for _, row in table.iterrows()]
    low, high = np.transpose(bands)
    axis.fill_between(table.index, low, high, color=colour, alpha=0.15, linewidth=0, zorder=1)


def medians(
    axis: Any, x: float, values: Sequence[float], never: float, colour: str, *, width: float = 0.2, marker: str = "o",
    label: str | None = None,
) -> None:  # fmt: skip
    """One dot a seed, those that are infinite at ``never``; the median as a bar, its 95 % interval as a line."""
    if not len(values):
        return
    shown = np.minimum(values, never)
    spread = np.linspace(-0.45, 0.45, len(shown)) * width if len(shown) > 1 else np.zeros(len(shown))
    axis.plot(x + spread, np.sort(shown), marker, markersize=3.5, markeredgewidth=0, color=colour, alpha=0.5, zorder=3)
    found = median(values)
    axis.hlines(
        min(found.value, never), x - width / 2, x + width / 2, color=colour, linewidth=2.2, label=label, zorder=4
    )
    if found.interval:
        axis.vlines(x, *np.minimum(found.interval, never), color=colour, linewidth=1.3, zorder=4)

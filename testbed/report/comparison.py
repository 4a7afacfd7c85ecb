"""Compare two result sets, to measure the effect of a change: ``mltcp compare A B``.

Both are results folders (experiments are matched by name) or one experiment's folder each. For every experiment and
congestion control in both: B ÷ A of the iteration times with 95 % intervals. They are paired by seed if at least three
seeds match (random effects of a seed cancel out), else treated as independent samples (Welch). Different plans are
compared, too, and the differences are listed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator
from rich.text import Text

from testbed.core.runs import measured, metrics
from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.core.terminal import Cell, Column, Sheet
from testbed.core.text import plain
from testbed.models import statistics
from testbed.models.statistics import FEWEST_SEEDS, Estimate
from testbed.report import drawing, style
from testbed.report.agreement import differences
from testbed.report.study import experiments, load_folder

METRICS: dict[str, Callable[[Run], float]] = {
    "mean": lambda run: float(metrics.pooled(run.times).mean()),
    "p99": lambda run: float(np.percentile(metrics.pooled(run.times), 99)),
    "last ten": measured.last10_mean_s,
}
MOST_ROWS = 60  # of the figure


@dataclass(frozen=True)
class Row:
    """One experiment and congestion control in both: B ÷ A by metric, its effect size (Cliff's δ of B over A: −1, every seed of B is
    below every one of A; 0: no difference), and in how many seeds each interleaves."""

    experiment: str
    cc: str
    ratios: dict[str, Estimate]
    effects: dict[str, float]
    paired: bool
    interleaved: tuple[tuple[int, int], tuple[int, int]]  # (how many, of how many) in A and in B


@dataclass(frozen=True)
class Comparison:
    """The common rows of two result sets, and notes on their differences."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def compare(a: Path, b: Path) -> Comparison:
    """Compare results in ``a`` and ``b``. Raises `LoadError` if the two have no common experiment and system."""
    notes: list[str] = []
    first, second = _experiments(a, notes), _experiments(b, notes)
    if len(first) == 1 and len(second) == 1 and first.keys() != second.keys():
        second = {next(iter(first)): next(iter(second.values()))}
    rows = []
    for name, before in first.items():
        if name not in second:
            notes.append(f"{name} is in {a} alone.")
            continue
        after = second[name]
        if what := differences(before, after):
            notes.append(f"{name}: the plans are not the same: {'; '.join(what)}.")
        rows += [_row(name, cc, before, after) for cc in before.systems if cc in after.systems]
        alone = [cc for cc in (*before.systems, *after.systems) if (cc in before.systems) != (cc in after.systems)]
        if alone:
            notes.append(f"{name}: only one of the two has {', '.join(alone)}.")
    notes += [f"{name} is in {b} alone." for name in second if name not in first]
    if not rows:
        raise LoadError(
            f"{a} and {b} have no experiment and congestion control in common. Name results of the same experiments. "
            + " ".join(notes)
        )
    return Comparison(tuple(rows), tuple(notes))


def _experiments(folder: Path, notes: list[str]) -> dict[str, Experiment]:
    """By name: the experiment that ``folder`` is, or those below it."""
    if not folder.is_dir():
        raise LoadError(f"there is no folder {folder}")
    here = any(folder.glob("*/[0-9]*/manifest.json"))
    found = {}
    for name, path in ({folder.name: folder} if here else experiments(folder)).items():
        experiment, problems = load_folder(path)
        notes += problems
        if experiment is not None:
            found[name] = experiment
    if not found:
        raise LoadError(f"{folder} holds no experiment that can be read. `mltcp run` makes one. " + " ".join(notes))
    return found


def _row(name: str, cc: str, first: Experiment, second: Experiment) -> Row:
    a, b = ({run.seed: run for run in each.runs_of(cc)} for each in (first, second))
    paired = len(a.keys() & b.keys()) >= FEWEST_SEEDS
    ratios, effects = {}, {}
    for what, metric in METRICS.items():
        before, after = ({seed: metric(run) for seed, run in runs.items()} for runs in (a, b))
        ratios[what] = (
            statistics.ratio(after, before) if paired
            else statistics.ratio_of_independent(list(after.values()), list(before.values()))
        )  # fmt: skip
        effects[what] = statistics.cliffs_delta(list(after.values()), list(before.values()))
    return Row(name, cc, ratios, effects, paired, (_interleaved(first, cc), _interleaved(second, cc)))


def _interleaved(experiment: Experiment, cc: str) -> tuple[int, int]:
    """In how many runs jobs interleave, of those where that is known."""
    at = [measured.interleaved_at(experiment, run) for run in experiment.runs_of(cc)]
    known = [one for one in at if not np.isnan(one)]
    return sum(one < np.inf for one in known), len(known)


def differs(found: Estimate) -> bool:
    """Return True if the interval of a ratio excludes 1."""
    return found.interval is not None and not found.interval[0] <= 1 <= found.interval[1]


def table(found: Comparison, a: str, b: str) -> Sheet:
    """Return a table for the terminal: a row per experiment and congestion control; differences are bold."""
    columns = [Column("experiment"), Column("system"), *(Column(heading, right=True) for heading in METRICS)]
    columns += [Column("δ of the\nmean", right=True), Column("seeds"), Column("interleaved\nA, B")]
    rows: list[list[Cell]] = [
        [
            plain(row.experiment), plain(row.cc), *(_cell(one) for one in row.ratios.values()), f"{row.effects['mean']:+.2f}",
            f"{row.ratios['mean'].n}{' paired' if row.paired else ''}",
            ", ".join(f"{count}/{of}" if of else "–" for count, of in row.interleaved),
        ]
        for row in found.rows
    ]  # fmt: skip
    return Sheet(columns, rows, f"B ÷ A of iteration times; A: {a}, B: {b}", names=2)


def reading(found: Comparison) -> str:
    """The conclusion, in one line."""
    judged = [one for row in found.rows for one in row.ratios.values() if one.interval is not None]
    if not judged:
        return "Too few seeds for intervals (three at the least): a difference cannot be told from chance."
    different = sum(differs(one) for one in judged)
    return (
        f"{different} of {len(judged)} ratios differ from 1 at 95 % (bold); if nothing had changed, about "
        f"{0.05 * len(judged):.0f} would, by chance."
    )


def _cell(found: Estimate) -> Text:
    text = f"{found.value:.3f}"
    if found.interval is not None:
        text += f"\n{found.interval[0]:.3f}–{found.interval[1]:.3f}"
    return Text(text, style="bold" if differs(found) else "")


def draw(found: Comparison, out: Path, a: str, b: str) -> list[Path]:
    """Write ``comparison.{png,pdf,csv}``: every ratio with its interval; of many rows those that differ most."""
    data = pd.DataFrame(
        [
            {
                "experiment": row.experiment, "cc": row.cc, "metric": what, "ratio": one.value,
                "low": one.interval[0] if one.interval else np.nan, "high": one.interval[1] if one.interval else np.nan,
                "cliffs_delta": row.effects[what], "seeds": one.n, "paired": row.paired,
            }
            for row in found.rows
            for what, one in row.ratios.items()
        ]
    )  # fmt: skip
    shown = sorted(found.rows, key=lambda row: -abs(np.log(row.ratios["mean"].value)))[:MOST_ROWS]
    shown = [row for row in found.rows if row in shown]
    figure, axes = style.new_figure(
        1, len(METRICS), figsize=(3.6 * len(METRICS) + 2.4, 1.4 + 0.34 * len(shown)), sharey=True
    )
    for axis, what in zip(axes[0], METRICS, strict=True):
        for y, row in enumerate(shown):
            one = row.ratios[what]
            colour = style.JOBS[1] if differs(one) else style.JOBS[0]
            axis.plot(one.value, y, "o", color=colour, markersize=5)
            if one.interval:
                axis.hlines(y, *one.interval, color=colour, linewidth=1.6)
        axis.axvline(1, color=style.REFERENCE, linewidth=0.8, linestyle="--")
        axis.set(title=what, xlabel="B ÷ A")
        axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes[0, 0].set_yticks(range(len(shown)), [f"{plain(row.experiment)}\n{plain(row.cc)}" for row in shown], fontsize=7)
    axes[0, 0].set_ylim(len(shown) - 0.4, -0.6)
    rest = f"; the {len(shown)} of {len(found.rows)} rows that differ most" if len(shown) < len(found.rows) else ""
    drawing.caption(
        figure, f"A: {a}, B: {b}; iteration times, 95 % intervals over seeds; orange: the interval leaves out 1{rest}"
    )
    return drawing.save(figure, data, out, "comparison")

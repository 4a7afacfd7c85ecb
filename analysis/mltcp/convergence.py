"""From any start, with any number of jobs: how many iterations until all are interleaved."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator, PercentFormatter

from testbed.core.runs import measured
from testbed.core.runs.load import Run
from testbed.models import statistics
from testbed.report import drawing, fluid_comparison, style
from testbed.report.finding import Finding, Verdict, graded, not_measured
from testbed.report.study import Study

ID = "convergence"
POSITION = 130
TITLE = "How many iterations it takes, by number of jobs and start"
TEXT = (
    "Jobs that just fit on the link (96 % of it), begun anywhere in an iteration or, the hard case, all within 5 % of one. Left, the first "
    "iteration from which every job stays within 5 % of its time alone: one dot a start, the bar is the median, its line the 95 % interval; "
    "dots at the top never got there in this run. Diamonds: the median of the fluid twin for the same starts (shares ∝ √F). "
    "Right, the share of random starts that are interleaved from an iteration on; the base, which knows of no iterations: what it reaches is luck."
)
SOON = "Jobs interleave within a few iterations."
SOON_SOURCE = "paper, abstract [published; “a few” is not a number]"
ANY = "That happens independently of the number of competing flows and of their start times."
ANY_SOURCE = "paper, abstract [published]"
TWIN_CLAIM = "A fluid model (shares ∝ √F) tells how many iterations it takes."
TWIN_SOURCE = "derived here"
FEW = 20
Cell = tuple[int, int, str]  # jobs, flows of each, start
OVERLAPPED = 0.051  # of an iteration: starts no further apart than this
STARTS = {"uniform": "begun anywhere", "overlapped": "begun together"}
COLOURS = {  # by whether it is MLTCP, and start
    (True, "uniform"): drawing.MLTCP, (True, "overlapped"): style.JOBS[4], (False, "uniform"): drawing.BASE,
    (False, "overlapped"): style.JOBS[5],
}  # fmt: skip
BELOW: dict[str, Any] = {"fontsize": 8, "ncols": 3, "loc": "upper center", "bbox_to_anchor": (0.5, -0.17)}
CONTROLS = {
    SOON: "shares that do not follow F (fluid model, exponent 0)",
    ANY: "shares that do not follow F (fluid model, exponent 0)",
    TWIN_CLAIM: "runs that interleave ten iterations after the twin",
}
LINES = ("-", "--", ":", "-.")  # of numbers of jobs


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``convergence.{png,pdf,csv}``."""
    if not study.experiments:
        return []
    table = _table(study)
    figure, axes = style.new_figure(1, 2, figsize=(13.0, 5.2), width_ratios=(1.25, 1))
    _by_number(axes[0, 0], table)
    _by_iteration(axes[0, 1], table)
    counts = ", ".join(
        f"{rows['seed'].nunique()} {STARTS[str(start)]}" for start, rows in table.groupby("start", sort=False)
    )
    drawing.caption(figure, f"{drawing.setting(study.runs[0])}; starts (seeds) per number of jobs, at most: {counts}")
    return drawing.save(figure, table, out, ID)


def find(study: Study) -> list[Finding]:
    """Three findings: how soon, whether it depends on number and start, and how well the fluid twin tells."""
    claims = ((SOON, SOON_SOURCE), (ANY, ANY_SOURCE), (TWIN_CLAIM, TWIN_SOURCE))
    table = _table(study)
    rows = table[table["mltcp"].astype(bool)].dropna(subset="at")  # unknown: the jobs' times alone are missing
    if rows.empty:
        why = "there are no results of MLTCP, or none of its jobs alone"
        return [not_measured(claim, source, why) for claim, source in claims]
    paths = tuple(run.path for run in study.runs)
    return [_soon(rows, table, paths), _any(rows, table, paths), _agreement(rows, paths)]


def _soon(rows: pd.DataFrame, table: pd.DataFrame, paths: tuple[Path, ...]) -> Finding:
    found = statistics.median(rows["at"])
    within = int((rows["at"] <= FEW).sum())
    base = table[~table["mltcp"].astype(bool) & table["at"].notna()]
    alike = len(base) > 0 and float((base["at"] <= FEW).mean()) >= within / len(rows) and within > 0
    verdict = graded(within >= 0.95 * len(rows), found.value <= FEW, alike=alike)
    return Finding(
        SOON, SOON_SOURCE,
        f"{within} of {drawing.count(len(rows), 'run')} are interleaved from iteration {FEW} on or sooner; the median iteration is "
        f"{_number(found.value)} (the first two are spent learning)",
        found.value, "iterations until interleaved, median of all runs", found.interval, int(rows["seed"].nunique()), verdict,
        f"reproduced if at least 95 % of the runs are by iteration {FEW}, partly if the median is, no difference if as many of the base's are", paths,
    )  # fmt: skip


def _any(rows: pd.DataFrame, table: pd.DataFrame, paths: tuple[Path, ...]) -> Finding:
    reached = {
        cast(Cell, key): float((group["at"] < inf).mean()) for key, group in rows.groupby(["jobs", "flows", "start"])
    }
    share = statistics.proportion(int((rows["at"] < inf).sum()), len(rows))
    base = table[~table["mltcp"].astype(bool) & table["at"].notna()]
    lowest = min(reached, key=lambda key: reached[key])
    least = reached[lowest]
    alike = len(base) > 0 and float((base["at"] < inf).mean()) >= max(share.value, 0.5)
    several = all(rows[what].nunique() > 1 for what in ("jobs", "flows", "start"))
    verdict = graded(least >= 0.95 and several, least >= 0.5, alike=alike)
    medians = ", ".join(
        f"{_size(*cast(tuple[int, int], size))} {_number(statistics.median(group['at']).value)}"
        for size, group in rows.groupby(["jobs", "flows"])
    )
    starts = "; ".join(
        f"{drawing.count(n, 'job')} {', '.join(f'{len(group)} {STARTS[str(start)]}' for start, group in of.groupby('start'))}"
        for n, of in rows.groupby("jobs")
    )
    luck = f"; the base in {(base['at'] < inf).mean():.0%} of its {len(base)}" if len(base) else ""
    return Finding(
        ANY, ANY_SOURCE,
        f"{share.value:.1%} of {drawing.count(len(rows), 'run')} interleave within their {drawing.count(table['iterations'].max(), 'iteration')}{luck}; least often {reached[lowest]:.0%} "
        f"({drawing.count(lowest[0], 'job')} of {drawing.count(lowest[1], 'flow')}, {STARTS[lowest[2]]}); median iteration: {medians}; "
        f"seeds: {starts}",
        share.value, "of all runs interleave (1: every one)", share.interval, int(rows.groupby(["jobs", "flows", "start"])["seed"].nunique().min()), verdict,
        "reproduced if at least 95 % of the runs interleave for every number of jobs, of flows per job, and every kind of start, and there are several of each; partly if half do, no difference if "
        "as many of the base's do",
        paths,
    )  # fmt: skip


def _number(iteration: float) -> str:
    return "never" if iteration == inf else f"{iteration:g}"


def _size(jobs: int, flows: int) -> str:
    return (
        f"{drawing.count(jobs, 'job')}"
        if flows == 1
        else f"{drawing.count(jobs, 'job')} of {drawing.count(flows, 'flow')}"
    )


def _agreement(rows: pd.DataFrame, paths: tuple[Path, ...]) -> Finding:
    both = rows[(rows["at"] < inf) & (rows["twin"] < inf)]
    if both.empty:
        return not_measured(TWIN_CLAIM, TWIN_SOURCE, "nothing interleaved in both")
    off = both["at"] - both["twin"]
    cells = [list(of_cell.abs()) for _, of_cell in off.groupby([both["jobs"], both["flows"], both["start"]])]
    found = statistics.by_cell(cells)  # most seeds are in the easiest cell
    by_number = ", ".join(
        f"{one:+.1f} with {drawing.count(number, 'job')}" for number, one in off.groupby(both["jobs"]).mean().items()
    )
    verdict: Verdict = "reproduced" if found.value <= 2 else "partly" if found.value <= 5 else "not reproduced"
    return Finding(
        TWIN_CLAIM, TWIN_SOURCE,
        f"measured against the twin, mean distance over {drawing.count(len(cells), 'cell')} (jobs, flows, start) of runs from the same starts in which both get there: {found} iterations (mean difference {by_number}); "
        f"{(off.abs() <= 3).mean():.0%} of the runs are within three",
        found.value, "iterations from the twin, mean distance over cells", found.interval, int(rows.groupby(["jobs", "flows", "start"])["seed"].nunique().min()), verdict, "reproduced if the mean distance is at most two iterations, partly at most five", paths,
    )  # fmt: skip


def _table(study: Study) -> pd.DataFrame:
    """One row per run: ``jobs, flows, start, cc, mltcp, seed, at, twin``; iterations, infinity is never."""
    rows = []
    for experiment in study.experiments:
        for cc in experiment.systems:
            runs = experiment.runs_of(cc)
            ideals = measured.ideals_s(runs[0])
            model = fluid_comparison.flows(runs, 0.5).interleaved_at(ideals)
            rows += [
                {
                    "jobs": len(run.jobs), "flows": max(job.channels for job in run.jobs), "start": _start(run), "cc": run.system, "mltcp": run.role == "treatment", "seed": run.seed,
                    "at": measured.interleaved_at(experiment, run), "twin": model[number], "iterations": run.jobs[0].iterations,
                }
                for number, run in enumerate(runs)
            ]  # fmt: skip
    columns = ["jobs", "flows", "start", "cc", "mltcp", "seed", "at", "twin", "iterations"]
    return pd.DataFrame(rows, columns=columns).sort_values(
        ["jobs", "flows", "start"], ascending=[True, True, False], kind="stable"
    )


def _start(run: Run) -> str:
    offsets = [job.offset_ns / 1e9 for job in run.jobs]
    return "overlapped" if max(offsets) - min(offsets) <= OVERLAPPED * measured.ideal_s(run) else "uniform"


def _by_number(axis: Any, table: pd.DataFrame) -> None:
    sizes = sorted({(int(jobs), int(flows)) for jobs, flows in zip(table["jobs"], table["flows"], strict=True)})
    kinds = [(mltcp, start) for mltcp in (True, False) for start in STARTS]
    kinds = [(m, s) for m, s in kinds if ((table["mltcp"] == m) & (table["start"] == s)).any()]
    never = 1.08 * float(table["iterations"].max())
    for i, (mltcp, start) in enumerate(kinds):
        colour = COLOURS[mltcp, start]
        label: str | None = f"{table[table['mltcp'] == mltcp]['cc'].iloc[0]}, {STARTS[start]}"
        for x, (number, flows) in enumerate(sizes):
            own = (table["jobs"] == number) & (table["flows"] == flows) & (table["mltcp"] == mltcp)
            rows = table[own & (table["start"] == start)].dropna(subset="at")
            if rows.empty:
                continue
            at = x + (i - (len(kinds) - 1) / 2) * 0.85 / len(kinds)
            drawing.medians(axis, at, list(rows["at"]), never, colour, width=0.7 / len(kinds), label=label)
            label = None
            if mltcp and (model := statistics.median(rows["twin"]).value) < inf:
                axis.plot(at, model, "D", color=style.REFERENCE, fillstyle="none", markersize=6, zorder=5)
    axis.plot([], [], "D", color=style.REFERENCE, fillstyle="none", markersize=6, label="fluid twin, shares ∝ √F")
    axis.axhline(never, color=style.REFERENCE, linewidth=0.6, linestyle=":")
    axis.annotate(
        "never",
        (0, never),
        xycoords=("axes fraction", "data"),
        xytext=(3, 5),
        textcoords="offset points",
        fontsize=8,
        color=style.REFERENCE,
    )
    axis.set_xticks(range(len(sizes)), [str(jobs) if flows == 1 else f"{jobs}\n× {flows}" for jobs, flows in sizes])
    axis.grid(visible=False, axis="x")
    axis.set(
        xlabel="jobs (× flows of each)", ylabel="iterations until interleaved", ylim=(0, 1.12 * never), title="How soon"
    )
    axis.legend(**BELOW)


def _by_iteration(axis: Any, table: pd.DataFrame) -> None:
    rows = table[(table["start"] == "uniform") & table["at"].notna()]
    last = float(rows["iterations"].max()) if len(rows) else 1.0
    for line, (number, group) in zip(LINES, rows.groupby("jobs"), strict=False):
        for mltcp in (True, False):
            of_one = group[group["mltcp"] == mltcp]
            at = np.sort(of_one["at"])
            if len(at):
                shares = np.arange(1, len(at) + 1) / len(at)
                inside = at < inf
                x = [0, *at[inside], last]
                y = [0, *shares[inside], shares[inside][-1] if inside.any() else 0]
                axis.step(
                    x,
                    y,
                    where="post",
                    color=COLOURS[mltcp, "uniform"],
                    linestyle=line,
                    linewidth=1.8,
                    label=f"{of_one['cc'].iloc[0]}, {drawing.count(number, 'job')} ({len(at)} starts)",
                )
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(xlabel="iteration", ylabel="random starts interleaved by then", ylim=(-0.02, 1.03), title="How many")
    if axis.lines:
        axis.legend(**BELOW)

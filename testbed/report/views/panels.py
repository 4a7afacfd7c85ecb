"""A panel for each system, in a grid that stays legible with many of them, and the small print below it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from testbed.core.runs import metrics
from testbed.core.runs.load import Experiment, Run
from testbed.models import bottleneck
from testbed.report import drawing, style

ACROSS = 4  # most panels in a row
SHOWN = 3  # iterations at the end of a run
_HEADING = 36  # letters in a line above a panel
LINES = ("-", "--", ":", "-.")  # one after the other, where there are more systems than colours


def grid(count: int) -> tuple[int, int]:
    """Rows and columns for so many panels: at most `ACROSS` in a row, and rows of about equal length."""
    rows = -(-count // ACROSS)
    return rows, -(-count // rows)


def first_runs(experiment: Experiment) -> list[Run]:
    """The run of the first seed, of each system."""
    return [experiment.runs_of(system)[0] for system in experiment.systems]


def colour(job: int | str) -> str:
    """Return the colour of a job by its number, or of `bottleneck.BACKGROUND`."""
    return style.BACKGROUND if job == bottleneck.BACKGROUND else style.JOBS[int(job) % len(style.JOBS)]


def arrow(link: str) -> str:
    """A direction of a link as people write it: ``s1→s2``."""
    return link.replace("-", "→", 1)


def heading(system: str) -> str:
    """The name of a system above its panel, in lines that fit there."""
    return "\n".join(textwrap.wrap(system, _HEADING))


def job_labels(run: Run) -> dict[str, str]:
    """Return a label by colour: ``job 1``, ``jobs 0, 8``; with their traces if these differ."""
    several = len({job.trace for job in run.jobs}) > 1
    found: dict[str, list[str]] = {}
    for job in run.jobs:
        found.setdefault(colour(job.job), []).append(f"{job.job} ({job.trace})" if several else str(job.job))
    return {key: f"job{'s' * (len(own) > 1)} {', '.join(own)}" for key, own in found.items()}


def job_lines(run: Run) -> list[Line2D]:
    """The entries of a legend: a line for each job."""
    return [Line2D([], [], color=key, label=label) for key, label in job_labels(run).items()]


def job_patches(run: Run) -> list[Patch]:
    """The entries of a legend: a colour for each job."""
    return [Patch(color=key, label=label) for key, label in job_labels(run).items()]


def share_patches(run: Run) -> list[Patch]:
    """Return `job_patches`, and the colour of background traffic, for shares of a link."""
    return job_patches(run) + [Patch(color=style.BACKGROUND, label=bottleneck.BACKGROUND)] * bool(run.plan.background)


def rest(run: Run) -> str:
    """Return a sentence on the part of background traffic; empty without any."""
    return " Background: all other bytes on the link." if run.plan.background else ""


def legend(figure: Any, title: str, handles: Sequence[Any]) -> None:
    """The figure's title, and below it what its colours mean."""
    longest = max((len(str(handle.get_label())) for handle in handles), default=1)
    columns = max(1, int(figure.get_figwidth() * drawing.LETTERS_AN_INCH / (longest + 9)))
    figure.legend(
        handles=list(handles), loc="outside upper left", ncols=min(len(handles), columns), fontsize=9, alignment="left",
        title=title, title_fontproperties={"weight": "bold", "size": 12},
    )  # fmt: skip


def draw(
    experiment: Experiment, name: str, title: str, unit: str, handles: Sequence[Any],
    panel: Callable[[Any, Run], pd.DataFrame], about: str, out: Path,
) -> list[Path]:  # fmt: skip
    """Write ``NAME.{png,pdf,csv}``: a panel over time for each system, with the data that ``panel`` returns of each."""
    runs = first_runs(experiment)
    rows, across = grid(len(runs))
    figure, axes = style.new_figure(rows, across, figsize=(max(4.2 * across, 7.0), 1.1 + 2.6 * rows), sharey=True)
    flat = list(axes.flatten())
    parts = []
    for place, (axis, run) in enumerate(zip(flat, runs, strict=False)):
        parts.append(panel(axis, run).assign(system=run.system))
        axis.set_title(heading(run.system))
        axis.margins(x=0.01)
        axis.set_ylim(bottom=0, auto=True)
        if place + across >= len(runs):  # none below it
            axis.set_xlabel("time (s)")
    for row in axes:
        row[0].set_ylabel(unit)
    for axis in flat[len(runs) :]:
        axis.remove()
    legend(figure, title, handles)
    caption(figure, runs, f"{about} Seed {runs[0].seed}.")
    return drawing.save(figure, pd.concat(parts, ignore_index=True), out, name)


def caption(figure: Any, runs: Sequence[Run], about: str) -> None:
    """The caption: the content, and the network: its rate, and for a kernel buffer, marks, delay and loss; and the verdicts."""
    drawing.caption(figure, about, f"{drawing.setting(*runs)}{still_wires(runs[0])}. {verdicts(runs)}.")


def still_wires(run: Run) -> str:
    """The note, after a comma, that a kernel network's wires add neither delay nor loss; added delay or loss is reported elsewhere."""
    if drawing.is_model(run):
        return ""
    added = drawing.wires(run)
    absent = [what for what, name in (("delay", ", delay"), ("random loss", ", random loss")) if name not in added]
    return f"; wires add no {' and no '.join(absent)}" if absent else ""


def verdicts(runs: Sequence[Run]) -> str:
    """Return the verdict of all runs; by system if they differ."""
    found = {run.system: run.verdict.verdict for run in runs}
    if len(set(found.values())) == 1:
        return f"Verdict: {runs[0].verdict.verdict}"
    return "Verdicts: " + ", ".join(f"{system} {verdict}" for system, verdict in found.items())


def last_iterations(run: Run) -> tuple[float, float]:
    """Begin and end of the last `SHOWN` iterations, of the job that is the last to begin them."""
    begins = run.iterations.groupby(["job", "iteration"])["start_s"].min()
    last = begins.groupby("job").apply(lambda own: own.iloc[-min(SHOWN, len(own))])
    begin_s = float(last.max())
    return begin_s, begin_s + SHOWN * float(metrics.pooled(run.times.tail(SHOWN)).mean())


def between(table: pd.DataFrame, begin_s: float, end_s: float) -> pd.DataFrame:
    """The samples of a table between two times."""
    return table[(table["t_s"] >= begin_s) & (table["t_s"] <= end_s)]

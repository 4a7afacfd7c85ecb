"""Whether jobs send in turn by themselves under LTP and MLT, if their rate depends on what of a round is delivered."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from testbed.core import system_text
from testbed.core.runs import measured
from testbed.core.runs.load import Experiment, LoadError, Run
from testbed.core.runs.plan import JobPlan
from testbed.models.statistics import geometric_mean, log_interval, ratio_ends
from testbed.report import drawing, style
from testbed.report import observations as observed
from testbed.report.finding import Finding, graded, no_difference, not_measured, not_measured_without
from testbed.report.study import Study

ID = "mlt-interleave"
POSITION = 350
PAPER = "MLT"
TITLE = "MLTCP's idea under LTP and MLT: do two jobs interleave?"
TEXT = (
    "A mean iteration of two jobs on one link ÷ that of each alone (the ideal, where that was not run), over the iterations; pale lines are seeds. With F a transport goes by what of its round is delivered, as "
    "MLTCP by what of its iteration is sent: MLT adds F times as much to its rate, LTP probes F times as strongly."
)
GAINS = "Where F scales what its rate grows by, two jobs under {} interleave by themselves."
KINDS = {"mlt": GAINS.format("MLT"), "ltp": GAINS.format("LTP")}
SOURCE = "ours; MLTCP has F in TCP's window [published]"
SOURCES = dict.fromkeys(KINDS.values(), SOURCE)
CONTROLS = dict.fromkeys(KINDS.values(), "iterations that take as long with F as without")
SETTLED, CLOSE = 5, 1.05  # from that iteration on; times as long as alone


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``mlt-interleave.{png,pdf,csv}``; the data: a row per system, seed and iteration."""
    rows = _table(study)
    figure, axes = style.new_figure(1, 1, figsize=(8.6, 4.4))
    axis = axes[0, 0]
    for (system, mine), colour in zip(rows.groupby("system", sort=False), style.JOBS, strict=False):
        for _, seed in mine.groupby("seed"):
            axis.plot(seed["iteration"], seed["ratio"], color=colour, linewidth=0.6, alpha=0.3)
        means = mine.groupby("iteration")["ratio"].mean()
        axis.plot(means.index, means, color=colour, label=f"{system}: {means.iloc[SETTLED:].mean():.2f}")
    axis.axhline(1, color=style.REFERENCE, linewidth=0.8)
    axis.set(xlabel="iteration", ylabel="iteration ÷ that alone", ylim=(0.95, None))
    figure.legend(
        *axis.get_legend_handles_labels(),
        loc="outside upper center",
        ncols=2,
        fontsize=8,
        title=f"mean from iteration {SETTLED} on",
    )
    drawing.caption(figure, f"{drawing.setting(study.runs[0])}; {drawing.count(rows['seed'].nunique(), 'seed')} (pale)")
    return drawing.save(figure, rows, out, ID)


@not_measured_without(dict.fromkeys(KINDS.values(), SOURCE))
def find(study: Study) -> list[Finding]:
    """One finding for each transport."""
    rows = _table(study)
    return [_gain(study, rows, kind, claim) for kind, claim in KINDS.items()]


def _gain(study: Study, rows: pd.DataFrame, kind: str, claim: str) -> Finding:
    mine = rows[rows["kind"] == kind]
    last = mine[mine["iteration"] >= SETTLED]
    ends = {bool(by_f): one.groupby("seed")["ratio"].mean() for by_f, one in last.groupby("by_f")}
    if ends.keys() != {False, True}:
        return not_measured(claim, SOURCE, f"{kind} was not run both with F and without")
    both = ends[True].index.intersection(ends[False].index)
    ratios = (ends[False][both] / ends[True][both]).tolist()
    at = ends[True][both].tolist()
    low, high = ratio_ends(ratios)
    return Finding(
        claim, SOURCE,
        f"an iteration takes {observed.with_interval(at)} times as long as alone with F, {observed.with_interval(ends[False][both].tolist())} without, from iteration {SETTLED} on",
        geometric_mean(ratios), "× as fast with F", log_interval(ratios), len(ratios),
        graded(low > 1 and ratio_ends(at)[1] <= CLOSE, low > 1, alike=no_difference((low, high))),
        f"reproduced if surely faster with F, and surely within {CLOSE - 1:.0%} of its time alone, partly if surely faster", study.paths,
    )  # fmt: skip


def _table(study: Study) -> pd.DataFrame:
    """``system, role, kind, by_f, seed, iteration, ratio``; raises `LoadError` without runs."""
    if not study.runs:
        raise LoadError(f"{ID}: there are no runs; run experiments/{ID}.toml")
    return pd.concat(
        [_rows(experiment, run) for experiment in study.experiments for run in experiment.runs], ignore_index=True
    )


def _rows(experiment: Experiment, run: Run) -> pd.DataFrame:
    """An iteration of all jobs: the mean of how long each took, its slowest worker's time."""
    part = system_text.part(run.jobs[0].transport)
    took = run.iterations.assign(s=run.iterations["end_s"] - run.iterations["start_s"])
    took = took.groupby(["job", "iteration"])["s"].max().reset_index()
    alone = measured.isolated_s(experiment, run)
    yardstick = {job.job: _ideal_s(job) if alone is None else float(alone[job.job]) for job in run.jobs}
    ratio = (took["s"] / took["job"].map(yardstick)).groupby(took["iteration"]).mean()
    return pd.DataFrame({
        "system": run.system, "role": run.role, "kind": part.name, "by_f": "f" in dict(part.options), "seed": run.seed,
        "iteration": ratio.index, "ratio": ratio.to_numpy(),
    })  # fmt: skip


def _ideal_s(job: JobPlan) -> float:
    if job.ideal_s is None:
        raise LoadError(f"job {job.job} is a real program, of which nobody knows how long it sends")
    return job.ideal_s

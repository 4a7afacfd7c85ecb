"""SJF-BCO's Fig. 7: the makespan by λ, at κ = 1."""

from __future__ import annotations

import itertools
from pathlib import Path

from testbed.core.runs.schedules import Setting
from testbed.models.statistics import geometric_mean, log_interval, ratio_ends
from testbed.report import schedules
from testbed.report.finding import Finding, graded, no_difference
from testbed.report.schedules import REPORT
from testbed.report.study import Study

ID = "sjf-lambda"
POSITION = 410
PAPER = schedules.PAPER
TITLE = "SJF-BCO: the makespan by λ, at κ = 1"
TEXT = (
    "A job of more than one GPU chooses among the least busy servers that have λ times its GPUs. Lines are means over seeds (dots), diamonds the report's "
    "values, which are of the published setting; scales differ from setting to setting. More servers to choose from means less waiting, and "
    "rings over more uplinks: which of the two wins depends on how much there is to communicate."
)
FALLS = "The makespan falls as λ grows from 1 to 8."
SOURCES = {FALLS: f"Fig. 7 [published]; {REPORT}"}
CONTROLS = {FALLS: "makespans that are the same for every λ"}
PUBLISHED = {1: 1043, 2: 882, 4: 730, 8: 538}
POINTS = {f"sjf_bco:kappa=1,lam={lam}": lam for lam in PUBLISHED}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-lambda.{png,pdf,csv}``; the data: a row for each schedule."""
    return schedules.curve(study, out, POINTS, PUBLISHED, "λ")


def find(study: Study) -> list[Finding]:
    """For each setting: whether it falls."""
    return schedules.findings(study, SOURCES, {FALLS: lambda setting: _falls(study, setting)})


def _falls(study: Study, setting: Setting) -> Finding:
    table = schedules.require_schedules(study).table
    spans = {lam: schedules.values(table, setting.name, name) for name, lam in POINTS.items()}
    steps = [list(schedules.ratio(spans[more], spans[less])) for less, more in itertools.pairwise(spans)]
    whole = list(schedules.ratio(spans[8], spans[1]))
    return Finding(
        f"{FALLS} {schedules.describe_setting(setting)}", SOURCES[FALLS],
        f"mean makespan by λ: {', '.join(f'{lam}: {found.mean():.0f}' for lam, found in spans.items())} s; published "
        f"{', '.join(f'{lam}: {slots}' for lam, slots in PUBLISHED.items())}",
        geometric_mean(whole), "the makespan at λ = 8 ÷ that at λ = 1", log_interval(whole), len(whole),
        graded(all(map(schedules.below_one, steps)), schedules.below_one(whole), alike=all(no_difference(ratio_ends(step)) for step in steps)),
        "reproduced if from each λ to the next the makespan surely falls (95 % interval over seeds, compared seed by seed), partly if from 1 to 8", (),
    )  # fmt: skip

"""SJF-BCO's Fig. 5: the makespan by κ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed.core.runs.schedules import Setting
from testbed.models.statistics import geometric_mean, log_interval, ratio_ends
from testbed.report import schedules
from testbed.report.finding import Finding, graded, no_difference
from testbed.report.schedules import REPORT
from testbed.report.study import Study

ID = "sjf-kappa"
POSITION = 390
PAPER = schedules.PAPER
TITLE = "SJF-BCO: the makespan by κ"
TEXT = (
    "Jobs of up to κ GPUs fill servers in use, larger ones wait for few servers with little work. Lines are means over seeds (dots), diamonds the "
    "report's values, which are of the published setting; scales differ from setting to setting. Without any contention (the control) packing "
    "everything is best."
)
LEAST = "The makespan has a turning point at κ = 8: it falls up to there, and rises to κ = 16."
MOST = "It has another one at κ = 16, after which it falls again."
SOURCES = dict.fromkeys((LEAST, MOST), f"Fig. 5 [published]; {REPORT}")
CONTROLS = dict.fromkeys(SOURCES, "uplinks without limit (b_e → ∞), where the makespan falls from κ to κ")
PUBLISHED = {1: 626, 2: 564, 4: 541, 8: 535, 10: 700, 16: 749, 32: 736}
POINTS = {f"sjf_bco:kappa={kappa}": kappa for kappa in PUBLISHED}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-kappa.{png,pdf,csv}``; the data: a row for each schedule."""
    return schedules.curve(study, out, POINTS, PUBLISHED, "κ (GPUs)")


def find(study: Study) -> list[Finding]:
    """For each setting: either turning point."""
    return schedules.findings(
        study,
        SOURCES,
        {
            LEAST: lambda setting: _turn(study, LEAST, setting, [(8, 1), (8, 16)]),
            MOST: lambda setting: _turn(study, MOST, setting, [(8, 16), (32, 16)]),
        },
    )


def _turn(study: Study, claim: str, setting: Setting, sides: Sequence[tuple[int, int]]) -> Finding:
    """A turning point, by its two sides: the makespan at the first κ is the lower one."""
    table = schedules.require_schedules(study).table
    spans = {kappa: schedules.values(table, setting.name, name) for name, kappa in POINTS.items()}
    ratios = {(low, high): list(schedules.ratio(spans[low], spans[high])) for low, high in sides}
    means = {kappa: float(found.mean()) for kappa, found in spans.items() if not found.empty}
    low, high = max(ratios, key=lambda side: geometric_mean(ratios[side]))
    nearest = ratios[low, high]
    return Finding(
        f"{claim} {schedules.describe_setting(setting)}", SOURCES[claim],
        f"mean makespan by κ: {', '.join(f'{kappa}: {mean:.0f}' for kappa, mean in means.items())} s (the best κ is {min(means, key=means.__getitem__)}); "
        f"published {', '.join(f'{kappa}: {slots}' for kappa, slots in PUBLISHED.items())}",
        geometric_mean(nearest), f"the makespan at κ = {low} ÷ that at {high}", log_interval(nearest), len(nearest),
        graded(
            all(map(schedules.below_one, ratios.values())), all(geometric_mean(found) < 1 for found in ratios.values()),
            alike=all(no_difference(ratio_ends(found)) for found in ratios.values()),
        ),
        f"reproduced if the makespan is surely lower (95 % interval over seeds, compared seed by seed) at κ = {sides[0][0]} than at {sides[0][1]}, and at "
        f"{sides[1][0]} than at {sides[1][1]}; partly if both are lower in the mean", (),
    )  # fmt: skip

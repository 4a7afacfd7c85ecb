"""SJF-BCO's Fig. 7: the makespan by λ, at κ = 1."""

from __future__ import annotations

from pathlib import Path

from testbed.report import schedules
from testbed.report.study import Study

ID = "sjf-lambda"
POSITION = 410
TITLE = "SJF-BCO: the makespan by λ, at κ = 1"
TEXT = (
    "A job of more than one GPU chooses among the least busy servers that have λ times its GPUs. Lines are means over seeds (dots), diamonds the report's "
    "values, which are of the published setting; scales differ from setting to setting. More servers to choose from means less waiting, and "
    "rings over more uplinks: which of the two wins depends on how much there is to communicate."
)
PUBLISHED = {1: 1043, 2: 882, 4: 730, 8: 538}
POINTS = {f"sjf_bco:kappa=1,lam={lam}": lam for lam in PUBLISHED}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-lambda.{png,pdf,csv}``; the data: a row for each schedule."""
    return schedules.curve(study, out, POINTS, PUBLISHED, "λ")

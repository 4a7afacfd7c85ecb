"""SJF-BCO's Fig. 7: the makespan by λ, at κ = 1."""

from __future__ import annotations

from pathlib import Path

from testbed.report import schedules
from testbed.report.study import Study

ID = "sjf-lambda"
POSITION = 410
TITLE = "A larger λ shortens SJF-BCO's schedules with little communication and lengthens them with much"
TEXT = (
    "A job of more than one GPU chooses among the least busy servers that have λ times its GPUs. Lines are means over seeds (dots), diamonds the paper's "
    "values, of the published setting; scales differ. More servers to choose from mean less waiting, but rings over more uplinks."
)
PUBLISHED = {1: 1043, 2: 882, 4: 730, 8: 538}
POINTS = {f"sjf_bco:kappa=1,lam={lam}": lam for lam in PUBLISHED}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-lambda.{png,pdf,csv}``; the data: a row for each schedule."""
    return schedules.curve(study, out, POINTS, PUBLISHED, "λ")

"""SJF-BCO's Fig. 5: the makespan by κ."""

from __future__ import annotations

from pathlib import Path

from testbed.report import schedules
from testbed.report.study import Study

ID = "sjf-kappa"
POSITION = 390
TITLE = "SJF-BCO's makespan falls with κ up to 32; the paper's rises at 16"
TEXT = (
    "Jobs of up to κ GPUs fill servers in use, larger ones wait for few servers with little work. Lines are means over seeds (dots), diamonds the "
    "paper's values, which are of the published setting; scales differ from setting to setting. Without any contention (the control) packing "
    "everything is best."
)
PUBLISHED = {1: 626, 2: 564, 4: 541, 8: 535, 10: 700, 16: 749, 32: 736}
POINTS = {f"sjf_bco:kappa={kappa}": kappa for kappa in PUBLISHED}


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``sjf-kappa.{png,pdf,csv}``; the data: a row for each schedule."""
    return schedules.curve(study, out, POINTS, PUBLISHED, "κ (GPUs)")

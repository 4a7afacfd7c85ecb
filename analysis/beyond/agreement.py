"""The same experiment in virtual time, on a machine's own kernel or in a VM, side by side."""

from __future__ import annotations

from pathlib import Path

from testbed.core.runs.load import Experiment
from testbed.report import agreement
from testbed.report.study import Study

ID = "agreement"
POSITION = 480
TITLE = (
    "In isolation, this kernel and virtual time agree within 1 %; MLTCP next to a second job varies more on this kernel"
)
TEXT = (
    "Two jobs on one link, under virtual time (uml), on the machine's own kernel (host), in the VM (vagrant), relative to the computed ideal. Left: a job "
    "in isolation; right: both, last ten iterations. A job in isolation and MLTCP in steady state should agree; the base depends on chance (`scale`)."
)
SEVERAL_BACKENDS = True
plot = agreement.plot


def draw(study: Study, out: Path) -> list[Path]:
    """Write ``agreement.{png,pdf,csv}``."""
    return agreement.draw(_one_of_each(study), out)[1]


def _one_of_each(study: Study) -> list[Experiment]:
    """One experiment per backend; one backend alone is drawn as well, against the ideal."""
    return list({experiment.runs[0].manifest.backend: experiment for experiment in study.experiments}.values())

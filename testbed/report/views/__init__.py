"""Views of any one experiment, one file each: ``draw(experiment, out) -> list[Path]`` writes PNG, PDF and the data as
CSV, or nothing for an experiment that it does not concern."""

from __future__ import annotations

from pathlib import Path

from testbed.core.runs.load import Experiment
from testbed.report.views import interleaving, shares


def draw(experiment: Experiment, out: Path) -> list[Path]:
    """Every view that concerns the experiment; the files written to ``out``."""
    return [path for view in (interleaving, shares) for path in view.draw(experiment, out)]

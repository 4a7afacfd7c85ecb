"""Views of any one experiment, one file each: ``draw(experiment, out) -> list[Path]`` writes PNG, PDF and the data as
CSV, or nothing for an experiment that it does not concern."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from testbed.core.runs import rundir
from testbed.core.runs.load import Experiment
from testbed.report.views import interleaving, shares

NAMES: dict[str, ModuleType] = {"interleaving": interleaving, "shares": shares}


def draw(experiment: Experiment, out: Path) -> list[Path]:
    """Every view that concerns the experiment; the files written to ``out``."""
    return [path for view in NAMES.values() for path in view.draw(experiment, out)]


def write(experiments: Iterable[Experiment], out: Path) -> list[Path]:
    """Every view of each, in the folder ``figures`` of its results, which are below ``out``; the files."""
    figures = []
    for experiment in experiments:
        with rundir.filled(experiment.path / "figures", out) as aside:
            figures += [experiment.path / "figures" / path.name for path in draw(experiment, aside)]
    return figures

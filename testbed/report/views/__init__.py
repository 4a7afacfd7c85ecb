"""Views of any experiment, one file each: the default set of ``mltcp figures``.

``draw(experiment, out) -> list[Path]`` writes PNG, PDF and the data as CSV, or nothing for an experiment without such data.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from testbed.core.runs import rundir
from testbed.core.runs.load import Experiment
from testbed.report.views import interleaving, link_shares, per_job, queues, shares, times, windows

_OF_RUNS: dict[str, ModuleType] = {"interleaving": interleaving, "shares": shares}  # views that each run draws
NAMES: dict[str, ModuleType] = {
    **_OF_RUNS, "times": times, "windows": windows, "queues": queues, "link-shares": link_shares, "per-job": per_job,
}  # fmt: skip


def draw(experiment: Experiment, out: Path) -> list[Path]:
    """Draw every view for which the experiment has data; return the files written to ``out``."""
    return [path for view in NAMES.values() for path in view.draw(experiment, out)]


def write(experiments: Iterable[Experiment], out: Path) -> list[Path]:
    """The views that a run ends with, of each, in the folder ``figures`` of its results, which are below ``out``; the files."""
    figures = []
    for experiment in experiments:
        with rundir.filled(experiment.path / "figures", out) as aside:
            figures += [
                experiment.path / "figures" / path.name
                for view in _OF_RUNS.values()
                for path in view.draw(experiment, aside)
            ]
    return figures

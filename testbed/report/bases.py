"""Several bases in one study (Reno and CUBIC, each with its MLTCP): one verdict and one drawing for each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from testbed.congestion import catalogue
from testbed.core.runs.load import Experiment, Run
from testbed.report.figures import Figure
from testbed.report.finding import Finding
from testbed.report.study import Study


def studies(study: Study) -> dict[str, Study]:
    """The part of a study that belongs to each base, by its name; all of it under ``""`` if there are less than two.

    The one with the most runs comes first: what was run of others stands beside it.
    """
    runs = Counter(name for run in study.runs if run.role == "treatment" and (name := _base(run)))
    if len(runs) < 2:
        return {"": study}
    return {name: _select_base(study, name) for name, _ in runs.most_common()}


def find(figure: Figure, study: Study) -> list[Finding]:
    """A figure's findings, of each base; the claim says which."""
    found = studies(study)
    return [
        finding if not name else replace(finding, claim=f"{finding.claim} Base: {catalogue.titled(name)}.")
        for name, part in found.items()
        for finding in figure.find(part)
    ]


def draw(figure: Figure, study: Study, out: Path) -> list[Path]:
    """A figure's files: of the first base under its id, of the others under its id and their name."""
    (_, first), *others = studies(study).items()
    written = list(figure.draw(first, out))
    for name, part in others:
        for path in figure.draw(part, out / name):
            target = out / f"{path.stem}-{name}{path.suffix}"
            written.append(path.rename(target))
        (out / name).rmdir()
    return written


def _base(run: Run) -> str | None:
    """The base of what a run compares; None: it has none, and stands beside all."""
    controls = run.plan.system.congestion
    changed = next((control.base for control in controls if control.base), None)
    return changed or next((control.name for control in controls), None)


def _select_base(study: Study, name: str) -> Study:
    parts = (_part(experiment, name) for experiment in study.experiments)
    return Study(study.id, tuple(part for part in parts if part.runs), study.problems)


def _part(experiment: Experiment, name: str) -> Experiment:
    return replace(experiment, runs=[run for run in experiment.runs if _base(run) in (name, None)])

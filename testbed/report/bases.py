"""Studies of several bases (Reno and CUBIC, each with its MLTCP): one drawing for each, and one table with a column
``base``."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd

from testbed.core import folders
from testbed.core.runs.load import Experiment, Run
from testbed.report import observations as observed
from testbed.report.figures import Figure
from testbed.report.study import Study


def studies(study: Study) -> dict[str, Study]:
    """Return the part of a study for each base, by its name; with fewer than two bases, the complete study under ``""``.

    The base with the most runs comes first: runs of others are drawn next to it.
    """
    runs = Counter(name for run in study.runs if run.role == "treatment" and (name := _base(run)))
    if len(runs) < 2:
        return {"": study}
    return {name: _select_base(study, name) for name, _ in runs.most_common()}


def draw(figure: Figure, study: Study, out: Path) -> list[Path]:
    """Draw a figure for each base and return the files: images of the first base under its id, others with their name;
    one table for all.

    A figure that shows all bases in one image has ``ALL_BASES = True``, and its own tables identify the base of each row.
    """
    if getattr(figure, "ALL_BASES", False):
        return figure.draw(study, out)
    found = studies(study)
    written: dict[Path, None] = {}
    tables: dict[str, list[pd.DataFrame]] = {}
    for number, (name, part) in enumerate(found.items()):
        folder = out / name if number else out
        for path in figure.draw(part, folder):
            if path.suffix == ".csv":
                tables.setdefault(path.name, []).append(_with_arm(_with_base(path, name or _only_base(study)), part))
                written[out / path.name] = None
            else:
                target = out / f"{path.stem}-{name}{path.suffix}" if number else path
                written[path.rename(target)] = None
        if number:
            shutil.rmtree(folder)
    for file, parts in tables.items():
        folders.put(out / file, pd.concat(parts).to_csv(index=False).encode())
    return list(written)


def _with_base(path: Path, name: str) -> pd.DataFrame:
    """Read a table as written, and add its base."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    return table.assign(base=name) if name and "base" not in table else table


def _with_arm(table: pd.DataFrame, study: Study) -> pd.DataFrame:
    """A table of runs, and the arm of each row: by its system, or the one that there is."""
    arms = observed.arms(study.runs)
    if not arms or "arm" in table or "seed" not in table:
        return table
    system = next((column for column in ("cc", "system") if column in table), None)
    if system is not None:
        return table.assign(arm=table[system].map({run.system: observed.arm(run) for run in study.runs}).fillna(""))
    return table.assign(arm=arms[0]) if len(arms) == 1 else table


def _only_base(study: Study) -> str:
    return next((name for run in study.runs if run.role == "treatment" and (name := _base(run))), "")


def _base(run: Run) -> str | None:
    """The base of the systems that a run compares; None: it has none, and belongs to all bases."""
    controls = run.plan.system.congestion
    changed = next((control.base for control in controls if control.base), None)
    return changed or next((control.name for control in controls), None)


def _select_base(study: Study, name: str) -> Study:
    parts = (_part(experiment, name) for experiment in study.experiments)
    return Study(study.id, tuple(part for part in parts if part.runs), study.problems)


def _part(experiment: Experiment, name: str) -> Experiment:
    return replace(experiment, runs=[run for run in experiment.runs if _base(run) in (name, None)])

"""The content of a results folder for one figure: its experiments, and what could not be used.

A sweep's points are separate experiments, in ``results/<id>.<point>/``. The plans of the runs (``run.plan``) describe
the point; folder names after the id have no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from testbed.core.runs.load import (
    Experiment,
    LoadError,
    Run,
    Schedules,
    by_number,
    check,
    experiments_below,
    holds_schedules,
    in_order,
    load_run,
    load_schedules,
)

_ON_BACKEND = re.compile(r"-on-(?:host|uml|flow|vagrant|ssh-[A-Za-z0-9_-]+)(?=\.|/|$)")


@dataclass(frozen=True)
class Study:
    """The experiments of one figure, sorted by name; ``problems``: one paragraph each, for the reader."""

    id: str
    experiments: tuple[Experiment, ...]
    problems: tuple[str, ...]
    schedules: Schedules | None = None  # replaces experiments if nothing was emulated

    @property
    def is_empty(self) -> bool:
        """Return True if there is nothing to draw."""
        return not self.experiments and self.schedules is None

    @property
    def runs(self) -> list[Run]:
        """Return every run of every experiment, without isolated runs."""
        return [run for experiment in self.experiments for run in experiment.runs]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The run directories of all of them."""
        return tuple(run.path for run in self.runs)


def ids(results: Path) -> list[str]:
    """The figure ids that a results folder holds something for (if they are figure ids), sorted."""
    computed = {path.name for path in results.iterdir() if holds_schedules(path)} if results.is_dir() else set()
    return sorted({figure_id(name) for name in experiments(results)} | computed)


def experiments(results: Path) -> dict[str, Path]:
    """The folders of experiments by the names that figures go by.

    Names omit the backend (``map-on-host.rate-1gbit``), where all experiments of a figure ran on one that their names give.
    """
    found = experiments_below(results)
    backends: dict[str, set[str]] = {}
    for name in found:
        backends.setdefault(figure_id(_ON_BACKEND.sub("", name)), set()).add("".join(_ON_BACKEND.findall(name)))
    plain = {name: _ON_BACKEND.sub("", name) for name in found}
    return {plain[name] if len(backends[figure_id(plain[name])]) == 1 else name: path for name, path in found.items()}


def load_study(results: Path, id: str, *, several_backends: bool = False, experiments_of: str | None = None) -> Study:
    """The results for figure ``id`` in ``results``. Never raises: unusable runs are listed as problems, and the rest is returned.

    ``experiments_of``: the ids of its experiments as a pattern (``predict-*``), where they are not the figure's own.
    Runs of different programs are a problem (reported, and shown all the same), those of different backends too
    unless ``several_backends``; runs of the flow-level simulator where it was not compared with the kernel are left out unless so.
    """
    usable, problems = [], []
    for name, folder in experiments(results).items():
        if fnmatchcase(figure_id(name), experiments_of or id):
            experiment, wrong = load_folder(folder, uncompared=several_backends)
            problems += wrong
            if experiment is not None:
                usable.append(experiment)
    problems += _placed([run for experiment in usable for run in experiment.runs])
    problems += _mixed([run for experiment in usable for run in experiment.runs], several_backends)
    schedules = None
    computed = sorted(results.glob(experiments_of or id))
    if places := [path for path in computed if holds_schedules(path)]:
        try:
            schedules = load_schedules(places[0])
        except LoadError as error:
            problems.append(f"{error}. Left out.")
    return Study(id, tuple(usable), tuple(problems), schedules)


def figure_id(name: str) -> str:
    """The figure that an experiment's folder belongs to."""
    return name.partition("/")[0].partition(".")[0]


def load_folder(folder: Path, *, uncompared: bool = True) -> tuple[Experiment | None, list[str]]:
    """Load one experiment's folder; return the experiment (None if unusable), and descriptions of unusable parts.

    ``uncompared``: also runs of the flow-level simulator outside the range in which it was compared with the kernel (I23).
    """
    problems: list[str] = []
    runs = [run for path in sorted(folder.glob("*/[0-9]*/"), key=by_number) if (run := _usable(path, problems))]
    if not uncompared:
        asked, runs = len(runs), [run for run in runs if not _is_uncompared(run)]
        if less := asked - len(runs):
            problems.append(
                f"{less} runs of {folder} are the twin's, where it was not compared with the kernel (I23). Left out."
            )
    if not runs:
        return None, problems or [f"{folder} holds no run directory; run the experiment again."]
    alone = {}
    for path in sorted(folder.glob("isolated/job*/*/[0-9]*/"), key=by_number):
        if run := _usable(path, problems):
            alone[run.system, run.seed, run.jobs[0].like] = run
    return Experiment(folder, in_order(folder, runs), alone), problems


def _is_uncompared(run: Run) -> bool:
    return run.manifest.clock == "model" and run.verdict.verdict == "suspect"


def _usable(path: Path, problems: list[str]) -> Run | None:
    try:
        run = load_run(path)
        check(run)
    except LoadError as error:
        problems.append(f"{error}. Left out.")
        return None
    if run.verdict.verdict == "invalid":
        broken = [f"{row.label}: {row.name}" for row in run.verdict.invalid]
        problems.append(f"{path} is invalid ({', '.join(broken)}). Left out.")
        return None
    return run


def _placed(runs: Iterable[Run]) -> list[str]:
    """Return a paragraph if the same jobs were placed in several ways, which figures of systems do not distinguish;
    else none.

    Figures of jobs that request GPUs are about GPU allocation, and distinguish job schedulers.
    """
    found: dict[object, set[str]] = {}
    for plan in (run.plan for run in runs if run.plan.scheduler is not None and not run.plan.lives):
        same = plan.topology, plan.topology_args, tuple(len(job.hosts) for job in plan.jobs)
        found.setdefault(same, set()).add(str(plan.scheduler))
    schedulers = sorted(set().union(*(several for several in found.values() if len(several) > 1)))
    if not schedulers:
        return []
    return [
        f"The jobs of this figure were placed by several job schedulers ({', '.join(schedulers)}), each an experiment of its own."
    ]


def _mixed(runs: Iterable[Run], several_backends: bool) -> list[str]:
    """One paragraph if several programs or backends made the runs."""
    made: dict[str, Path] = {}
    for run in runs:
        # The source, not the commit, which also changes with files that do not affect runs.
        manifest = run.manifest
        by = f"testbed {manifest.testbed}, source {manifest.source_sha256[:12]}"
        if not several_backends:
            by = f"{by}, {manifest.backend}" + ("" if manifest.uml is None else f" {manifest.uml.version}")
        made.setdefault(by, run.path)
    if len(made) < 2:
        return []
    several = "; ".join(f"{by} (for one {path})" for by, path in made.items())
    return [f"Several programs made the runs of this figure: {several}. All runs are shown."]

"""Read run directories; refuse what has an unknown version, with one clear message each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

VERSION = 1


class LoadError(Exception):
    """A run directory that cannot be used: what, where, and what to do."""


@dataclass(frozen=True)
class Run:
    """One run: a congestion control, a seed, and what was measured."""

    path: Path
    manifest: dict[str, Any]
    verdict: dict[str, Any]

    @property
    def cc(self) -> str:
        return str(self.manifest["plan"]["cc"]["spec"])

    @property
    def seed(self) -> int:
        return int(self.manifest["plan"]["seed"])

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return list(self.manifest["plan"]["jobs"])

    @property
    def rate_bps(self) -> int:
        return int(self.manifest["plan"]["link"]["rate_bps"])

    @cached_property
    def iterations(self) -> pd.DataFrame:
        """One row per iteration and worker, as in ``iterations.csv``."""
        return _table(self.path / "iterations.csv")

    @cached_property
    def operations(self) -> pd.DataFrame:
        """One row per collective, iteration and worker, as in ``operations.csv``."""
        return _table(self.path / "operations.csv")

    @cached_property
    def links(self) -> pd.DataFrame:
        """One row per sample and link, counters since the start, as in ``links.csv``."""
        return _table(self.path / "links.csv")

    @cached_property
    def flows(self) -> pd.DataFrame:
        """One row per sample and flow, as in ``flows.csv``."""
        return _table(self.path / "flows.csv")


@dataclass(frozen=True)
class Experiment:
    """All runs of one experiment, and for each the runs of its jobs alone, one for each kind of job."""

    path: Path
    runs: list[Run]
    alone: dict[tuple[str, int, int], Run]  # by congestion control, seed and job

    @property
    def ccs(self) -> list[str]:
        """Congestion controls in the order they were run."""
        return list(dict.fromkeys(run.cc for run in self.runs))

    def alone_of(self, run: Run) -> dict[int, Run]:
        """For each job of ``run`` the run of that job, or one just like it, alone; those that there are."""
        lone = {job["job"]: self.alone.get((run.cc, run.seed, job["like"])) for job in run.jobs}
        return {job: one for job, one in lone.items() if one is not None}

    def of(self, cc: str) -> list[Run]:
        return [run for run in self.runs if run.cc == cc]


def load_run(path: Path) -> Run:
    """One run directory; raises `LoadError`."""
    return Run(path, _json(path / "manifest.json"), _json(path / "verdict.json"))


def load_experiment(folder: Path, wanted: list[tuple[str, int]] | None = None) -> Experiment:
    """An experiment's runs: the ``wanted`` (folder name, seed) in that order, or all there are."""
    if wanted is None:
        found = sorted(folder.glob("*/*/manifest.json"), key=lambda path: path.stat().st_mtime_ns)
        paths = [path.parent for path in found if path.parent.parent.parent == folder]
    else:
        paths = [folder / label / str(seed) for label, seed in wanted]
    runs = [load_run(path) for path in paths]
    if not runs:
        raise LoadError(f"{folder} holds no run; `python testbed/run.py --out {folder.parent}` makes some")
    alone = {}
    for run in runs:
        for job in {job["like"] for job in run.jobs}:
            path = folder / "alone" / f"job{job}" / run.path.parent.name / run.path.name
            if path.is_dir():
                alone[run.cc, run.seed, job] = load_run(path)
    return Experiment(folder, runs, alone)


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise LoadError(f"{path} is missing: the run directory is not complete; run it again") from error
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be read ({error}); run it again") from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise LoadError(f"{path} is of a format version this program does not know (it knows {VERSION})")
    return data


def _table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except FileNotFoundError as error:
        raise LoadError(f"{path} is missing: the run directory is not complete; run it again") from error
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be read ({error}); run it again") from error

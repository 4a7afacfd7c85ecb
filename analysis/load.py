"""Read run directories; refuse what has an unknown version, with one clear message each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

VERSION = 1
TABLES = ("iterations.csv", "operations.csv", "links.csv", "flows.csv")


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
        """For each job of ``run`` the run of that job, or one just like it, alone; those that there are.

        Of the same seed; or of the lowest there is, where jobs alone were run for one seed only.
        """
        lone = {job["job"]: self._alone(run, job["like"]) for job in run.jobs}
        return {job: one for job, one in lone.items() if one is not None}

    def _alone(self, run: Run, like: int) -> Run | None:
        there = {
            seed: one
            for (cc, seed, job), one in self.alone.items()
            if (cc, job) == (run.cc, like) and _same_job(one, run, like)
        }
        return there.get(run.seed, there[min(there)] if there else None)

    def of(self, cc: str) -> list[Run]:
        return [run for run in self.runs if run.cc == cc]


def _same_job(lone: Run, run: Run, like: int) -> bool:
    """Whether a job alone is one of ``run`` on the same link (and not left from an earlier experiment of that name)."""
    job = next(one for one in run.jobs if one["job"] == like)
    same = ("operations", "ideal_s", "noise", "channels")
    return lone.manifest["plan"]["link"] == run.manifest["plan"]["link"] and all(
        lone.jobs[0].get(key) == job.get(key) for key in same
    )


def load_run(path: Path) -> Run:
    """One run directory, its tables unread; raises `LoadError`."""
    return Run(path, _json(path / "manifest.json"), _json(path / "verdict.json"))


def load_experiment(folder: Path, wanted: list[tuple[str, int]] | None = None) -> Experiment:
    """An experiment's runs: the ``wanted`` (folder name, seed) in that order, or all there are, `in_order`."""
    if wanted is None:
        found = [path.parent for path in folder.glob("*/*/manifest.json")]
        paths = sorted(found, key=by_number)
    else:
        paths = [folder / label / str(seed) for label, seed in wanted]
    runs = [load_run(path) for path in paths]
    if not runs:
        raise LoadError(f"{folder} holds no run; `python testbed/run.py --out {folder.parent}` makes some")
    runs = runs if wanted is not None else in_order(folder, runs)
    alone = {}
    seeds = {run.path.name for run in runs}
    for run in runs:
        for job in {job["like"] for job in run.jobs}:
            for path in (folder / "alone" / f"job{job}" / run.path.parent.name).glob("[0-9]*"):
                if path.name in seeds:
                    alone[run.cc, int(path.name), job] = load_run(path)
    return Experiment(folder, runs, alone)


def by_number(path: Path) -> tuple[str, int, str]:
    """Run directories by congestion control, seeds in the order of numbers."""
    return str(path.parent), int(path.name) if path.name.isdecimal() else -1, path.name


def in_order(folder: Path, runs: list[Run]) -> list[Run]:
    """Runs by congestion control: as these were named (the experiment's summary knows), else bases first, by name."""
    ccs = sorted({run.cc for run in runs}, key=lambda cc: ("mltcp" in cc, cc))
    try:
        named = [str(row["cc"]) for row in json.loads((folder / "summary.json").read_text())["results"]]
    except (OSError, ValueError, KeyError, TypeError):
        named = []
    order = list(dict.fromkeys([*named, *ccs]))
    return sorted(runs, key=lambda run: order.index(run.cc))


def check(run: Run) -> None:
    """Raises `LoadError` if a table is missing, or the tables are not those that the manifest was written with."""
    files = {}
    for name in TABLES:
        try:
            files[name] = (run.path / name).read_bytes()
        except OSError as error:
            raise LoadError(
                f"{run.path / name} cannot be read ({error.strerror}): the run directory is not complete; run it again"
            ) from error
    if digest(files) != run.manifest.get("digest"):
        raise LoadError(f"{run.path}: its tables are not what its manifest tells (SHA-256); run it again")


def digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 over the tables of a run, by name and content."""
    whole = hashlib.sha256()
    for name in TABLES:
        whole.update(f"{name} {len(files[name])}\n".encode() + files[name])
    return whole.hexdigest()


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

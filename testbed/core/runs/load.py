"""Read run directories. Raises `LoadError`, with one message each, for unknown versions and implausible content."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from testbed.core.errors import TestbedError
from testbed.core.input_files import is_file
from testbed.core.runs import documents, isolated, schedules
from testbed.core.runs.documents import Document
from testbed.core.runs.format_version import OtherVersionError
from testbed.core.runs.manifest import Manifest
from testbed.core.runs.plan import JobPlan, Plan, Role
from testbed.core.runs.summary import Summary
from testbed.core.runs.verdict import Verdict
from testbed.core.text import command, shown

if TYPE_CHECKING:  # pandas takes half a second, and a run begins without it
    import pandas as pd

TABLES = ("iterations.csv", "operations.csv", "links.csv", "flows.csv")
MOST_JSON_BYTES, MOST_TABLE_BYTES = 256 << 20, 2 << 30
PIECE_BYTES = 1 << 20


class LoadError(TestbedError):
    """A run directory that cannot be used: what, where, and what to do."""


@dataclass(frozen=True)
class Run:
    """One run: its manifest (system, seed, plan), its verdict, and its tables."""

    path: Path
    manifest: Manifest
    verdict: Verdict

    @property
    def plan(self) -> Plan:
        return self.manifest.plan

    @property
    def system(self) -> str:
        """The system, as typed."""
        return self.plan.system.label

    @property
    def role(self) -> Role:
        return self.plan.system.role

    def constants(self, spec: str) -> dict[str, int]:
        """Constants of a congestion control as the kernel held them; empty if it takes none."""
        return next((one.constants for one in self.manifest.congestion_controls if one.spec == spec), {})

    @property
    def seed(self) -> int:
        return self.plan.seed

    @property
    def jobs(self) -> tuple[JobPlan, ...]:
        return self.plan.jobs

    @property
    def rate_bps(self) -> int:
        return self.plan.link.rate_bps

    @cached_property
    def times(self) -> pd.DataFrame:
        """Iteration times in seconds: a row per iteration, a column per job."""
        from testbed.core.runs import metrics  # noqa: PLC0415

        return metrics.iteration_times(self.iterations)

    @cached_property
    def iterations(self) -> pd.DataFrame:
        """Return ``iterations.csv``: a row per iteration and worker."""
        return _table(self.path / "iterations.csv")

    @cached_property
    def operations(self) -> pd.DataFrame:
        """Return ``operations.csv``: a row per collective, iteration and worker."""
        return _table(self.path / "operations.csv")

    @cached_property
    def links(self) -> pd.DataFrame:
        """Return ``links.csv``: a row per sample and link, with counters since the start."""
        return _table(self.path / "links.csv")

    @cached_property
    def flows(self) -> pd.DataFrame:
        """Return ``flows.csv``: a row per sample and flow."""
        return _table(self.path / "flows.csv")

    @cached_property
    def nics(self) -> pd.DataFrame | None:
        """Return ``nics.csv``: a row per sample and NIC; None with unshaped NICs."""
        return self.table("nics")

    @cached_property
    def disturbances(self) -> pd.DataFrame | None:
        """Return ``disturbances.csv``; None under a clock that nothing disturbs, or without a record."""
        return self.table("disturbances")

    @cached_property
    def messages(self) -> pd.DataFrame | None:
        """Ends of messages, as in ``messages.csv``; None: all messages arrived completely."""
        return self.table("messages")

    @cached_property
    def training(self) -> pd.DataFrame | None:
        """Training progress, one row per round, as in ``training.csv``; None: no job trains."""
        return self.table("training")

    @cached_property
    def background(self) -> pd.DataFrame | None:
        """Flows of background traffic, as in ``background.csv``; None: there was none."""
        return self.table("background")

    @cached_property
    def lives(self) -> pd.DataFrame | None:
        """Return ``jobs.csv`` (arrivals, placements, and ends of jobs that request GPUs); None if no job requests
        GPUs."""
        return self.table("jobs")

    def table(self, name: str) -> pd.DataFrame | None:
        """The table ``name`` (``links``: ``links.csv``); None: this run has none."""
        path = self.path / f"{name}.csv"
        return _table(path) if path.exists() else None

    def forget(self) -> None:
        """Let go of the tables that were read: those of two thousand runs would fill gigabytes."""
        for name in (
            *TABLES,
            "nics.csv",
            "messages.csv",
            "training.csv",
            "disturbances.csv",
            "background.csv",
            "lives",
        ):
            vars(self).pop(name.removesuffix(".csv"), None)


@dataclass(frozen=True)
class Experiment:
    """All runs of one experiment, and the isolated runs of its jobs, one for each kind of job."""

    path: Path
    runs: list[Run]
    alone: dict[tuple[str, int, int], Run]  # by system, seed and job

    @property
    def systems(self) -> list[str]:
        """The systems, in the order of their runs."""
        return list(dict.fromkeys(run.system for run in self.runs))

    @property
    def roles(self) -> dict[str, Role]:
        """Role of each system."""
        return {run.system: run.role for run in self.runs}

    def find_isolated_runs(self, run: Run) -> dict[int, Run]:
        """Return, by job of ``run``, the isolated run of that job or of an equal one; jobs without one are missing.

        The run has the same seed, or the lowest available one. It has the same system, or another one where the system cannot
        matter (`testbed.core.runs.isolated`).
        """
        lone = {job.job: self._alone(run, job) for job in run.jobs}
        return {job: found for job, found in lone.items() if found is not None}

    def _alone(self, run: Run, job: JobPlan) -> Run | None:
        first = next(one for one in run.jobs if one.job == job.like)
        own = [lone for (system, _, like), lone in self.alone.items() if (system, like) == (run.system, job.like)]
        found = isolated.find(run.plan, first, own, lambda one: one.plan)
        return found or isolated.find(run.plan, first, self.alone.values(), lambda one: one.plan)

    def runs_of(self, system: str) -> list[Run]:
        return [run for run in self.runs if run.system == system]


@dataclass(frozen=True)
class Schedules:
    """Results of an experiment of schedules: one row of ``table`` each."""

    path: Path
    made: schedules.Made
    table: pd.DataFrame


def holds_schedules(folder: Path) -> bool:
    """Return True if an experiment folder holds schedules instead of run directories."""
    return (folder / schedules.ABOUT).is_file()


def load_schedules(folder: Path) -> Schedules:
    """Read ``schedules.json`` and ``schedules.csv`` of ``folder``.

    Raises `LoadError` if one is missing or was changed.
    """
    import numpy as np  # noqa: PLC0415
    import pandas as pd  # noqa: PLC0415

    made, path = _read(folder / schedules.ABOUT, schedules.Made), folder / schedules.TABLE
    found = content(path, MOST_TABLE_BYTES)
    if schedules.digest(found) != made.digest:
        raise LoadError(
            f"{path} differs from the table that {schedules.ABOUT} describes (SHA-256); sweep the experiment again"
        )
    try:
        table = pd.read_csv(io.BytesIO(found), dtype=dict.fromkeys(("setting", "scheduler"), str))
        numbers = table[["servers", "seed", *schedules.NUMBERS]].astype(float)
    except (ValueError, KeyError) as error:
        raise LoadError(f"{path} is no table of schedules ({error}); sweep the experiment again") from error
    if table[list(schedules.KEYS)].isna().any(axis=None) or not np.isfinite(numbers.to_numpy()).all():
        raise LoadError(f"{path} has empty or infinite cells; sweep the experiment again")
    return Schedules(folder, made, table)


def load_run(path: Path) -> Run:
    """Load a run directory without its tables. Raises `LoadError`."""
    check_one_run(path)
    return Run(path, _read(path / "manifest.json", Manifest), _read(path / "verdict.json", Verdict))


def check_one_run(path: Path) -> None:
    """Raise `LoadError` for the folder of an experiment or of several, and name a run in it."""
    if not is_file(path / "manifest.json") and (found := _first_run_below(path)) is not None:
        raise LoadError(f"{path} holds several runs. Name one of them, such as {found}")


def _first_run_below(folder: Path) -> Path | None:
    """The first run directory of an experiment folder, or of a results folder."""
    for pattern in ("*/[0-9]*/manifest.json", "*/*/[0-9]*/manifest.json"):
        if found := sorted(_folders_with(folder, pattern), key=by_number):
            return found[0]
    return None


def _folders_with(folder: Path, pattern: str) -> list[Path]:
    try:
        return [path.parent for path in folder.glob(pattern)]
    except OSError:  # its name is too long, or it may not be read
        return []


def load_summary(folder: Path) -> Summary:
    """An experiment in numbers; raises `LoadError`."""
    if not is_file(folder / "summary.json"):
        if found := sorted(_folders_with(folder, "*/summary.json")):
            raise LoadError(f"{folder} holds several experiments. Name one of them, such as {found[0]}")
        if is_file(folder / "manifest.json") and is_file(folder.absolute().parents[1] / "summary.json"):
            raise LoadError(f"{folder} is one run. Name its experiment, {folder.absolute().parents[1]}")
    return _read(folder / "summary.json", Summary)


def load_experiment(folder: Path, wanted: list[tuple[str, int]] | None = None) -> Experiment:
    """An experiment's runs: the ``wanted`` (system folder, seed) in that order, or all there are, `in_order`."""
    if wanted is None:
        found = [path.parent for path in folder.glob("*/*/manifest.json")]
        paths = sorted(found, key=by_number)
    else:
        paths = [folder / label / str(seed) for label, seed in wanted]
    runs = [load_run(path) for path in paths]
    if not runs:
        raise LoadError(f"{folder} holds no run; `{command('run', '--out', folder.parent)}` makes some")
    runs = runs if wanted is not None else in_order(folder, runs)
    alone = {}
    seeds = {run.path.name for run in runs}
    for run in runs:
        for job in {job.like for job in run.jobs}:
            for path in (folder / "isolated" / f"job{job}" / run.path.parent.name).glob("[0-9]*"):
                if path.name in seeds:
                    alone[run.system, int(path.name), job] = load_run(path)
    return Experiment(folder, runs, alone)


def experiments_below(folder: Path) -> dict[str, Path]:
    """The experiment folders in a results folder, by name: of an experiment that compares job schedulers, one for each (``NAME/SCHEDULER``)."""
    found = {}
    for path in _folders(folder):
        if _holds_runs(path):
            found[path.name] = path
        else:
            found |= {
                f"{path.name}/{placed.name}": placed for placed in _folders(path) if _belongs_to(path.name, placed)
            }
    return found


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _holds_runs(folder: Path) -> bool:
    return any(folder.glob("*/[0-9]*/"))


class _Named(msgspec.Struct):
    experiment: str


class _Planned(msgspec.Struct):
    plan: _Named


def _belongs_to(experiment: str, folder: Path) -> bool:
    """Whether runs there are of ``experiment``. Otherwise the folder is an experiment folder in another results folder."""
    for path in folder.glob("*/[0-9]*/manifest.json"):
        try:
            return msgspec.json.decode(content(path), type=_Planned).plan.experiment == experiment
        except (LoadError, ValueError):
            continue
    return False


def by_number(path: Path) -> tuple[str, int, str]:
    """Run directories by system, seeds in the order of numbers."""
    return str(path.parent), int(path.name) if path.name.isdecimal() else -1, path.name


def in_order(folder: Path, runs: list[Run]) -> list[Run]:
    """Runs by system, in the order of the experiment's summary; without a summary baselines first, by name."""
    systems = [label for _, label in sorted({(run.role == "treatment", run.system) for run in runs})]
    named: list[str] = []
    for place in (folder, folder.parent):  # above, where job schedulers are compared
        try:
            named += [result.system for result in load_summary(place).results]
        except LoadError:
            continue
    order = list(dict.fromkeys([*named, *systems]))
    return sorted(runs, key=lambda run: order.index(run.system))


def check(run: Run) -> None:
    """Raises `LoadError` if a table is missing, or the tables are not those that the manifest was written with."""
    if are_whole(run.path, run.manifest):
        return
    for name in TABLES:
        _table(run.path / name)  # raises an error with the position, if it can be determined
    raise LoadError(f"{run.path}: its tables differ from its manifest (SHA-256); run it again")


def are_whole(folder: Path, manifest: Manifest) -> bool:
    """Return True if the tables match the digests of the manifest; raises `LoadError` if they cannot be read."""
    paths = [folder / name for name in TABLES]
    found = _digest((path.name, path.stat().st_size, _pieces(path)) for path in paths if _readable(path))
    return found == manifest.digest


def digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 over the tables of a run, by name and content."""
    return _digest((name, len(files[name]), [files[name]]) for name in TABLES)


def _digest(tables: Iterable[tuple[str, int, Iterable[bytes]]]) -> str:
    whole = hashlib.sha256()
    for name, size, pieces in tables:
        whole.update(f"{name} {size}\n".encode())
        for piece in pieces:
            whole.update(piece)
    return whole.hexdigest()


def _pieces(path: Path) -> Iterator[bytes]:
    with _opened(path, MOST_TABLE_BYTES) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _readable(path: Path) -> bool:
    """True; raises `LoadError` if it is no file that can be read."""
    with _opened(path, MOST_TABLE_BYTES):
        return True


def content(path: Path, most_bytes: int = MOST_JSON_BYTES) -> bytes:
    """Read a file of a results folder; raises `LoadError`."""
    with _opened(path, most_bytes) as file:
        try:
            return file.read(most_bytes)
        except OSError as error:
            raise LoadError(f"{path} cannot be read ({error}); run it again") from error


def _opened(path: Path, most_bytes: int) -> BinaryIO:
    """A regular file of a size that can be meant; raises `LoadError`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer would wait
    except FileNotFoundError as error:
        if not path.parent.exists():
            raise LoadError(f"there is no folder {path.parent}") from error
        raise LoadError(f"{path} is missing: the run directory is not complete; run it again") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LoadError(f"{path} cannot be read ({reason}): the run directory is not complete; run it again") from error
    file = os.fdopen(fd, "rb")
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_size <= most_bytes:
        return file
    file.close()
    if not stat.S_ISREG(status.st_mode):
        raise LoadError(f"{path} is not a regular file; run it again")
    raise LoadError(
        f"{path} has {status.st_size / 1e9:.1f} GB, but {most_bytes / 1e9:.1f} GB is the limit. "
        "Run it again with a longer --sample-interval."
    )


def _read(path: Path, kind: type[Document]) -> Document:
    found = content(path)
    try:
        return documents.decode(found, kind)
    except OtherVersionError as error:
        raise LoadError(f"{path} {error}; read it with the release that wrote it, or run it again") from error
    except msgspec.ValidationError as error:
        raise LoadError(f"{path} does not have the format of a run ({error}); run it again") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LoadError(f"{path} cannot be read ({error}); run it again") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoadError(f"{path} has no format version that this release can read ({error}); run it again") from error


def _table(path: Path) -> pd.DataFrame:
    """Its content. Raises `LoadError` with file, line and column for content that no run writes."""
    import pandas as pd  # noqa: PLC0415

    from testbed.core.runs import table_errors  # noqa: PLC0415

    try:
        with _opened(path, MOST_TABLE_BYTES) as file:
            table = pd.read_csv(file, low_memory=False)  # a column of mixed kinds is read as one
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be read ({shown(error, 200)}); run it again") from error
    if path.name in table_errors.TABLES and (fault := table_errors.first(table, path.name)):
        raise LoadError(f"{path}, {fault}; run it again")
    return table

"""``mltcp export RUN``: a run in formats of other tools."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.core import text
from testbed.core.errors import EXIT_OK, RequestError

if TYPE_CHECKING:
    from testbed.core.runs.load import Run
    from testbed.core.runs.plan import JobPlan

RANK = "{rank}"  # in the name of a file: a file for each rank
_FILES = ("perfetto", "chakra", "nccl_inspector", "csv", "matrix")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_directory", type=Path, metavar="RUN", help="run directory, such as results/NAME/SYSTEM/SEED"
    )
    formats = parser.add_argument_group("formats")
    formats.add_argument("--perfetto", type=Path, metavar="FILE", help="Chrome JSON for Perfetto: slices and counters")
    formats.add_argument(
        "--beside", type=Path, metavar="PROFILE",
        help="profile of PyTorch to add to --perfetto, its first ProfilerStep aligned with iteration 0",
    )  # fmt: skip
    formats.add_argument(
        "--chakra",
        type=Path,
        metavar="FILE",
        help=f"Chakra execution trace of a rank; {RANK} in the name: of every rank",
    )
    formats.add_argument(
        "--nccl-inspector",
        type=Path,
        metavar="FILE",
        help=f"NCCL Inspector's JSON lines of a rank; {RANK} in the name: of every rank",
    )
    formats.add_argument(
        "--parquet", type=Path, metavar="FOLDER", help="folder for a Parquet file for each table (needs pyarrow)"
    )
    formats.add_argument("--csv", type=Path, metavar="FILE", help="tidy CSV table of all values")
    formats.add_argument("--matrix", type=Path, metavar="FILE", help="CSV of the bytes of each job on each bottleneck")
    chosen = parser.add_argument_group("what is exported")
    chosen.add_argument(
        "--job", metavar="NAME", help="job, by number or trace (default: every job in --perfetto, else job 0)"
    )
    chosen.add_argument(
        "--rank", type=int, metavar="N", help="rank of the job (default: every rank in --perfetto, else rank 0)"
    )
    parser.add_argument("--force", action="store_true", help="permission to overwrite files")


def run(parsed: argparse.Namespace) -> int:
    from testbed.core.runs import load, rundir
    from testbed.exports import timeline

    if not any(getattr(parsed, name) for name in (*_FILES, "parquet")):
        raise RequestError("export: no format is named. Give one or several, such as --perfetto trace.json.")
    if parsed.beside and not parsed.perfetto:
        raise RequestError(
            "--beside adds a profile to a Perfetto file. Give --perfetto FILE, too, or leave --beside out."
        )
    if not parsed.run_directory.is_dir():
        raise RequestError(
            f"export: there is no folder {text.shown(parsed.run_directory, 200)}. Name a run directory: results/NAME/SYSTEM/SEED."
        )
    found = load.load_run(parsed.run_directory)
    job = timeline.find_job(found, parsed.job) if parsed.job is not None else None
    if parsed.rank is not None:
        timeline.check_rank(job or found.jobs[0], parsed.rank)
    _check_new(parsed, job or found.jobs[0])
    load.check(found)
    for path, content in _contents(parsed, found, job):
        rundir.write(path, content)
        print(text.plain(path))
    if parsed.parquet:
        from testbed.exports import parquet

        files = parquet.files(found)
        with rundir.filled(parsed.parquet) as aside:
            for name, content in files.items():
                (aside / name).write_bytes(content)
        print(*(text.plain(parsed.parquet / name) for name in files), sep="\n")
    return EXIT_OK


def _contents(parsed: argparse.Namespace, found: Run, job: JobPlan | None) -> Iterator[tuple[Path, bytes]]:
    from testbed.exports import chakra, csv, matrix, nccl_inspector, perfetto, timeline

    first = job or found.jobs[0]
    if parsed.perfetto:
        jobs = found.jobs if job is None and parsed.rank is None else (first,)
        yield parsed.perfetto, perfetto.text(found, jobs, parsed.rank, parsed.beside).encode()
    if parsed.chakra or parsed.nccl_inspector:
        timeline.check_sizes(first)
        epoch_us = timeline.started_us(found)
    if parsed.chakra:
        for rank, path in _ranks(parsed.chakra, first, parsed.rank):
            yield path, chakra.content(timeline.of_job(found, first, rank), epoch_us)
    if parsed.nccl_inspector:
        for rank, path in _ranks(parsed.nccl_inspector, first, parsed.rank):
            yield path, nccl_inspector.text(timeline.of_job(found, first, rank), first.hosts, epoch_us).encode()
    if parsed.csv:
        yield parsed.csv, csv.text(found).encode()
    if parsed.matrix:
        yield parsed.matrix, matrix.table(found).to_csv(index=False).encode()


def _ranks(path: Path, job: JobPlan, rank: int | None) -> list[tuple[int, Path]]:
    """One file per rank if the file name has a placeholder for it, else one file for one rank."""
    if RANK not in path.name:
        return [(rank or 0, path)]
    wanted = range(len(job.hosts)) if rank is None else (rank,)
    return [(number, path.with_name(path.name.replace(RANK, str(number)))) for number in wanted]


def _check_new(parsed: argparse.Namespace, job: JobPlan) -> None:
    """Raises `RequestError` for a file that is there, or is named twice, before anything is written."""
    paths = [path for name in _FILES if (given := getattr(parsed, name)) for _, path in _ranks(given, job, parsed.rank)]
    for path in {path for path in paths if paths.count(path) > 1}:
        raise RequestError(f"{text.shown(path, 200)} is named for two formats. Give each format a file of its own.")
    folder = parsed.parquet
    there = [path for path in paths if path.exists()] + (sorted(folder.glob("*.parquet")) if folder else [])
    if there and not parsed.force:
        raise RequestError(
            f"{text.shown(there[0], 200)} is there already. Name another file, or give --force to overwrite it."
        )
    for path in paths:
        if not path.parent.is_dir():
            raise RequestError(
                f"there is no folder {text.shown(path.parent, 200)} to write {text.shown(path.name)} to. Make it first."
            )
        if path.is_dir():
            raise RequestError(f"{text.shown(path, 200)} is a folder. Name a file.")

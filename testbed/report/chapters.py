"""The report's chapter on one figure, as data: numbers, texts and links, without any reference to runs.

``figures/<id>.json`` keeps it, so that a report can be renewed figure by figure, from results that need not lie in one place or
exist any more (``report --keep``).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from testbed.core import folders, text
from testbed.core.environment import ROOT
from testbed.core.errors import RequestError
from testbed.core.runs.load import Run
from testbed.core.runs.manifest import Manifest
from testbed.report import observations as observed
from testbed.report import rerun_command, stalls, suspects
from testbed.report.drawing import rate
from testbed.report.sections import Section

VERSION = 2


class Link(msgspec.Struct, frozen=True):
    """A file or a run directory: what to call it, and where it is from the report's place."""

    text: str
    href: str


class Experiment(msgspec.Struct, frozen=True):
    """The run directories of one, a row each system."""

    name: str
    rows: tuple[tuple[str, tuple[Link, ...]], ...]


class Chapter(msgspec.Struct, frozen=True):
    """A figure of the report."""

    version: int
    id: str
    title: str
    text: str
    problems: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    files: tuple[Link, ...]
    experiments: tuple[Experiment, ...]
    command: str  # that makes its runs again
    verify: str | None  # that repeats one of them
    quick: bool  # mostly or wholly from the quick set
    drawn: bool  # there was something to draw
    runs: int  # those of jobs alone included
    wall_s: float
    made: dict[
        str, dict[str, int]
    ]  # provenance of the runs: for each property its values, and the number of runs with each
    started: tuple[str, str] | None  # the first and the last

    def tables(self, here: Path) -> dict[str, Path]:
        """Return its tables by name, for a report in the folder ``here``."""
        return {Path(link.text).stem: here / unquote(link.href) for link in self.files if link.text.endswith(".csv")}

    @property
    def images(self) -> list[str]:
        """Return links to its images, relative to the report; the first is shown in the report itself, the others in
        the appendix."""
        return [link.href for link in self.files if link.text.endswith(".png")]


def make_chapter(section: Section, results: Path, here: Path) -> Chapter:
    """The chapter on a figure of ``results`` for a report in ``here``."""
    figure, runs = section.figure, section.every_run
    first = section.study.runs[0] if section.study.runs else None
    started = sorted(run.manifest.started for run in runs)
    return Chapter(
        version=VERSION,
        id=figure.ID,
        title=figure.TITLE,
        text=figure.TEXT,
        problems=section.problems,
        facts=tuple(_facts(section)),
        files=tuple(_link(path, here, path.name) for path in section.files),
        experiments=tuple(
            Experiment(
                one.path.name,
                tuple(
                    (cc, tuple(_link(run.path, here, str(run.seed)) for run in one.runs_of(cc))) for cc in one.systems
                ),
            )
            for one in section.study.experiments
        ),
        command="\n".join(commands(section, _relative(results, Path.cwd()))),
        verify=_verify(first.path) if first and first.manifest.uml else None,
        quick=_quick(section),
        drawn=not section.study.is_empty,
        runs=len(runs),
        wall_s=section.wall_s,
        made=_made_by(runs),
        started=(started[0], started[-1]) if started else None,
    )


def keep(chapter: Chapter, figures: Path) -> None:
    """Write ``<id>.json`` next to the figure's files."""
    figures.mkdir(parents=True, exist_ok=True)
    folders.put(_place(chapter.id, figures), msgspec.json.format(msgspec.json.encode(chapter), indent=1) + b"\n")


def kept(id: str, figures: Path) -> Chapter | None:
    """An earlier report's chapter on a figure; None: there is none. Raises `RequestError` for a file from another release."""
    place = _place(id, figures)
    try:
        found = msgspec.json.decode(place.read_bytes(), type=Chapter)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise RequestError(
            f"{place} is not a kept part of a report ({error}). Leave out --keep, or remove it."
        ) from error
    if found.version != VERSION:
        raise RequestError(
            f"{place} is of version {found.version}, but this release needs {VERSION}. Leave out --keep."
        )
    return found


def renew(id: str, title: str, text: str, figures: Path) -> None:
    """Update the chapter of a redrawn figure, where a report has kept one."""
    if chapter := kept(id, figures):
        there = tuple(link for link in chapter.files if (figures / link.text).is_file())
        keep(msgspec.structs.replace(chapter, title=title, text=text, files=there), figures)


def forget(id: str, figures: Path) -> None:
    """Remove the stored part of a figure, so that later reports do not contain it."""
    _place(id, figures).unlink(missing_ok=True)


def _place(id: str, figures: Path) -> Path:
    return figures / f"{id}.json"


def _verify(run: Path) -> str | None:
    """The command that repeats a run; None if its name is not one to be typed."""
    path = _relative(run, Path.cwd())
    return text.command("verify", path) if path == text.plain(path) else None


def _facts(section: Section) -> list[tuple[str, str]]:
    runs = section.study.runs
    if (computed := section.study.schedules) and not runs:
        made = computed.made
        return [
            ("computed", f"{len(computed.table)} schedules, by the model; nothing was emulated"),
            ("seeds", str(computed.table["seed"].nunique())),
            ("by", f"testbed {made.testbed}, source {made.source_sha256[:12]}, commit {made.git_commit or 'unknown'}"),
            ("wall time", duration(made.wall_s)),
        ]
    if not runs:
        return []
    verdicts = Counter(run.verdict.verdict for run in section.every_run)
    return [
        ("rate", ", ".join(rate(bps) for bps in sorted({run.rate_bps for run in runs}))),
        ("jobs", _several(len(run.jobs) for run in runs)),
        ("seeds", _range(len({run.seed for run in one.runs}) for one in section.study.experiments)),
        ("iterations", _several(job.iterations for run in runs for job in run.jobs)),
        *([("arms", ", ".join(found))] if (found := observed.arms(runs)) else []),
        ("where", ", ".join(sorted({run.manifest.backend for run in runs}))),
        ("runs", f"{len(section.every_run)} ({', '.join(f'{count} {verdict}' for verdict, count in sorted(verdicts.items(), reverse=True))})"),
        ("wall time", f"{duration(section.wall_s)} (one run at a time)"),
        ("stalls", stalls.describe_stalls(section.study.paths)),
        *([("suspect", reason)] if (reason := suspects.describe_suspects(section.study.paths)) else []),
    ]  # fmt: skip


def _made_by(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    questions: dict[str, Callable[[Manifest], str]] = {
        "testbed": lambda m: f"{m.testbed}, source {m.source_sha256[:12]}, commit {m.git_commit or 'unknown'}",
        "where": lambda m: f"{m.backend}, {m.kernel}",
        "user-mode Linux": lambda m: "–" if m.uml is None else f"{m.uml.version}, {m.uml.source}, {m.uml.compiler}",
        "Python": lambda m: m.python,
        "packages": lambda m: ", ".join(f"{name} {version}" for name, version in m.packages.items()),
    }
    return {question: dict(Counter(answer(run.manifest) for run in runs)) for question, answer in questions.items()}


def commands(section: Section, results: str) -> list[str]:
    """The command that makes its runs again: as they were made (backend, settings), for this figure alone, into ``results``.

    A run whose command cannot be offered, and names no custom program or file, is made by its experiment's file.
    """
    found: dict[str, None] = {}
    for stem, recorded in _made(section):
        file = f"experiments/{stem}.toml"
        command = rerun_command.command(recorded, file, results)
        if command == rerun_command.NOT_OFFERED and not rerun_command.names_programs(recorded):
            command = rerun_command.command(
                ("", "sweep", *(["--quick"] if "--quick" in recorded else [])), file, results
            )
        found[command] = None
    return list(found) or [rerun_command.command((), f"experiments/{section.figure.ID}.toml", results)]


def _quick(section: Section) -> bool:
    """Return True if most of its runs are from the quick set (of several bases one may be, while others are complete)."""
    recorded = [recorded for _, recorded in _made(section)]
    return 2 * sum("--quick" in one for one in recorded) > len(recorded)


def _made(section: Section) -> list[tuple[str, tuple[str, ...]]]:
    """Return the stem of each experiment's file, and the command that made it."""
    computed = section.study.schedules
    id = None if hasattr(section.figure, "EXPERIMENTS") else section.figure.ID
    made = [(_stem(id, run), run.manifest.command) for run in section.study.runs]
    return made + ([(id or computed.made.experiment, computed.made.command)] if computed else [])


def _stem(figure: str | None, run: Run) -> str:
    """Of the file that an experiment's name comes from: ``convergence``, ``convergence.cubic``, ``twin/twin.flow``."""
    id, dot, point = run.plan.experiment.partition(".")
    id = figure or id
    name = f"{id}{dot}{point}."
    return max((stem for stem in _stems() if name.startswith(f"{stem.rpartition('/')[2]}.")), key=len, default=id)


@cache
def _stems() -> tuple[str, ...]:
    """The project's experiment files, below ``experiments``."""
    folder = Path(ROOT, "experiments")
    return tuple(str(path.relative_to(folder).with_suffix("")) for path in sorted(folder.rglob("*.toml")))


def duration(seconds: float) -> str:
    """``12 s``, ``12 min``, ``1.2 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def short_name(run: Path) -> str:
    """A run directory as the reader of its figure identifies it: of its experiment the point's first value, of the point, cc and seed."""
    experiment, cc, seed = run.parts[-3:]
    _, *point = experiment.split(".")
    return "/".join([point[0] + (" …" if len(point) > 1 else ""), cc, seed] if point else [cc, seed])


def _several(values: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(values))))


def _range(values: Iterable[int]) -> str:
    different = sorted(set(values))
    return str(different[0]) if len(different) == 1 else f"{different[0]} to {different[-1]}"


def _link(path: Path, here: Path, text: str | None = None) -> Link:
    relative = _relative(path, here)
    return Link(text or short_name(path), quote(relative) + ("/" if path.is_dir() else ""))


def _relative(path: Path, here: Path) -> str:
    return os.path.relpath(path, here)

"""The report: every claim with its verdict, every figure with its text, and what made them; one HTML file, and Markdown.

``python -m analysis report RESULTS --out report.html`` draws the figures and writes ``report.html``, ``report.md`` and
``claims.csv``.
The HTML holds its images and needs no network; links lead to the run directories, relative to it. A pure function of
files: the same results give the same bytes.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isinf
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from analysis import again, claims, drawing, sections, stalls, suspects
from analysis.finding import VERDICTS, Finding
from analysis.sections import Section
from core import text
from core.runs import repeated
from core.runs.load import Run
from core.runs.manifest import Manifest

MARKS = {"reproduced": "✓", "partly": "◐", "no difference": "=", "not reproduced": "✗", "not measured": "–"}


@dataclass(frozen=True)
class Link:
    """A run directory: what to call it, and where it is from the report's place."""

    text: str
    href: str


def write(results: Path, figures: Path, out: Path) -> list[Section]:
    """Draw every figure to ``figures`` and write ``out`` (HTML), the same as ``.md``, and ``claims.csv``; what they hold."""
    found = list(sections.every(results, figures))
    out.parent.mkdir(parents=True, exist_ok=True)
    context = _context(found, results, out.parent)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=jinja2.select_autoescape(["html.j2"], default=False),
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["md"] = markdown
    for path, template in ((out, "report.html.j2"), (out.with_suffix(".md"), "report.md.j2")):
        path.write_text(environment.get_template(template).render(context))
    drawing.write_table(claims.table(found), out.with_name("claims.csv"))
    return found


def _context(found: list[Section], results: Path, here: Path) -> dict[str, Any]:
    shown = [section for section in found if not section.study.is_empty or section.study.problems]
    runs = [run for section in shown for run in section.every_run]
    quick = [section.figure.ID for section in shown if _quick(section)]
    return {
        "verdicts": _tally(found),
        "marks": MARKS,
        "papers": [_paper(name, found, here) for name in dict.fromkeys(map(claims.paper, found))],
        "sections": [_section(section, results, here) for section in shown],
        "missing": [section.figure for section in found if section not in shown],
        "problems": sum(len(section.problems) for section in found),
        "provenance": _provenance(runs, results),
        "runs": len(runs),
        "by_chance": claims.by_chance(found),
        "wall": _duration(sum(run.manifest.wall_s for run in runs)),
        "quick": quick,
        "all_quick": len(quick) == len(shown),
    }


def _tally(found: Iterable[Section]) -> list[tuple[str, int]]:
    """How many claims have each verdict."""
    counts = Counter(finding.verdict for section in found for finding in section.findings)
    return [(verdict, counts[verdict]) for verdict in VERDICTS]


def _paper(name: str, found: Iterable[Section], here: Path) -> dict[str, Any]:
    """The claims of one paper, those that were measured first."""
    own = [section for section in found if claims.paper(section) == name]
    rows = [(section, _claim(finding, here)) for section in own for finding in section.findings]
    return {
        "title": claims.PAPERS.get(name, name),
        "verdicts": [(verdict, count) for verdict, count in _tally(own) if count],
        "claims": sorted(rows, key=lambda row: row[1]["finding"].verdict == "not measured"),
    }


def _claim(finding: Finding, here: Path) -> dict[str, Any]:
    return {
        "finding": finding,
        "number": number(finding.value),
        "interval": None if finding.interval is None else _interval(*finding.interval),
        "runs": len(finding.runs),
        "stalls": stalls.of(finding.runs),
        "suspects": suspects.of(finding.runs),
        "first": _link(finding.runs[0], here) if finding.runs else None,
    }


def _section(section: Section, results: Path, here: Path) -> dict[str, Any]:
    runs = section.study.runs
    return {
        "figure": section.figure,
        "images": [base64.b64encode(path.read_bytes()).decode() for path in section.files if path.suffix == ".png"],
        "files": [_link(path, here, path.name) for path in section.files],
        "claims": [_claim(finding, here) for finding in section.findings],
        "problems": section.problems,
        "facts": _facts(section),
        "experiments": [
            {
                "name": experiment.path.name,
                "rows": [(cc, [_link(run.path, here, str(run.seed)) for run in experiment.of(cc)]) for cc in experiment.systems],
            }
            for experiment in section.study.experiments
        ],
        "command": "\n".join(_commands(section, _relative(results, Path.cwd()))),
        "verify": _verify(runs[0].path) if runs and runs[0].manifest.uml else None,
    }  # fmt: skip


def _verify(run: Path) -> str | None:
    """The command that repeats a run; None if its name is not one to be typed."""
    path = _relative(run, Path.cwd())
    return shlex.join(["python", "testbed/run.py", "--verify", path]) if path == text.plain(path) else None


def markdown(said: object) -> str:
    """Text from results for ``report.md``: in one line, and neither HTML nor Markdown."""
    escaped = text.plain(said).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`\[\]|])", r"\\\1", escaped)


def _facts(section: Section) -> list[tuple[str, str]]:
    runs = section.study.runs
    if computed := section.study.schedules:
        made = computed.made
        return [
            ("computed", f"{len(computed.table)} schedules, by the model; nothing was emulated"),
            ("seeds", str(computed.table["seed"].nunique())),
            ("by", f"testbed {made.testbed}, source {made.source_sha256[:12]}, commit {made.git_commit or 'unknown'}"),
            ("wall time", _duration(made.wall_s)),
        ]
    if not runs:
        return []
    verdicts = Counter(run.verdict.verdict for run in section.every_run)
    return [
        ("rate", ", ".join(_rate(bps) for bps in sorted({run.rate_bps for run in runs}))),
        ("jobs", _several(len(run.jobs) for run in runs)),
        ("seeds", _range(len({run.seed for run in one.runs}) for one in section.study.experiments)),
        ("iterations", _several(job.iterations for run in runs for job in run.jobs)),
        ("where", ", ".join(sorted({run.manifest.substrate for run in runs}))),
        ("runs", f"{len(section.every_run)} ({', '.join(f'{count} {verdict}' for verdict, count in sorted(verdicts.items(), reverse=True))})"),
        ("wall time", f"{_duration(section.wall_s)} (one run at a time)"),
    ]  # fmt: skip


def _provenance(runs: Sequence[Run], results: Path) -> list[tuple[str, list[str]]]:
    """What made the runs: each distinct answer, and of how many runs it is true if there are several."""
    questions: dict[str, Callable[[Manifest], str]] = {
        "testbed": lambda m: f"{m.testbed}, source {m.source_sha256[:12]}, commit {m.git_commit or 'unknown'}",
        "where": lambda m: f"{m.substrate}, {m.kernel}",
        "user-mode Linux": lambda m: "–" if m.uml is None else f"{m.uml.version}, {m.uml.source}, {m.uml.compiler}",
        "Python": lambda m: m.python,
        "packages": lambda m: ", ".join(f"{name} {version}" for name, version in m.packages.items()),
    }  # fmt: skip
    found = []
    for name, answer in questions.items():
        counts = Counter(answer(run.manifest) for run in runs)
        lines = [text if len(counts) == 1 else f"{text} ({count} runs)" for text, count in sorted(counts.items())]
        found.append((name, lines))
    started = sorted(run.manifest.started for run in runs)
    if started:
        found.append(("run between", [f"{started[0]} and {started[-1]}"]))
    if said := repeated.read(results):
        found.append(("repeated, and compared", [str(said)]))
    return found


def _commands(section: Section, results: str) -> list[str]:
    """What makes its runs again: as they were made (where, what was set), for this figure alone, into ``results``."""
    found = dict.fromkeys(again.command(said, f"experiments/{stem}.toml", results) for stem, said in _made(section))
    return list(found) or [again.command((), f"experiments/{section.figure.ID}.toml", results)]


def _quick(section: Section) -> bool:
    """Whether most of its runs are from the quick set (of several bases one may be, while the others are in full)."""
    said = _said(section)
    return 2 * sum("--quick" in one for one in said) > len(said)


def _said(section: Section) -> list[tuple[str, ...]]:
    """The commands that made it, as they were typed."""
    return [said for _, said in _made(section)]


def _made(section: Section) -> list[tuple[str, tuple[str, ...]]]:
    """The stem of each experiment's file, and the command that made it, as it was typed."""
    computed = section.study.schedules
    made = [(_stem(section.figure.ID, run), run.manifest.command) for run in section.study.runs]
    return made + ([(section.figure.ID, computed.made.command)] if computed else [])


def _stem(id: str, run: Run) -> str:
    """``convergence``, or ``convergence.cubic`` where a base has a file of its own."""
    of = run.plan.experiment.removeprefix(f"{id}.").partition(".")[0]
    named = of in {name for control in run.plan.system.congestion for name in (control.name, control.base)}
    return f"{id}.{of}" if named else id


def number(value: float | None) -> str:
    """A measured number with three digits (a whole one without a point); infinity is an iteration that never came."""
    if value is None:
        return "–"
    if isinf(value):
        return "never"
    return (f"{value:g}" if value == round(value) else f"{value:#.3g}".rstrip(".")).replace("-", "−")


def _interval(low: float, high: float) -> str:
    """An interval as text; one whose ends are the same in three digits has no spread worth two numbers."""
    ends = number(low), number(high)
    return f"{ends[0]}, no spread" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _rate(bps: int) -> str:
    return f"{bps / 1e9:g} Gbit/s" if bps >= 10**9 else f"{bps / 1e6:g} Mbit/s"


def _several(values: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(values))))


def _range(values: Iterable[int]) -> str:
    different = sorted(set(values))
    return str(different[0]) if len(different) == 1 else f"{different[0]} to {different[-1]}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _link(path: Path, here: Path, text: str | None = None) -> Link:
    relative = _relative(path, here)
    return Link(text or short_name(path), quote(relative) + ("/" if path.is_dir() else ""))


def short_name(run: Path) -> str:
    """A run directory as its figure's reader knows it: of its experiment the point's first value, of the point, cc and seed."""
    experiment, cc, seed = run.parts[-3:]
    _, *point = experiment.split(".")
    return "/".join([point[0] + (" …" if len(point) > 1 else ""), cc, seed] if point else [cc, seed])


def _relative(path: Path, here: Path) -> str:
    return os.path.relpath(path, here)

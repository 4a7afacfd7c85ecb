"""The report: every claim with its verdict, every figure with its text, and what made them; one HTML file, and Markdown.

``mltcp report RESULTS --out report.html`` draws the figures and writes ``report.html``, ``report.md`` and
``claims.csv``.
The HTML holds its images and needs no network; links lead to the run directories, relative to it. A pure function of
files: the same results give the same bytes.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from math import isinf
from pathlib import Path
from typing import Any

import jinja2

from testbed.core import folders, text
from testbed.core.runs import determinism_log
from testbed.report import abstracts, boundaries, chapters, claims, drawing, sections
from testbed.report.chapters import Chapter
from testbed.report.finding import VERDICTS

MARKS = {"reproduced": "✓", "partly": "◐", "no difference": "=", "not reproduced": "✗", "not measured": "–"}


def write(
    results: Path, figures: Path, out: Path, *, keep: bool = False, only: Collection[str] | None = None,
    drawn: Callable[[], None] = lambda: None,
) -> list[Chapter]:  # fmt: skip
    """Draw every figure to ``figures`` and write ``out`` (HTML), the same as ``.md``, and ``claims.csv``; what they say.

    ``keep``: a figure that ``results`` holds nothing for stays as the last report that was written with these ``figures``
    had it. ``only``: the report is of these figures; nothing is said or changed of the others. ``drawn`` is called after each figure. Raises `RequestError` for what no
    report left there.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    found = list[Chapter]()
    for section in sections.every(results, figures, only):
        found.append(_chapter(section, results, figures, out.parent, keep))
        drawn()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=jinja2.select_autoescape(["html.j2"], default=False),
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters.update(md=markdown, number=number, interval=interval)
    environment.filters["image"] = lambda href: base64.b64encode((out.parent / href).read_bytes()).decode()
    context = _context(found, results, limited=only is not None)
    for path, template in ((out, "report.html.j2"), (out.with_suffix(".md"), "report.md.j2")):
        folders.put(path, environment.get_template(template).render(context).encode())
    drawing.write_table(claims.table(found), out.with_name("claims.csv"))
    return found


def _chapter(section: sections.Section, results: Path, figures: Path, here: Path, keep: bool) -> Chapter:
    if section.study.is_empty and not section.study.problems:
        if keep and (kept := chapters.kept(section.figure.ID, figures)):
            return kept
        chapters.forget(section.figure.ID, figures)
        return chapters.make_chapter(section, results, here)
    made = chapters.make_chapter(section, results, here)
    chapters.keep(made, figures)
    return made


def _context(found: Sequence[Chapter], results: Path, *, limited: bool) -> dict[str, Any]:
    shown = [chapter for chapter in found if chapter.drawn or chapter.problems]
    quick = [chapter.id for chapter in shown if chapter.quick]
    by = abstracts.judges(found)
    return {
        "verdicts": _tally(found),
        "marks": MARKS,
        "papers": [
            _paper(name, found, by, limited=limited) for name in dict.fromkeys(chapter.paper for chapter in found)
        ],
        "boundaries": [
            (one, by.get(one.gain), by.get(one.there))
            for one in boundaries.BOUNDARIES
            if not limited or {one.gain, one.there} & by.keys()
        ],
        "chapters": shown,
        "missing": [chapter.id for chapter in found if chapter not in shown],
        "problems": sum(len(chapter.problems) for chapter in found),
        "provenance": _provenance(shown, results),
        "runs": sum(chapter.runs for chapter in shown),
        "by_chance": claims.by_chance(found),
        "wall": chapters.duration(sum(chapter.wall_s for chapter in shown)),
        "quick": quick,
        "all_quick": len(quick) == len(shown),
    }


def _tally(found: Iterable[Chapter]) -> list[tuple[str, int]]:
    """How many claims have each verdict."""
    counts = Counter(claim.verdict for chapter in found for claim in chapter.claims)
    return [(verdict, counts[verdict]) for verdict in VERDICTS]


def _paper(name: str, found: Iterable[Chapter], by: abstracts.Judges, *, limited: bool) -> dict[str, Any]:
    """The claims of one paper, those that were measured first, and the sentences of its abstracts.

    ``limited``: of the sentences those that a claim of this report judges.
    """
    own = [chapter for chapter in found if chapter.paper == name]
    rows = [(chapter, claim) for chapter in own for claim in chapter.claims]
    return {
        "title": claims.PAPERS.get(name, name),
        "verdicts": [(verdict, count) for verdict, count in _tally(own) if count],
        "claims": sorted(rows, key=lambda row: row[1].verdict == "not measured"),
        "abstracts": [
            (one.title, said)
            for one in abstracts.ABSTRACTS
            if one.paper == name and (said := _judged(one, by, limited=limited))
        ],
    }


def _judged(abstract: abstracts.Abstract, by: abstracts.Judges, *, limited: bool) -> list[abstracts.Judged]:
    judged = abstracts.judged(abstract, by)
    return [one for one in judged if not limited or any(claim in by for claim in one.sentence.claims)]


def _provenance(shown: Sequence[Chapter], results: Path) -> list[tuple[str, list[str]]]:
    """What made the runs: each distinct answer, and of how many runs it is true if there are several."""
    counts: dict[str, Counter[str]] = {}
    for chapter in shown:
        for question, answers in chapter.made.items():
            counts.setdefault(question, Counter()).update(answers)
    found = [
        (question, [answer if len(answers) == 1 else f"{answer} ({drawing.count(count, 'run')})" for answer, count in sorted(answers.items())])
        for question, answers in counts.items()
    ]  # fmt: skip
    started = [at for chapter in shown if chapter.started for at in chapter.started]
    if started:
        found.append(("run between", [f"{min(started)} and {max(started)}"]))
    if said := determinism_log.read(results):
        found.append(("repeated, and compared", [str(said)]))
    return found


def markdown(said: object) -> str:
    """Text from results for ``report.md``: in one line, and neither HTML nor Markdown."""
    escaped = text.plain(said).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`\[\]|])", r"\\\1", escaped)


def number(value: float | None) -> str:
    """A measured number with three digits (a whole one without a point); infinity is an iteration that never came."""
    if value is None:
        return "–"
    if isinf(value):
        return "never"
    return (f"{value:g}" if value == round(value) else f"{value:#.3g}".rstrip(".")).replace("-", "−")


def interval(ends: tuple[float, float] | None) -> str:
    """An interval as text, empty without one; one whose ends are the same in three digits has no spread worth two numbers."""
    if ends is None:
        return ""
    low, high = map(number, ends)
    return f"{low}, no spread" if low == high else f"{low} to {high}"

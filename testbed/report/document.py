"""The report: headlines, what holds of each paper, every figure with its text, threats to validity, and what made it all.

``mltcp report RESULTS --out report.html`` draws the figures and writes ``report.html``, ``report.md``, ``appendix.html`` (every
claim with criterion and control, every run, every further image) and ``claims.csv``. ``report.html`` holds its images and needs
no network; links lead to files relative to it. A pure function of files: the same results give the same bytes.
"""

from __future__ import annotations

import base64
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jinja2
import pandas as pd
from PIL import Image

from testbed.core import folders, text
from testbed.core.environment import ROOT
from testbed.core.runs import determinism_log
from testbed.report import chapters, drawing, pages, sections, style, verdicts
from testbed.report import figures as figures_of
from testbed.report.chapters import Chapter
from testbed.report.claims import Content
from testbed.report.explorer import page
from testbed.report.grading import MARKS, VERDICTS, Graded

WIDEST, HIGHEST, COLOURS = 860, 2800, 64  # of an image in the page
KEPT = Path(ROOT, "docs", "report", "claims.csv")  # claims of the kept report, for comparison with a quick set


def write(
    results: Path, figures: Path, out: Path, *, keep: bool = False, only: Collection[str] | None = None,
    drawn: Callable[[], None] = lambda: None, explorer: Path | None = None,
) -> tuple[list[Chapter], list[Graded]]:  # fmt: skip
    """Draw every figure to ``figures`` and write ``out`` (HTML), the same as ``.md``, the appendix and ``claims.csv``;
    return the chapters.

    ``keep``: a figure without results stays as in the last report with these ``figures``. ``only``: figures of the
    report; chapters of others stay unchanged. ``drawn`` is called after each figure. ``explorer``: a file of
    `testbed.report.explorer`, to which figures link. Raises `RequestError` for files in ``figures`` that no report
    wrote, or for a file that is no explorer.
    """
    links = {} if explorer is None else page.links(explorer, out.parent)
    out.parent.mkdir(parents=True, exist_ok=True)
    found = list[Chapter]()
    for section in sections.every(results, figures, only):
        found.append(_chapter(section, results, figures, out.parent, keep))
        drawn()
    return found, render(found, results, out, limited=only is not None, explored=links)


def render(
    found: Sequence[Chapter],
    results: Path,
    out: Path,
    *,
    limited: bool = False,
    explored: Mapping[str, str] | None = None,
) -> list[Graded]:
    """Grade all claims; write ``out``, the same as ``.md``, the appendix and ``claims.csv``. ``limited``: only the claims of these figures.

    ``explored``: links to the explorer by experiment.
    """
    content = figures_of.claims()
    by_id = {chapter.id: chapter for chapter in found}
    claimed = [claim for claim in content.claim if not limited or claim.figure in by_id]
    graded, wrong = verdicts.of_chapters(claimed, by_id, out.parent)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=jinja2.select_autoescape(["html.j2"], default=False),
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters.update(
        md=markdown,
        finding=pages.finding,
        spread=pages.spread,
        measured=pages.measured,
        told=pages.told,
        other_arm=pages.other_arm,
    )
    environment.filters.update(number=pages.number, spread_of=pages.spread_of, value=pages.value)
    environment.filters["image"] = lambda href: base64.b64encode(_small(out.parent / unquote(href))).decode()
    environment.filters["alt"] = lambda href: style.description(out.parent / unquote(href))
    context = _context(found, graded, content, results) | {
        "wrong": wrong,
        "report": out.name,
        "explored": explored or {},
    }
    for path, template in (
        (out, "report.html.j2"), (out.with_suffix(".md"), "report.md.j2"), (out.with_name("appendix.html"), "appendix.html.j2"),
    ):  # fmt: skip
        folders.put(path, environment.get_template(template).render(context).encode())
    drawing.write_table(verdicts.table(graded), out.with_name("claims.csv"))
    return graded


def _chapter(section: sections.Section, results: Path, figures: Path, here: Path, keep: bool) -> Chapter:
    if section.study.is_empty and not section.study.problems:
        if keep and (kept := chapters.kept(section.figure.ID, figures)):
            return kept
        chapters.forget(section.figure.ID, figures)
        return chapters.make_chapter(section, results, here)
    made = chapters.make_chapter(section, results, here)
    chapters.keep(made, figures)
    return made


def _context(found: Sequence[Chapter], graded: Sequence[Graded], content: Content, results: Path) -> dict[str, Any]:
    shown = [chapter for chapter in found if chapter.drawn or chapter.problems]
    quick = [chapter.id for chapter in shown if chapter.quick]
    kept = pd.read_csv(KEPT) if quick and KEPT.is_file() else None
    by_figure: dict[str, list[Graded]] = defaultdict(list)
    for one in graded:
        by_figure[one.claim.figure].append(one)
    return {
        "verdicts": VERDICTS,
        "marks": MARKS,
        "headlines": sorted((one for one in graded if one.claim.headline), key=lambda one: one.claim.headline),
        "pages": pages.pages(found, graded, content),
        "threats": {about: [one for one in content.threat if one.about == about] for about in dict.fromkeys(one.about for one in content.threat)},
        "by_figure": by_figure,
        "agrees": defaultdict(str) if kept is None else defaultdict(str, {one.claim.id: verdicts.agreement(one, kept) for one in graded if one.claim.figure in quick}),
        "chapters": shown,
        "drawn": {chapter.id for chapter in shown},
        "missing": [chapter.id for chapter in found if chapter not in shown],
        "problems": sum(len(chapter.problems) for chapter in found),
        "provenance": _provenance(shown, results),
        "runs": sum(chapter.runs for chapter in shown),
        "by_chance": verdicts.by_chance(graded),
        "wall": chapters.duration(sum(chapter.wall_s for chapter in shown)),
        "quick": quick,
        "all_quick": len(quick) == len(shown),
    }  # fmt: skip


def _small(image: Path) -> bytes:
    """Return a PNG for the page: no wider than a screen, with a palette. The file itself stays unchanged."""
    with Image.open(image) as drawn:
        shown = drawn.convert("RGB")
    shown.thumbnail((WIDEST, HIGHEST))
    found = io.BytesIO()
    shown.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(found, "PNG", optimize=True)
    return found.getvalue()


def _provenance(shown: Sequence[Chapter], results: Path) -> list[tuple[str, list[str]]]:
    """How the runs were made: each distinct answer, and the number of its runs if there are several."""
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
    if sample := determinism_log.read(results):
        found.append(("repeated, and compared", [str(sample)]))
    return found


def markdown(value: object) -> str:
    """Text from results for ``report.md``: in one line, and neither HTML nor Markdown."""
    escaped = text.plain(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`\[\]|])", r"\\\1", escaped)

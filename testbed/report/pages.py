"""The report paper by paper: which claims hold, which do not, where jobs are slower, and the paper's figures next to ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isinf
from pathlib import Path

from testbed.report import figures as figures_of
from testbed.report import verdicts
from testbed.report.chapters import Chapter
from testbed.report.claims import OURS, PAPERS, Content
from testbed.report.grading import Case, Graded, Verdict

FOLDERS = {
    "mltcp": "MLTCP",
    "ltp": "LTP",
    "mlt": "MLT",
    "sjf_bco": "SJF-BCO",
}  # folders of analysis/; figures of other folders are the testbed's own


@dataclass(frozen=True)
class Row:
    """A figure or sentence of a paper, our figure, and the claims with expectation and measurement."""

    place: str  # place in the paper; empty: the testbed's own
    chapter: Chapter
    claims: tuple[Graded, ...]

    @property
    def command(self) -> str:
        """The commands that make the runs and the report of this figure."""
        return f"make reproduce FIGURE={self.chapter.id}"

    @property
    def minutes(self) -> str:
        """Return the wall time in minutes of all runs, one at a time; a dash without runs."""
        minutes = self.chapter.wall_s / 60
        return "–" if not minutes else "< 1" if minutes < 1 else f"{minutes:.0f}"


@dataclass(frozen=True)
class Page:
    """A paper's part of the report."""

    paper: str
    title: str
    claims: tuple[Graded, ...]
    counts: dict[Verdict, int]
    slower: tuple[tuple[Graded, Case], ...]
    rows: tuple[Row, ...]
    chapters: tuple[Chapter, ...]  # chapters that were drawn, or have text
    abstracts: dict[str, list[verdicts.Judged]]
    next_to: frozenset[str] = frozenset()  # ids of claims of another arm, whose number is shown next to the paper's

    @property
    def name(self) -> str:
        """Return a short name."""
        return "this testbed" if self.paper == OURS else self.paper

    @property
    def headlines(self) -> list[Graded]:
        """Return its claims on the report's first screen."""
        return sorted((one for one in self.claims if one.claim.headline), key=lambda one: one.claim.headline)

    @property
    def slowest(self) -> list[tuple[Graded, Case]]:
        """The slowest case of each claim that has slower ones."""
        found = dict[str, tuple[Graded, Case]]()
        for one, case in self.slower:
            found.setdefault(one.claim.id, (one, case))
        return list(found.values())

    @property
    def holds(self) -> list[Graded]:
        """Return its other claims that are reproduced, at least in part."""
        return self._others("reproduced", "partly")

    @property
    def fails(self) -> list[Graded]:
        """Return its other claims that are not reproduced, or that the base fulfils as well."""
        return self._others("not reproduced", "no difference")

    def _others(self, *of: Verdict) -> list[Graded]:
        return [
            one
            for verdict in of
            for one in self.claims
            if one.verdict == verdict and not one.claim.headline and one.claim.id not in self.next_to
        ]


def pages(found: Sequence[Chapter], graded: Sequence[Graded], content: Content) -> list[Page]:
    """Return a page for each paper with a claim or a figure in this report, and one for the testbed's own."""
    papers = {figure.ID: _paper_of(figure, graded) for figure in figures_of.every()}
    claims = verdicts.by_paper(graded)
    abstracts = verdicts.judged(content, graded)
    made = []
    for paper, title in PAPERS.items():
        chapters = tuple(one for one in found if papers.get(one.id, OURS) == paper)
        own = tuple(claims.get(paper, ()))
        shown = tuple(one for one in chapters if one.drawn or one.problems)
        if not own and not shown:
            continue
        ids = {one.id for one in chapters}
        of_figures = [one for one in graded if one.claim.figure in ids]
        made.append(
            Page(
                paper,
                title,
                own,
                verdicts.counts(own),
                tuple(_slower(of_figures)),
                tuple(_rows(chapters, of_figures)),
                shown,
                abstracts.get(paper, {}),
                frozenset(one.claim.beside for one in graded if one.claim.beside),
            )
        )
    return made


def _paper_of(figure: figures_of.Figure, graded: Iterable[Graded]) -> str:
    """By its folder; for a figure elsewhere the only paper with a claim that it measures."""
    if (file := getattr(figure, "__file__", None)) and (paper := FOLDERS.get(Path(file).parent.name)):
        return paper
    measured = {one.claim.paper for one in graded if one.claim.figure == figure.ID} - {OURS}
    return measured.pop() if len(measured) == 1 else OURS


def _slower(graded: Iterable[Graded]) -> Iterator[tuple[Graded, Case]]:
    """Yield every case whose complete interval is slower, once, even if several claims are about it."""
    seen = set()
    for one in graded:
        for case in one.slower:
            key = (one.claim.figure, case.name, round(case.value, 3))
            if key not in seen:
                seen.add(key)
                yield one, case


def _rows(chapters: Iterable[Chapter], graded: Sequence[Graded]) -> Iterator[Row]:
    for chapter in chapters:
        own = [one for one in graded if one.claim.figure == chapter.id]
        of_papers = [one for one in own if one.claim.source != OURS]
        for place in dict.fromkeys(one.claim.stated for one in of_papers):
            yield Row(place, chapter, tuple(one for one in of_papers if one.claim.stated == place))
        if not of_papers and (own or chapter.drawn):
            yield Row("", chapter, tuple(own))


def finding(one: Graded) -> str:
    """A claim's number with the claimed one: ``1.48 × shorter mean, steady state (8 jobs, 50 Gbit/s); claimed: 2``."""
    case, claim = one.case, one.claim
    if case is None:
        return "–"
    name = f" ({case.name})" if case.name else ""
    return f"{value(one)} {claim.unit}{name}" + (f"; claimed: {claim.bound}" if claim.claimed is not None else "")


def value(one: Graded) -> str:
    """A claim's number alone."""
    if one.case is None:
        return "–"
    return f"{100 * one.case.value:.0f} %" if one.claim.measure.average == "every" else number(one.case.value)


def spread(one: Graded) -> str:
    """Return the interval of a claim's number as text; empty without one, and for a number that was counted once."""
    return "" if one.case is None else spread_of(one.case, share=one.claim.measure.average == "every")


def spread_of(case: Case, *, share: bool = False) -> str:
    """The interval of a case; ``share``: of runs, in percent."""
    if case.low is None or case.high is None or not case.seeds:
        return ""
    if share:
        return f"{100 * case.low:.0f} to {100 * case.high:.0f} %"
    return interval((case.low, case.high))


def measured(one: Graded) -> str:
    """Number, interval and seeds: ``1.48 (1.44 to 1.53; 10 seeds)``."""
    if one.case is None:
        return "–"
    behind = "; ".join(
        filter(None, (spread(one).removeprefix(f"{value(one)}, "), f"{one.case.seeds} seeds" if one.case.seeds else ""))
    )
    return value(one) + (f" ({behind})" if behind else "")


def other_arm(one: Graded) -> str:
    """Return the number of the neighbouring arm: ``; recommended: 1.51 (1.47 to 1.56; 5 seeds)``; empty without one."""
    if one.beside is None or one.beside.case is None:
        return ""
    return f"; {one.beside.claim.arm}: {measured(one.beside)}"


def told(one: Graded) -> str:
    """Return the number of cases in which it holds, and why it is undecided."""
    if one.case is None:
        return ""
    of = f"holds in {one.holds} of {one.cases} cases" if one.cases > 1 and one.claim.kind != "magnitude" else ""
    independent = f"{one.independent} of {one.cases} cases are independent" if one.independent < one.cases else ""
    return "; ".join(filter(None, (of, independent, one.why and f"undecided: {one.why}")))


def number(value: float | None) -> str:
    """Format a number with three digits (a whole one without a point); infinity is an iteration that never came."""
    if value is None:
        return "–"
    if isinf(value):
        return "never"
    return (f"{value:g}" if value == round(value) else f"{value:#.3g}".rstrip(".")).replace("-", "−")


def interval(ends: tuple[float, float]) -> str:
    """An interval as text; one whose ends are the same in three digits has no spread worth two numbers."""
    low, high = map(number, ends)
    return f"{low}, no spread" if low == high else f"{low} to {high}"

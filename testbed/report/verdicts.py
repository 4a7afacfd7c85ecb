"""The report's verdicts on all claims: graded, counted by paper, and by the sentences of abstracts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from testbed.report import measures
from testbed.report.chapters import Chapter
from testbed.report.claims import PAPERS, Claim, Content, Sentence
from testbed.report.grading import VERDICTS, Graded, Verdict, grade

COLUMNS = (
    "id", "paper", "source", "kind", "sentence", "figure", "arm", "claimed", "value", "low", "high", "seeds", "independent_cases",
    "verdict", "criterion", "control",
)  # fmt: skip
LEVEL = 0.95


@dataclass(frozen=True)
class Judged:
    """A sentence of an abstract, its verdict (None: no claim judges it), and its claims."""

    sentence: Sentence
    verdict: Verdict | None
    claims: tuple[Graded, ...]


def of_chapters(claims: Iterable[Claim], chapters: Mapping[str, Chapter], here: Path) -> tuple[list[Graded], list[str]]:
    """Return every claim, graded by the tables of its figure, and problems with tables.

    ``here``: the folder of the report.
    """
    found, problems = [], []
    for claim in claims:
        chapter = chapters.get(claim.figure)
        tables = chapter.tables(here) if chapter is not None and chapter.drawn else {}
        try:
            cases = measures.of_claim(claim, tables)
            base = measures.of_claim(claim, tables, of="base") if claim.base else []
            control = measures.of_claim(claim, tables, of="control") if claim.measure.by_arm else []
            learning = measures.of_claim(claim, tables, of="learning") if claim.measure.learning else []
        except measures.MeasureError as error:
            problems.append(str(error))
            cases, base, control, learning = [], [], [], []
        found.append(grade(claim, cases, base, control, learning))
    by_id = {one.claim.id: one for one in found}
    return [replace(one, beside=by_id.get(one.claim.beside)) for one in found], problems


def table(graded: Sequence[Graded]) -> pd.DataFrame:
    """``claims.csv``: a row a claim."""
    return pd.DataFrame([_row(one) for one in graded], columns=list(COLUMNS))


def _row(one: Graded) -> tuple[object, ...]:
    claim, case = one.claim, one.case
    value, low, high, seeds = (None, None, None, 0) if case is None else (case.value, case.low, case.high, case.seeds)
    return (
        claim.id, claim.paper, claim.source, claim.kind, claim.sentence, claim.figure, claim.arm, claim.bound, value, low, high, seeds,
        one.independent, one.verdict, one.criterion, one.held_against,
    )  # fmt: skip


def counts(graded: Iterable[Graded]) -> dict[Verdict, int]:
    """Return the number of claims with each verdict."""
    found = Counter(one.verdict for one in graded)
    return {verdict: found[verdict] for verdict in VERDICTS}


def by_paper(graded: Sequence[Graded]) -> dict[str, list[Graded]]:
    """Claims of each paper, and our own, separately; those that were measured first."""
    found = {paper: [one for one in graded if one.claim.paper == paper] for paper in PAPERS}
    return {paper: sorted(mine, key=lambda one: one.verdict == "not measured") for paper, mine in found.items() if mine}


def judged(content: Content, graded: Sequence[Graded]) -> dict[str, dict[str, list[Judged]]]:
    """Return, by paper and abstract, its sentences, in order.

    The testbed's own claims follow those of the paper, which judge.
    """
    by_id = {one.claim.id: one for one in graded}
    found: dict[str, dict[str, list[Judged]]] = {}
    for sentence in content.sentence:
        claims = tuple(by_id[id] for id in sentence.claims if id in by_id)
        theirs = [one.verdict for one in claims if one.claim.paper == sentence.paper]
        verdict = together(theirs) if theirs else None
        found.setdefault(sentence.paper, {}).setdefault(sentence.abstract, []).append(Judged(sentence, verdict, claims))
    return found


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict of a sentence with several claims.

    Theirs if they agree; "partly" if one of them holds at least in part; else "undecided" if one is; else the worst.
    """
    known: list[Verdict] = [verdict for verdict in verdicts if verdict != "not measured"]
    if len(set(verdicts)) == 1 or not known:
        return verdicts[0]
    if {"reproduced", "partly"} & set(known):
        return "partly"
    return "undecided" if "undecided" in known else max(known, key=VERDICTS.index)


def by_chance(graded: Iterable[Graded]) -> str:
    """Return a sentence with the number of intervals that are expected to miss their true value."""
    count = sum(one.case is not None and one.case.low is not None for one in graded)
    return f"Of {count} intervals at {100 * LEVEL:g} %, {(1 - LEVEL) * count:.1f} are to be expected to miss by chance alone."


def agreement(one: Graded, kept: pd.DataFrame) -> str:
    """Return whether a quick set agrees with the kept verdict (a row of ``claims.csv``); empty without either.

    They agree if the interval meets the kept one.
    """
    rows = kept[kept["id"] == one.claim.id]
    if one.case is None or rows.empty or pd.isna(rows["value"].iloc[0]):
        return ""
    row = rows.iloc[0]
    low, high = (one.case.value if end is None else end for end in (one.case.low, one.case.high))
    least, most = (row["value"] if pd.isna(row[end]) else row[end] for end in ("low", "high"))
    word = "agrees with" if low <= most and least <= high else "differs from"
    return f"{word} the kept {row['value']:.3g} ({row['verdict']})"

"""The sentences of abstracts, and where gains end: by claims that figures make, and as these were found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.mlt import mlt_fct, mlt_speedup
from testbed.report import abstracts, boundaries, chapters, claims, figures, sections
from testbed.report.abstracts import ABSTRACTS, Sentence
from testbed.report.finding import VERDICTS, Finding, Verdict
from testbed.report.study import load_study

SENTENCES = [sentence for abstract in ABSTRACTS for sentence in abstract.sentences]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Every claim that a figure makes, without results."""
    empty = tmp_path_factory.mktemp("empty")
    return {finding.claim for figure in figures.every() for finding in figure.find(load_study(empty, figure.ID))}


def test_sentences_and_boundaries_go_by_claims_that_figures_make(made: set[str]) -> None:
    cited = {claim for sentence in SENTENCES for claim in sentence.claims}
    cited |= {claim for one in boundaries.BOUNDARIES for claim in (one.gain, one.there)}
    assert cited - made == set()
    assert all(one.gain != one.there for one in boundaries.BOUNDARIES)


def test_every_sentence_is_judged_or_says_why_not() -> None:
    assert [len(abstract.sentences) for abstract in ABSTRACTS] == [9, 8]
    assert all(sentence.claims or sentence.but for sentence in SENTENCES)
    assert {abstract.paper for abstract in ABSTRACTS} <= set(claims.PAPERS)
    (headline,) = (sentence for sentence in SENTENCES if "84.3 %" in sentence.says)
    assert headline.claims == (mlt_speedup.MOST_OF_DLCP,)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["reproduced", "reproduced"], "reproduced"),
        (["reproduced", "not reproduced"], "partly"),
        (["reproduced", "not measured"], "partly"),
        (["no difference", "not reproduced"], "not reproduced"),
        (["no difference", "not measured"], "no difference"),
        (["not measured", "not measured"], "not measured"),
    ],
)
def test_a_sentence_is_judged_by_all_its_claims(verdicts: list[Verdict], expected: Verdict) -> None:
    assert abstracts.together(verdicts) == expected


@given(st.lists(st.sampled_from(VERDICTS), min_size=1))
def test_no_sentence_fares_better_than_its_best_claim(verdicts: list[Verdict]) -> None:
    found = abstracts.together(verdicts)
    assert found == abstracts.together(verdicts[::-1])
    assert VERDICTS.index(found) >= min(map(VERDICTS.index, verdicts))
    if found == "reproduced":
        assert set(verdicts) == {"reproduced"}


def chapter(figure: figures.Figure, findings: list[Finding], folder: Path) -> chapters.Chapter:
    study = load_study(folder, figure.ID)
    return chapters.make_chapter(sections.Section(figure, study, (), tuple(findings), ()), folder, folder)


def test_a_sentence_follows_what_was_found(tmp_path: Path) -> None:
    sentence = Sentence("Both hold.", (mlt_speedup.MOST, mlt_fct.TAIL))
    one = Finding(mlt_speedup.MOST, "", "", 1.9, "× as fast", None, 3, "reproduced", "", ())
    other = replace(one, claim=mlt_fct.TAIL)

    def verdict(*found: chapters.Chapter) -> Verdict | None:
        abstract = abstracts.Abstract("MLT", "", (sentence,))
        return abstracts.judged(abstract, abstracts.judges(found))[0].verdict

    by_id = {figure.ID: figure for figure in figures.every()}
    speedup, fct = by_id[mlt_speedup.ID], by_id[mlt_fct.ID]
    held = chapter(speedup, [one], tmp_path)
    assert verdict() == "not measured"
    assert verdict(held) == "partly"
    assert verdict(held, chapter(fct, [other], tmp_path)) == "reproduced"
    assert verdict(held, chapter(fct, [replace(other, verdict="not reproduced")], tmp_path)) == "partly"


def test_a_sentence_that_nothing_judges_has_no_verdict() -> None:
    abstract = abstracts.Abstract("MLT", "", (Sentence("It is new.", but="A premise."),))
    assert abstracts.judged(abstract, {})[0].verdict is None

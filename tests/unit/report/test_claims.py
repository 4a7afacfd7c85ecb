"""Claims as data: they are about figures that there are, and the kept report follows from them and its tables."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from testbed.core.errors import RequestError
from testbed.report import chapters, claims, drawing, figures, sections, verdicts
from testbed.report.claims import OURS, PAPERS
from tests.support import synthetic

ROOT = Path(__file__).parents[3]
REPORT = ROOT / "docs" / "report"
CONTENT = figures.claims()
KEPT = pd.read_csv(REPORT / "claims.csv")
DECIDED = KEPT[~KEPT["verdict"].isin(["undecided", "not measured"])]


def test_ids_are_unique_and_figures_exist() -> None:
    assert [id for id, count in Counter(claim.id for claim in CONTENT.claim).items() if count > 1] == []
    assert {claim.figure for claim in CONTENT.claim} <= {figure.ID for figure in figures.every()}


def test_every_sentence_is_judged_by_claims_that_exist_or_says_why_not() -> None:
    ids = {claim.id for claim in CONTENT.claim}
    assert {sentence.paper for sentence in CONTENT.sentence} == set(PAPERS) - {OURS}
    for sentence in CONTENT.sentence:
        assert set(sentence.claims) <= ids and (sentence.claims or sentence.but), sentence


@pytest.mark.parametrize("claim", CONTENT.claim, ids=lambda claim: claim.id)
def test_a_claim_says_what_it_takes(claim: claims.Claim) -> None:
    assert (claim.kind == "magnitude") == (claim.claimed is not None)
    assert claim.bound and claim.unit and claim.control and claim.sentence.endswith(".")
    assert (claim.paper == OURS) == (claim.source == "ours")
    named = [word for word in claim.control.replace(",", " ").split() if word.startswith("experiments/")]
    assert all((ROOT / word.rstrip(":")).is_file() for word in named), claim.control


def test_an_arm_is_the_preset_of_its_experiment() -> None:
    for claim in CONTENT.claim:
        if claim.arm:
            told = tomllib.loads((ROOT / "experiments" / f"{claim.figure}.toml").read_text())
            arms = {system.partition("preset=")[2] for system in told.get("system", []) if "preset=" in system}
            assert claim.arm in (arms or {told.get("preset", "recommended")}), claim.id


def test_every_row_of_a_run_with_mltcp_names_its_arm(tmp_path: Path) -> None:
    for claim in CONTENT.claim:
        kept = REPORT / "figures" / f"{claim.measure.table or claim.figure}.csv"
        if claim.arm and kept.is_file() and "seed" in (table := pd.read_csv(kept)):
            assert set(table["arm"].dropna()) <= {"base", "placebo", "paper", "recommended", "ours", "ours, F = 1"}, (
                kept
            )
    synthetic.experiment("partial", tmp_path / "results", synthetic.gains)
    section = sections.one(figures.find("partial"), tmp_path / "results", tmp_path)
    assert set(pd.read_csv(tmp_path / "partial.csv")["arm"]) == {"base", "recommended"}
    assert ("arms", "recommended") in chapters.make_chapter(section, tmp_path / "results", tmp_path).facts


@pytest.mark.slow
def test_the_kept_report_follows_from_its_tables(tmp_path: Path) -> None:
    found = {figure.ID: kept for figure in figures.every() if (kept := chapters.kept(figure.ID, REPORT / "figures"))}
    graded, problems = verdicts.of_chapters(CONTENT.claim, found, REPORT)
    assert problems == []
    drawing.write_table(verdicts.table(graded), tmp_path / "claims.csv")
    assert (tmp_path / "claims.csv").read_bytes() == (REPORT / "claims.csv").read_bytes()


def test_nothing_kept_is_decided_by_too_little() -> None:
    assert tuple(KEPT.columns) == verdicts.COLUMNS
    counted = DECIDED[DECIDED["seeds"] > 0]  # what is counted in sources has none
    assert (counted["seeds"] >= claims.FEWEST_SEEDS).all()
    assert set(DECIDED[DECIDED["seeds"] == 0]["figure"]) <= {"concept"}


def test_a_sentence_takes_the_verdicts_of_its_claims_together() -> None:
    assert verdicts.together(["reproduced", "reproduced"]) == "reproduced"
    assert verdicts.together(["reproduced", "not reproduced"]) == "partly"
    assert verdicts.together(["undecided", "not reproduced"]) == "undecided"
    assert verdicts.together(["not measured", "not reproduced"]) == "not reproduced"


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / claims.FILE).write_text('[[claim]]\nid = "x"\n')
    with pytest.raises(RequestError, match="claims"):
        claims.read(tmp_path)
    assert claims.read(tmp_path / "none") == claims.Content()

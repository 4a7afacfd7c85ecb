"""The faults of `make mutants` are real, and each still finds its place; no fault is run here."""

from __future__ import annotations

import ast
import csv
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from testbed import spec
from testbed.planning import plan
from tools import mutants

AREAS, FAULTS = mutants.read()
ROOT = mutants.ROOT


def code_of(text: str, file: str) -> str:
    """Without comments and blanks."""
    if file.endswith(".py"):
        return ast.dump(ast.parse(text))
    return "".join(re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL).split())


def test_there_are_forty_with_names_of_their_own() -> None:
    assert len(FAULTS) == 40
    assert max(Counter(fault.id for fault in FAULTS).values()) == 1
    assert {fault.area for fault in FAULTS} == set(AREAS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_applies_once_and_changes_code(fault: mutants.Mutant) -> None:
    sound = (ROOT / fault.file).read_text()
    assert code_of(fault.applied(sound), fault.file) != code_of(sound, fault.file)
    assert fault.file.startswith(mutants.SOURCES)


def test_a_fault_whose_place_is_gone_or_there_twice_is_refused() -> None:
    fault = FAULTS[0]
    for text in ("", fault.old * 2):
        with pytest.raises(ValueError, match=fault.id):
            fault.applied(text)


def test_the_tests_and_runs_that_faults_meet_are_there() -> None:
    assert all((ROOT / path).exists() for paths in AREAS.values() for path in paths)
    for name in mutants.RUNS:
        assert plan.plans(plan.resolve(spec.read(str(ROOT / mutants.PLANS / f"{name}.toml"), {})))


def test_the_table_of_what_catches_them_is_complete() -> None:
    """Each fault, by a test that is there."""
    with (ROOT / mutants.PLANS / "caught.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["mutant"], row["file"], row["breaks"]) for row in rows] == [
        (fault.id, fault.file, fault.breaks) for fault in FAULTS
    ]
    for row in rows:
        path, test = row["caught_by"].split("[")[0].split("::")
        assert f"def {test}(" in (ROOT / path).read_text()


def row(result: str) -> mutants.Row:
    fault = FAULTS[0]
    return mutants.Row(fault.id, result, "", 1.0, fault.file, fault.breaks, fault.key(), "tree")


@pytest.mark.parametrize(
    ("results", "enough"),
    [
        ([mutants.CAUGHT] * 36 + [mutants.SURVIVED] * 4, True),
        ([mutants.CAUGHT] * 35 + [mutants.SURVIVED] * 5, False),
        ([mutants.CAUGHT] * 39 + [mutants.UNDECIDED], False),
        ([mutants.CAUGHT] * 39 + [mutants.DOES_NOT_BUILD], False),
    ],
)
def test_nine_of_ten_have_to_be_caught(results: list[str], enough: bool) -> None:
    assert mutants.summary([row(result) for result in results])[1] is enough


def test_what_was_tried_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "RESULTS", tmp_path / "results.csv")
    fault = FAULTS[0]
    assert mutants.kept_rows() == {}
    mutants.write_rows({fault.id: row(mutants.CAUGHT)}, FAULTS)
    caught = mutants.kept_rows()[fault.id]
    assert caught == row(mutants.CAUGHT)
    assert mutants.still_holds(caught, fault, "another tree")
    assert not mutants.still_holds(caught, replace(fault, new="another fault"), "tree")
    assert mutants.still_holds(row(mutants.SURVIVED), fault, "tree")
    assert not mutants.still_holds(row(mutants.SURVIVED), fault, "another tree")  # a test may be there for it
    assert not mutants.still_holds(row(mutants.UNDECIDED), fault, "tree")
    assert not mutants.still_holds(None, fault, "tree")


@pytest.mark.parametrize(("seconds", "result"), [(30.0, mutants.CAUGHT), (29.0, mutants.UNDECIDED)])
def test_a_fault_is_taken_out_again_and_caught_where_a_stage_hangs(
    seconds: float, result: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS[0]
    path = tmp_path / fault.file
    path.parent.mkdir()
    path.write_text(sound := (ROOT / fault.file).read_text())

    def hang(*_: object) -> None:
        assert path.read_text() == fault.applied(sound)
        raise mutants.LimitError("unit", seconds)

    monkeypatch.setattr(mutants, "TREE", tmp_path)
    monkeypatch.setattr(mutants, "build", lambda *_: None)
    monkeypatch.setattr(mutants, "unit_tests", hang)
    reference = mutants.Reference("tree", {}, {f"unit {fault.area}": 10.0})
    assert mutants.tried(fault, AREAS, reference, 180.0)[0] == result
    assert path.read_text() == sound

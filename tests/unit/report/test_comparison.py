"""Two result sets side by side, from runs of the fluid model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed import spec
from testbed.cli import main
from testbed.report import comparison
from tests.support import fluid_runs

FIELDS: dict[str, Any] = {
    "name": "pair", "jobs": 2, "compute": "500ms", "bytes": "28MB", "iterations": 14, "seeds": 4, "alone": "first",
}  # fmt: skip


def write(results: Path, exponent: float = 0.5, **fields: Any) -> Path:
    fluid_runs.write(spec.make({**FIELDS, **fields}, {}, "here"), results, exponent)
    return results


pytestmark = pytest.mark.xdist_group("comparison")  # who share what follows


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("before"))


def test_the_same_does_not_differ(before: Path, tmp_path: Path) -> None:
    found = comparison.compare(before, write(tmp_path))
    assert [(row.cc, row.paired) for row in found.rows] == [("reno", True), ("mltcp_reno", True)]
    assert all(one.value == 1 and not comparison.differs(one) for row in found.rows for one in row.ratios.values())
    assert found.notes == ()
    assert comparison.reading(found).startswith("0 of 6 ratios differ")


@pytest.mark.slow
def test_a_slower_mltcp_is_told_from_an_unchanged_base(before: Path, tmp_path: Path) -> None:
    found = comparison.compare(before, write(tmp_path, exponent=0.1))
    base, mltcp = found.rows
    assert not comparison.differs(base.ratios["mean"])
    assert comparison.differs(mltcp.ratios["mean"]) and mltcp.ratios["mean"].value > 1.05
    assert mltcp.interleaved[0] == (4, 4)


@pytest.mark.slow
def test_other_seeds_are_compared_unpaired(before: Path, tmp_path: Path) -> None:
    found = comparison.compare(before, write(tmp_path, seed=11))
    assert not any(row.paired for row in found.rows)
    assert found.notes == ()  # other starts are no other plan
    assert all(row.ratios["mean"].interval for row in found.rows)


@pytest.mark.slow
def test_what_only_one_has_is_named_and_the_plans_difference_too(before: Path, tmp_path: Path) -> None:
    write(tmp_path, bytes="20MB", cc=["mltcp_reno", "mltcp_reno:slope=4"])
    write(tmp_path, name="other")
    notes = "\n".join(comparison.compare(before, tmp_path).notes)
    assert "pair: the plans " in notes and "other jobs" in notes
    assert "has reno, mltcp_reno:slope=4" in notes
    assert f"other is in {tmp_path} alone" in notes


def test_another_buffer_is_named(before: Path, tmp_path: Path) -> None:
    (note,) = comparison.compare(before, write(tmp_path, ecn="off", seeds=3)).notes
    assert note.startswith("pair: ")
    assert "link.ecn_threshold is {'min_bytes': 60560, 'max_bytes': 60560, 'probability': 1.0} and None" in note


def test_the_command_shows_and_draws_it(before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = write(tmp_path / "there", exponent=0.1)
    assert main(["compare", str(before), str(there), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "4 paired" in said and "by chance" in said
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"comparison.{kind}" for kind in ("png", "pdf", "csv")
    }


def test_nothing_in_common_says_so(before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, cc=["mltcp_reno:slope=4"])
    assert main(["compare", str(before), str(tmp_path)]) == 1
    assert "in common" in capsys.readouterr().err
    assert main(["compare", str(before), str(tmp_path / "nowhere")]) == 2

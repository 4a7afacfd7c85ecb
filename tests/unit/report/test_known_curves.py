"""Known curves: what is measured of a run beside the formula, the figure, and what `doctor --curves` makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli import doctor_curves
from testbed.core.errors import EXIT_INVALID, EXIT_OK
from testbed.core.runs.plan import Plan
from testbed.report import figures, known_curves
from testbed.report.study import load_study
from tests.support import synthetic
from tests.support.claimed import graded

SHOWN = set(known_curves.CURVES) - {"red", "incast"}  # invented links have no queue, and no timeouts
FILES = ("known", *(f"known.{name}" for name in known_curves.CURVES if name != "reno"))


def ideal(_one: Plan, _iteration: int) -> float:
    return 1.0


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Invented runs of all seven experiments, whose flows all have the rate that they would have alone."""
    folder = tmp_path_factory.mktemp("results")
    for name in FILES:
        synthetic.experiment(name, folder, ideal, iterations=10)
    return folder


def test_every_experiment_is_for_one_curve(results: Path) -> None:
    table = known_curves.table(load_study(results, "known"))
    assert set(table["curve"]) == SHOWN
    assert (table["expected"] > 0).all() and (table["ratio"] == table["measured"] / table["expected"]).all()
    reno = table[table["curve"] == "reno"].iloc[0]
    assert reno["x"] == pytest.approx(0.1) and reno["expected"] == pytest.approx(38.7, rel=0.01)
    assert reno["measured"] == pytest.approx(1e9 * 0.04 / 8 / 1514, rel=0.05)  # each has a link of its own


def test_a_stack_that_ignores_losses_reproduces_no_curve_of_them(results: Path, tmp_path: Path) -> None:
    found = graded("known", results, tmp_path)
    assert {id: found[f"known-{id}"].verdict for id in ("reno", "cubic")} == {
        "reno": "not reproduced", "cubic": "not reproduced",
    }  # fmt: skip
    assert found["known-dcqcn"].verdict == "reproduced"  # equal flows


def test_the_figure_draws_all_of_them(results: Path, tmp_path: Path) -> None:
    written = figures.find("known").draw(load_study(results, "known"), tmp_path)
    assert {path.name for path in written} == {"known.png", "known.pdf", "known.csv", "known-goodput.csv"}


def test_doctor_tells_curves_within_their_tolerance_from_others(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = known_curves.table(load_study(results, "known"))
    assert doctor_curves.told(table, as_json=True) == EXIT_INVALID
    told = json.loads(capsys.readouterr().out)
    assert told["agrees"] is False and {row["curve"] for row in told["curves"]} == SHOWN
    assert doctor_curves.told(table[table["curve"] == "dcqcn"], as_json=False) == EXIT_OK
    assert "DCQCN" in capsys.readouterr().out

"""Predictions are complete, and made by experiments that are there."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pandas as pd
import pytest

from analysis.beyond import predicted
from testbed.core.runs.plan import Plan
from testbed.report import figures, sections
from testbed.report.study import load_study
from testbed.spec import sweep
from tests.support import synthetic

ROOT = Path(__file__).parents[3]
PREDICTIONS = tomllib.loads((ROOT / "analysis/beyond/predictions.toml").read_text())["prediction"]
FIELDS = {
    "id", "measurement", "quantity", "experiment", "configuration", "rule", "predicted", "low", "high", "sign", "assumptions",
}  # fmt: skip


def test_every_prediction_is_complete() -> None:
    assert len(PREDICTIONS) >= 6
    assert len({one["id"] for one in PREDICTIONS}) == len(PREDICTIONS)
    for one in PREDICTIONS:
        assert set(one) == FIELDS, one["id"]
        assert one["low"] <= one["predicted"] <= one["high"], one["id"]
        assert one["rule"] in ("median", "largest") and one["measurement"] in ("H1", "H2", "H3", "H4", "H5", "H10")
        assert one["sign"] == ("none" if one["sign"] == "none" else "above 1" if one["predicted"] > 1 else "below 1")
        assert one["assumptions"] and all(set(each) == {"assumption", "moves"} for each in one["assumptions"])


def test_every_prediction_has_its_experiment_and_the_other_way_round() -> None:
    files = {file.stem.partition(".")[0] for file in (ROOT / "experiments").glob("predict-*.toml")}
    assert {one["experiment"] for one in PREDICTIONS} == files


def test_every_prediction_is_compared_with_one_published_value() -> None:
    assert set(predicted.PUBLISHED) == {one["id"] for one in PREDICTIONS}


def slower(one: Plan, iteration: int) -> float:
    return 1.25


def test_the_figure_compares_what_was_predicted_and_repeats_what_runs_say(tmp_path: Path) -> None:
    """Of runs that all take 1.25 times the ideal: a throughput of 0.8; what has no runs is not repeated."""
    file = ROOT / "experiments/predict-mlcc.toml"
    synthetic.write(sweep.read(str(file), {"quick": True}), tmp_path / "results", slower)
    section = sections.one(figures.find("predicted"), tmp_path / "results", tmp_path / "out")
    assert section.problems == () and {path.suffix for path in section.files} == {".png", ".pdf", ".csv"}
    table = pd.read_csv(tmp_path / "out/predicted.csv").set_index("id")
    assert table["again"].dropna().to_dict() == pytest.approx({"mlcc-vgg19": 0.8, "mlcc-resnet": 0.8}, rel=1e-3)
    assert table.loc["srsf-avoid", "sign_right"] == "no" and table.loc["gpt", "sign_right"] == "yes"
    assert table.loc["gpt", "error"] == pytest.approx(1.048 / (1.70 / 1.53) - 1)


def test_experiments_belong_to_the_figure_that_asks_for_them(tmp_path: Path) -> None:
    assert figures.id_for("predict-mlcc") == "predicted" and figures.id_for("map") == "map"
    assert load_study(tmp_path, "predicted", experiments_of="predict-*").is_empty

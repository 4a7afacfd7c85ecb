"""Predictions are complete, and made by experiments that are there."""

from __future__ import annotations

import tomllib
from pathlib import Path

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

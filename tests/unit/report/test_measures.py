"""A claim's number, from the table of its figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.report.claims import Claim, Measure
from testbed.report.grading import Case
from testbed.report.measures import MeasureError, of_claim

TIMES = {"reno": 2.0, "bbr": 1.5, "ltp": 1.0}
ROWS = pd.DataFrame([
    {"rate": rate, "system": system, "own": system == "ltp", "seed": seed, "s": s * (1 + 0.1 * seed)}
    for rate in (1, 10)
    for system, s in TIMES.items()
    for seed in (1, 2, 3)
])  # fmt: skip


def measured(tmp_path: Path, table: pd.DataFrame, **fields: Any) -> list[Case]:
    table.to_csv(tmp_path / "x.csv", index=False)
    claim = Claim("x", "ours", "", "ours", "bound", "x", Measure(**fields))
    return of_claim(claim, {"x": tmp_path / "x.csv"})


def test_a_ratio_is_paired_by_seed(tmp_path: Path) -> None:
    (one,) = measured(tmp_path, ROWS, value="s", rows="rate == 1", numerator="system == 'reno'", denominator="own")
    assert one.value == one.low == one.high == pytest.approx(2.0)
    assert one.seeds == 3


def test_the_fastest_stands_for_many(tmp_path: Path) -> None:
    found = measured(
        tmp_path, ROWS, value="s", cases=("rate",), numerator="not own", denominator="own", fastest="system"
    )
    assert [one.value for one in found] == pytest.approx([1.5, 1.5]) and all("bbr" in one.name for one in found)
    short = ROWS[~((ROWS["system"] == "bbr") & (ROWS["seed"] == 3))]  # a seed is missing
    assert measured(tmp_path, short, value="s", numerator="not own", denominator="own", fastest="system")[
        0
    ].value == pytest.approx(2.0)


def test_each_of_many_is_a_case(tmp_path: Path) -> None:
    found = measured(
        tmp_path, ROWS, value="1 / s", rows="rate == 1", numerator="own", denominator="not own", each=("system",)
    )
    assert {one.name: round(one.value, 6) for one in found} == {"reno": 2.0, "bbr": 1.5}


def test_runs_are_counted(tmp_path: Path) -> None:
    rows = pd.DataFrame({"seed": [1, 2, 3, 4], "at": [3.0, float("inf"), 5.0, None]})
    (one,) = measured(tmp_path, rows.dropna(), value="at < inf", average="every")
    assert (one.value, one.seeds) == (pytest.approx(2 / 3), 3)


def test_what_never_came_has_a_value_or_is_left_out(tmp_path: Path) -> None:
    rows = pd.DataFrame({"seed": [1, 2], "ratio": [1.0, None]})
    assert measured(tmp_path, rows, value="ratio", average="mean", never=10.0)[0].value == pytest.approx(5.5)
    assert measured(tmp_path, rows, value="ratio", average="mean")[0].seeds == 1


def test_a_table_may_have_intervals_of_its_own(tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {"point": ["a"], "value": [1.7], "low": [1.6], "high": [1.8], "seeds": [5], "iterations": [1200]}
    )
    assert measured(tmp_path, rows, value="value", cases=("point",)) == [Case("a", 1.7, 1.6, 1.8, 5, 1200, (1.7,))]


def test_nothing_is_measured_without_a_table_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    claim = Claim("x", "ours", "", "ours", "bound", "x", Measure("s"))
    assert of_claim(claim, {}) == []
    with pytest.raises(MeasureError, match=r"x: x\.csv"):
        measured(tmp_path, ROWS, value="no_such_column")


def test_an_arm_is_measured_beside_its_placebo(tmp_path: Path) -> None:
    gains = {"paper": 1.5, "recommended": 1.4, "placebo": 1.0}
    table = pd.DataFrame([{"arm": arm, "seed": seed, "x": x} for arm, x in gains.items() for seed in (1, 2, 3)])
    table.to_csv(tmp_path / "x.csv", index=False)
    claim = Claim("x", "ours", "", "ours", "bound", "x", Measure("x", by_arm=True), arm="paper")
    values = [of_claim(claim, {"x": tmp_path / "x.csv"}, of=of)[0].value for of in ("claim", "control")]
    assert values == pytest.approx([1.5, 1.0])

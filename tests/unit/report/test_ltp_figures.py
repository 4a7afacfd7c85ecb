"""What LTP is compared with: stock TCP, TCP that goes without as much, and, over paths that lose, only where no TCP is missing that the others have."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.ltp import ltp_accuracy, ltp_incast, ltp_loss
from testbed.core.runs.plan import Plan
from testbed.report import phases
from testbed.report.study import load_study
from tests.support import synthetic
from tests.support.claimed import graded

SYSTEMS = ("reno", "mltcp_reno", "reno:close=0.8", "reno:share=0.5", "ltp", "ltp:fraction=1")


def test_a_path_without_a_tcp_that_most_have_is_not_complete() -> None:
    """BBR's runs of one path are invalid, and CUBIC was run on one alone."""
    tcps = (("reno", "bbr", "cubic"), ("reno", "bbr"), ("reno",))
    rows = pd.DataFrame([
        {"rate_bps": 1, "rtt_ms": path, "rto_ms": 200, "loss": 0.01, "system": name, "stock": name != "ltp", "own": name == "ltp"}
        for path, names in enumerate(tcps)
        for name in (*names, "ltp")
    ])  # fmt: skip
    assert list(ltp_loss._complete(rows).groupby(rows["rtt_ms"]).all()) == [True, True, False]


def the_less_the_sooner(one: Plan, _iteration: int) -> float:
    """TCP with options of its own is faster than LTP, which is faster than stock TCP."""
    return 1.2 if not one.jobs[0].by_tcp else 1.0 if ":" in one.jobs[0].transport else 1.5


def test_what_goes_without_a_part_is_no_stock_tcp(tmp_path: Path) -> None:
    """LTP gains over the one, not over the other."""
    synthetic.experiment("ltp-incast", tmp_path, the_less_the_sooner, {"quick": True, "system": SYSTEMS})
    study = load_study(tmp_path, "ltp-incast")
    rows = phases.table(study)
    assert phases.tcp(rows) == ["reno"]
    assert phases.partial_tcp(rows) == ["reno:close=0.8", "reno:share=0.5"]
    found = graded("ltp-incast", tmp_path, tmp_path / "report")["ltp-incast"]
    assert found.verdict == "reproduced" and found.case and found.case.value == pytest.approx(1.25, abs=0.01)
    gains = ltp_incast._gains(study, rows)
    assert set(gains["fastest_tcp"]) == {"reno"} and set(gains["kind"]) == {
        ltp_incast.LTP, ltp_incast.WHOLE, ltp_incast.PARTIAL, ltp_incast.STOCK,
    }  # fmt: skip


def test_the_largest_gain_over_a_tcp_counts_and_that_over_the_fastest(tmp_path: Path) -> None:
    """Reno takes thrice as long as LTP, BBR a little longer, and LTP that delivers everything a little longer than it."""
    lasts = {"reno": 3.0, "bbr": 1.3, "mltcp_reno": 2.0, "reno:share=0.8": 2.5, "ltp": 1.0, "ltp:fraction=1": 1.1}
    asked = {"quick": True, "system": tuple(lasts)}
    synthetic.experiment("ltp-loss", tmp_path, lambda one, _: lasts[one.system.label], asked)
    found = graded("ltp-loss", tmp_path, tmp_path / "report")
    most, fastest = found["ltp-30x"].case, found["ltp-fastest-tcp"].case
    assert most and most.value == pytest.approx(3.0, rel=1e-3) and "reno" in most.name
    assert fastest and fastest.value == pytest.approx(1.3, rel=1e-3) and "bbr" in fastest.name


@given(st.floats(0, 1), st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_tcp_beside_ltp_delivers_no_less_or_nearly_as_much(own: float, shares: list[float]) -> None:
    systems = [f"tcp{number}" for number in range(len(shares))]
    told = pd.DataFrame(
        {"system": ["ltp", *systems], "partial": [False, *[True] * len(shares)], "delivered": [own, *shares]}
    )
    among, nearest = ltp_incast._partial(told, "ltp")
    delivered = dict(zip(systems, shares, strict=True))
    least = min(abs(share - own) for share in shares)
    assert nearest and set(nearest) <= set(among)
    assert all(abs(delivered[system] - own) <= least + ltp_incast.ABOUT for system in nearest)
    assert {system for system in systems if delivered[system] >= own} <= set(among)


def test_a_cell_without_such_tcp_has_none_beside_ltp() -> None:
    alone = pd.DataFrame({"system": ["ltp"], "partial": [False], "delivered": [0.8]})
    assert ltp_incast._partial(alone, "ltp") == ([], [])


def test_a_training_is_near_at_its_first_look_there() -> None:
    looks = pd.DataFrame({
        "model": "cnn", "seed": 1, "round": [30, 10, 20, 40], "end_s": [3.0, 1.0, 2.0, 4.0], "accuracy": [0.9, 0.2, 0.5, 0.9], "whole": 0.9,
    })  # fmt: skip
    never = looks.assign(seed=2, accuracy=0.1)
    looks = looks.assign(system="ltp", stock=False, own=True, fill="zero")
    near = ltp_accuracy._near(pd.concat([looks, never.assign(system="ltp", stock=False, own=True, fill="zero")]))
    assert near["round"].tolist()[0] == 30 and near["near_s"].tolist()[0] == 3.0
    assert near["near_s"].isna().tolist() == [False, True]

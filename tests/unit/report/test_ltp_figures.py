"""What LTP is compared with: stock TCP, TCP that goes without as much, and, over paths that lose, only where no TCP is missing that the others have."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from analysis.ltp import ltp_accuracy, ltp_incast, ltp_loss
from testbed.core.runs.plan import Plan
from testbed.report import phases
from testbed.report.study import load_study
from tests.support import synthetic

SYSTEMS = ("reno", "mltcp_reno", "reno:close=0.8", "reno:share=0.5", "ltp", "ltp:fraction=1")


def cell(*systems: str) -> ltp_loss.Cell:
    return "", 0.01, pd.DataFrame({"system": systems, "stock": True})


def test_the_usual_tcps_are_those_of_most_paths() -> None:
    """BBR's runs of one path are invalid, and CUBIC was run on one alone."""
    cells = [cell("reno", "bbr", "cubic"), cell("reno", "bbr"), cell("reno")]
    assert ltp_loss._usual(cells) == {"reno", "bbr"}


def the_less_the_sooner(one: Plan, _iteration: int) -> float:
    """TCP with options of its own is faster than LTP, which is faster than stock TCP."""
    return 1.2 if not one.jobs[0].by_tcp else 1.0 if ":" in one.jobs[0].transport else 1.5


def test_what_goes_without_a_part_is_no_stock_tcp(tmp_path: Path) -> None:
    """LTP gains over the one, not over the other, and the finding says both."""
    synthetic.experiment("ltp-incast", tmp_path, the_less_the_sooner, {"quick": True, "system": SYSTEMS})
    study = load_study(tmp_path, "ltp-incast")
    rows = phases.table(study)
    assert phases.tcp(rows) == ["reno"]
    assert phases.partial_tcp(rows) == ["reno:close=0.8", "reno:share=0.5"]
    found = {one.claim: one for one in ltp_incast.find(study)}[ltp_incast.CLAIM]
    assert found.verdict == "reproduced" and "over reno with" in found.measured
    assert "over reno:close=0.8 with" in found.measured and "over reno:share=0.5 with" in found.measured
    gains = ltp_incast._gains(study, rows)
    assert set(gains["fastest_tcp"]) == {"reno"} and set(gains["kind"]) == set(ltp_incast.COLOURS) - {
        ltp_incast.MARKS,
        ltp_incast.BY_TCP,
    }


def test_the_claim_names_the_best_baseline_and_the_largest_gain_over_each(tmp_path: Path) -> None:
    """Reno takes thrice as long as LTP, BBR a little longer, and LTP that delivers everything a little longer than it."""
    lasts = {"reno": 3.0, "bbr": 1.3, "mltcp_reno": 2.0, "reno:share=0.8": 2.5, "ltp": 1.0, "ltp:fraction=1": 1.1}
    asked = {"quick": True, "system": tuple(lasts)}
    synthetic.experiment("ltp-loss", tmp_path, lambda one, _: lasts[one.system.label], asked)
    found = {one.claim: one for one in ltp_loss.find(load_study(tmp_path, "ltp-loss"))}[ltp_loss.CLAIM]
    assert found.unit.startswith("× as fast as reno, 1.30× ")
    assert "3.00 (3.00–3.00)× over reno and 1.30 (1.30–1.30)× over bbr" in found.measured
    others = found.measured.partition("the largest over each of the others: ")[2]
    assert [one.split("× over ")[1].split()[0].strip(",") for one in others.split("; ")] == [
        "bbr",
        "mltcp_reno",
        "reno:share=0.8",
        "ltp:fraction=1",
    ]


def test_a_millisecond_is_short_and_a_small_timeout_is_said(tmp_path: Path) -> None:
    lasts = {"reno": 1.5, "ltp": 1.0}
    asked, only = {"system": tuple(lasts)}, "rate-1gbit.delay-500us"
    for name in ("ltp-loss.short", "ltp-loss"):
        synthetic.experiment(name, tmp_path, lambda one, _: lasts[one.system.label], asked, only=only)
    found = {one.claim: one for one in ltp_loss.find(load_study(tmp_path, "ltp-loss"))}[ltp_loss.SHORT]
    assert found.verdict == "reproduced"
    assert "1 ms, 1 % loss);" in found.measured and "1 ms, 1 % loss, least timeout 5 ms)" in found.measured


def test_a_tcp_that_was_not_run_everywhere_is_told() -> None:
    """Else the others' gains would seem to be gains over it."""
    told = ltp_incast._not_everywhere([["reno", "dctcp"], ["reno"], ["reno", "dctcp"]], [False, True, True])
    assert re.findall(r"dctcp|\d+", told) == ["dctcp", "2", "1"]


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
    assert ltp_accuracy._near(pd.concat([looks, never])) == {("cnn", 1): ltp_accuracy.Near(30, 3.0), ("cnn", 2): None}

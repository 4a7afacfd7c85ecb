"""What an MLTCP may do beyond the paper's rule: each parameter is seen in the flows it is asked for."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from testbed.backends import uml
from testbed.core.runs import metrics
from tests.support import runs
from tests.support.runs import Result, some

JOBS: dict[str, Any] = {"compute": "150ms", "bytes": "8MB", "iterations": 7, "sample_interval": "1ms"}


@cache
def run(cc: str, channels: int = 1) -> Result:
    return runs.run_plan(uml.find(), cc=[cc], job=[{"channels": channels}, {"channels": channels}], **JOBS)


@cache
def flows(cc: str, channels: int = 1) -> pd.DataFrame:
    return run(cc, channels).table("flows.csv")


def at_boundaries(cc: str) -> pd.DataFrame:
    """Of every flow and iteration from the fourth on: its window in the last sample before, and in the first after."""
    rows = flows(cc).sort_values(["job", "t_s"])
    before = rows.groupby("job").shift()
    begins = (rows["mltcp_iterations"] > before["mltcp_iterations"]) & (rows["mltcp_iterations"] >= 3)
    return pd.DataFrame({"before": before.loc[begins, "cwnd_segments"], "after": rows.loc[begins, "cwnd_segments"]})


def test_a_window_is_kept_unless_asked_for() -> None:
    found = at_boundaries("mltcp_reno")
    assert len(found) >= 6 and (found["after"] >= found["before"]).all()


@pytest.mark.parametrize("base", some(["reno", "cubic"], "reno"))
def test_a_newcomer_begins_with_what_f_entitles_it_to(base: str) -> None:
    """0.35 of its window; slow start, which brings it back, has had a millisecond at most."""
    found = at_boundaries(f"mltcp_{base}:restart=sqrt")
    assert len(found) >= 6 and (found["after"] < found["before"]).any()


def test_ten_segments_grow_slowly_from_an_eighth_on() -> None:
    found = at_boundaries("mltcp_reno:restart=ten")
    assert len(found) >= 6 and (found["after"] <= 20 + found["before"] / 4).all()


def test_f_is_at_least_one_below_the_floor() -> None:
    rows = flows("mltcp_reno:floor=1000").dropna(subset="mltcp_r")
    assert rows["mltcp_f"].min() == 1 and rows["mltcp_f"].max() == 2
    assert (rows["mltcp_f"] == (1.75 * rows["mltcp_r"] + 0.25).clip(lower=1).round(4)).mean() > 0.5


def test_the_first_whole_iteration_is_learned_from() -> None:
    result = run("mltcp_reno:learn=first")
    assert metrics.mltcp_active_from(result.table("iterations.csv"), result.table("flows.csv")) == 1
    result = run("mltcp_reno")
    assert metrics.mltcp_active_from(result.table("iterations.csv"), result.table("flows.csv")) == 2


def test_a_logarithm_is_in_force_from_the_first_byte() -> None:
    rows = flows("mltcp_reno:ratio=log")
    assert rows["mltcp_r"].notna().all()
    sent = rows[rows["mltcp_iterations"] == 0]
    exact = np.log2(1 + sent["bytes_acked"] / 2**14) / 17
    assert (sent["mltcp_r"] - exact).abs().max() <= 0.003


def test_channels_of_a_job_share_their_ratio() -> None:
    """At every instant one r for all sockets of a mark; each by itself, they differ."""
    apart = {
        cc: flows(cc, 4).dropna(subset="mltcp_r").groupby(["t_s", "job"])["mltcp_r"]
        for cc in ("mltcp_reno", "mltcp_reno:share=mark")
    }
    spread = {cc: (ratios.max() - ratios.min())[ratios.count() == 4] for cc, ratios in apart.items()}
    assert len(spread["mltcp_reno:share=mark"]) > 100
    assert spread["mltcp_reno:share=mark"].max() <= 0.01 and spread["mltcp_reno"].max() > 0.05


@pytest.mark.parametrize("where", some(["decrease", "both"], "decrease"))
def test_f_may_act_on_the_decrease(where: str) -> None:
    """Runs, and differs from what acts on the increase alone."""
    assert not flows(f"mltcp_reno:apply={where}").equals(flows("mltcp_reno"))

"""What each congestion control does to flows, under virtual time: conformance, fairness, shares, interleaving."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from testbed.backends import uml
from testbed.core.runs import metrics
from tests.support import runs
from tests.support.runs import Result, some

JOBS = {"compute": "500ms", "bytes": "28MB"}  # 48 % duty at 500 Mbit/s
GREEDY = {"iterations": 1, "compute": "1ms", "bytes": "150MB", "start_offsets": "0ms,0ms"}
MARKED = {"ecn": "on"}
# What DCQCN's constants are published for: thresholds of its paper, frames of its day's networks.
FAST = {"rate": "50gbit", "mtu": 9000, "buffer": "2MB", "ecn": "5kB,200kB,1%"}
KMIN, KMAX = 5_000, 200_000
# Each base: its own form, what its network needs, and a phase as long there as the others'.
BASES: dict[str, dict[str, Any]] = {"reno": {}, "cubic": {}, "dctcp": MARKED, "dcqcn": FAST}


def run_plan(*ccs: str, **fields: Any) -> Result:
    return runs.run_plan(uml.find(), cc=["+".join(ccs)], **fields)


def greedy(base: str) -> dict[str, Any]:
    return {**GREEDY, **BASES[base], **({"bytes": "1.5GB"} if base == "dcqcn" else {})}


def periodic(base: str) -> dict[str, Any]:
    """The same duty, 48 %, at the base's rate; DCQCN's phase is as short as leaves it rate increases enough to act on."""
    return {**JOBS, **BASES[base], **({"compute": "113ms", "bytes": "650MB"} if base == "dcqcn" else {})}


def middle(result: Result) -> pd.DataFrame:
    """Samples from the second quarter of a greedy run, when both flows are there and none is new."""
    flows = result.table("flows.csv")
    end = flows["t_s"].max()
    rows: pd.DataFrame = flows[(flows["t_s"] > end / 4) & (flows["t_s"] < end / 2)]
    return rows


def carried(result: Result) -> np.ndarray:
    return metrics.carried(result.table("flows.csv"))


@pytest.mark.parametrize("base", some(BASES, "dctcp"))  # Reno by drawn networks, in test_conformance
def test_with_f_of_one_it_is_its_base_to_the_packet(base: str) -> None:
    """Two jobs, learned or not: every window, RTT and counter at every instant is the base's."""
    fields = {**periodic(base), "iterations": 5}
    plain, ours = (run_plan(cc, **fields) for cc in (base, f"mltcp_{base}:slope=0,intercept=1"))
    columns = ["t_s", "job", "cwnd_segments", "rtt_us", "bytes_acked", "retrans_segments"]
    pd.testing.assert_frame_equal(plain.table("flows.csv")[columns], ours.table("flows.csv")[columns])
    # A frame that leaves at the very instant of a sample may be counted by one and not by the other.
    counters = [result.table("links.csv")[["bytes", "packets", "drops"]] for result in (plain, ours)]
    assert (counters[0] - counters[1]).abs()["packets"].max() <= 1
    assert (counters[0]["drops"] == counters[1]["drops"]).all()
    assert ours.table("flows.csv")["mltcp_f"].unique() == [1.0]
    assert ours.table("flows.csv")["mltcp_iterations"].max() >= 4


@pytest.mark.parametrize("base", BASES)
def test_base_and_variant_share_equally(base: str) -> None:
    result = run_plan(base, f"mltcp_{base}:slope=0,intercept=1", **greedy(base))
    assert metrics.jain_index(carried(result)) >= 0.95
    assert [row["spec"] for row in result.manifest["congestion_controls"]] == [
        base,
        f"mltcp_{base}:slope=0,intercept=1",
    ]


@pytest.mark.parametrize("weight", some([0.25, 4.0], 0.25))
def test_shares_go_as_theory_says(weight: float) -> None:
    """Independent random losses: a flow's share goes as the root of F. One queue that overflows for both: up to F."""
    ones = [f"mltcp_reno:slope=0,intercept={w:g},total_bytes=1GB" for w in (1, weight)]
    alone, ours = carried(
        run_plan(*ones, **{**GREEDY, "loss": "0.05%", "delay": "2ms", "buffer": "20MB", "rate": "1gbit"})
    )
    assert ours / alone == pytest.approx(math.sqrt(weight), rel=0.2)
    alone, ours = carried(run_plan(*ones, **{**GREEDY, "bytes": "300MB"}))
    low, high = sorted((math.sqrt(weight), weight))
    assert 0.8 * low <= ours / alone <= 1.1 * high


@pytest.mark.parametrize("base", [base for base in BASES if base != "reno"])
def test_jobs_interleave_and_their_base_does_not(base: str) -> None:
    """Reno's case, with stricter limits, is in test_physics."""
    fields = periodic(base)
    ours = run_plan(f"mltcp_{base}", iterations=26, **fields)
    times = metrics.iteration_times(ours.table("iterations.csv"))
    (ideal,) = {job["ideal_s"] for job in ours.manifest["plan"]["jobs"]}
    learned = metrics.mltcp_active_from(ours.table("iterations.csv"), ours.table("flows.csv"))
    assert learned is not None and learned <= 3
    assert metrics.steady(times) <= 1.03 * ideal
    plain = metrics.iteration_times(run_plan(base, iterations=10, **fields).table("iterations.csv"))
    assert plain.to_numpy().mean() >= 1.2 * ideal


@pytest.mark.parametrize("curve", some(["quadratic", "reciprocal", "concave"], "concave"))
def test_the_other_increasing_curves_interleave_too(curve: str) -> None:
    times = metrics.iteration_times(
        run_plan(f"mltcp_reno:curve={curve}", iterations=26, **JOBS).table("iterations.csv")
    )
    assert metrics.steady(times) <= 1.03 * 0.9684


@pytest.mark.parametrize("curve", some(["falling", "falling_reciprocal"], "falling"))
def test_the_falling_curves_do_not(curve: str) -> None:
    times = metrics.iteration_times(
        run_plan(f"mltcp_reno:curve={curve}", iterations=12, **JOBS).table("iterations.csv")
    )
    assert metrics.steady(times) >= 1.3 * 0.9684


def test_f_and_r_of_a_live_flow_are_seen() -> None:
    """flows.csv: F is the line of r, from 0.25 to 2."""
    flows = run_plan("mltcp_reno", iterations=6, **JOBS).table("flows.csv").dropna(subset="mltcp_r")
    assert (flows["mltcp_f"] - (1.75 * flows["mltcp_r"] + 0.25)).abs().max() <= 0.002
    assert flows["mltcp_r"].min() == 0 and flows["mltcp_r"].max() == 1
    assert flows["mltcp_iterations"].max() == 5


def test_dcqcn_is_fair_fills_the_link_and_keeps_the_queue_between_its_thresholds() -> None:
    result = run_plan(
        "dcqcn", **{**GREEDY, **FAST, "bytes": "3GB", "start_offsets": "0ms,20ms", "sample_interval": "1ms"}
    )
    flows, links = middle(result), result.table("links.csv")
    data = links[links["link"] == "s1-s2"]
    busy = data[(data["t_s"] > flows["t_s"].min()) & (data["t_s"] < flows["t_s"].max())]
    assert metrics.jain_index(carried(result)) >= 0.95
    goodput = carried(result).sum() * 8 / (flows["t_s"].max() - flows["t_s"].min())
    assert goodput / (50e9 * 8948 / 9014) >= 0.95
    assert data["drops"].iloc[-1] == 0
    queue = busy["backlog_bytes"]
    assert KMIN <= queue.mean() <= KMAX
    assert queue.quantile(0.95) <= KMAX


def test_a_lone_dcqcn_job_takes_its_ideal_time() -> None:
    result = runs.run_plan(
        uml.find(), alone=True, cc=["dcqcn"], jobs=1, iterations=3, compute="100ms", bytes="500MB", **FAST
    )
    (job,) = result.manifest["plan"]["jobs"]
    times = metrics.iteration_times(result.table("iterations.csv")).to_numpy()
    assert times == pytest.approx(job["ideal_s"], rel=0.01)
    held = {row["what"]: row["value"] for row in result.manifest["settings"] if row["where"] == "l1"}
    assert (held["net.dcqcn.line_rate"], held["net.dcqcn.r_ai"], held["net.dcqcn.byte_counter"]) == (
        "50000",
        "40000",
        "10000000",
    )

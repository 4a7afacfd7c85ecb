"""What MLTCP is compared with, under virtual time: each does what its paper says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from testbed import spec
from testbed.backends import uml
from testbed.backends.progress import patience
from testbed.cli import main
from testbed.core.errors import EXIT_OK, EXIT_REQUEST
from testbed.core.runs import metrics, rundir
from testbed.core.runs.load import load_run
from testbed.planning import plan
from tests.support import runs

COMPATIBLE = {"compute": "500ms", "bytes": "28MB", "rate": "500mbit"}  # 48 % duty
IDEAL_S = 0.9684
ANSWER_S = 20e-6  # by how much the receiver of a one-way job ends before the sender, at most


def run(cc: str, **fields: Any) -> runs.Result:
    """The run with all jobs of a spec; what it is based on is computed, not measured."""
    (one,) = [one for one in plan.plans(plan.resolve(spec.read(None, {"cc": [cc], **fields}))) if one.alone is None]
    return runs.Result(rundir.unpack(uml.find().run(one, lambda event: None, patience(one))))


def times(result: runs.Result) -> pd.DataFrame:
    return metrics.iteration_times(result.table("iterations.csv"))


def off_the_grid(result: runs.Result) -> pd.DataFrame:
    """Of each iteration: how far from its slot it began, in periods, and how long it had waited for it, in s."""
    table = result.table("iterations.csv")
    jobs = {job["job"]: job["grid"] for job in result.manifest["plan"]["jobs"]}
    period = table["job"].map({job: grid["period_ns"] / 1e9 for job, grid in jobs.items()})
    phase = table["job"].map({job: grid["phase_ns"] / 1e9 for job, grid in jobs.items()})
    slots = (table["start_s"] - phase) / period
    before = table.groupby(["job", "worker"])["end_s"].shift(1)
    return table.assign(off=(slots - slots.round()).abs(), waited=table["start_s"] - before)


def test_cassini_interleaves_a_compatible_pair_at_once() -> None:
    result = run("cassini", iterations=30, **COMPATIBLE)
    assert times(result).iloc[1:].to_numpy().max() <= 1.03 * IDEAL_S
    assert result.manifest["plan"]["schedule"]["scores"] == {"s1-s2": 1.0}
    assert times(run("reno", iterations=8, **COMPATIBLE)).iloc[1:].to_numpy().mean() >= 1.3 * IDEAL_S


def test_cassini_puts_a_drifting_job_back() -> None:
    """Computing that varies by 8 % throws jobs off their slots; whoever is 5 % off waits for the next one."""
    result = run("cassini", iterations=25, noise="8%", **COMPATIBLE)
    found = off_the_grid(result)
    assert found["off"].max() <= 0.05 + ANSWER_S / IDEAL_S
    assert found.loc[found["iteration"] == 0, "off"].max() < 1e-6
    waiting = found[(found["worker"] == 0) & (found["waited"] > 1e-6)]
    assert set(waiting["job"]) == {0, 1} and waiting["off"].max() < 1e-6


@pytest.mark.slow
def test_all_workers_of_a_job_wait_together() -> None:
    """Rank 0 decides; who has not ended the iteration before by then (of a ring, the last may be late) begins at once."""
    result = run(
        "cassini", job=["s2,workers=4", "s3,workers=4"], keep_duty=True, rate="200mbit", iterations=8, noise="8%"
    )
    found = off_the_grid(result)
    found["ended"] = found["start_s"] - found["waited"]
    decided = found[found["worker"] == 0].set_index(["job", "iteration"])["start_s"]
    found = found.join(decided.rename("decided_s"), on=["job", "iteration"])
    later = found[(found["worker"] > 0) & (found["iteration"] > 0)]
    assert later["start_s"].to_numpy() == pytest.approx(later[["decided_s", "ended"]].max(axis="columns"), abs=2e-9)
    assert (found.loc[found["worker"] == 0, "waited"] > 1e-3).any()


@pytest.mark.slow
def test_cassini_goes_by_iterations_measured_alone(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A lone ring takes longer than its ideal: slots a job could not keep would cost it an iteration each time."""
    flags = [
        "--trace",
        "s2",
        "--keep-duty",
        "--rate",
        "500mbit",
        "--iterations",
        "6",
        "--cc",
        "cassini",
        "--on",
        "uml",
        "--name",
        "x",
    ]
    assert main(["run", *flags, "--out", str(tmp_path), "--quiet"]) == EXIT_OK
    capsys.readouterr()
    (job, *_) = load_run(tmp_path / "x/cassini/1").jobs
    assert job.grid is not None
    period_s = job.grid.period_ns / 1e9
    alone = pd.read_csv(tmp_path / "x/isolated/job0/cassini/1/iterations.csv")
    assert metrics.alone(metrics.iteration_times(alone)) < period_s < 1.2 * 1.6273
    assert main(["run", "--verify", str(tmp_path / "x/cassini/1")]) == EXIT_OK


def test_priority_lets_the_job_with_less_left_finish_first() -> None:
    """A job of 5 MB that begins last is hardly held up by one of 28 MB, which goes on behind it."""
    jobs = ["synthetic,compute=500ms,bytes=28MB", "synthetic,compute=600ms,bytes=5MB,iterations=1"]
    fields: dict[str, Any] = {"job": jobs, "rate": "500mbit", "start_offsets": "0ms,0ms", "iterations": 1}
    small_s, big_s = 0.6 + 5e6 * 8 / 500e6 * 1514 / 1448, 0.5 + 33e6 * 8 / 500e6 * 1514 / 1448
    served = times(run("priority", **fields)).iloc[0]
    assert served[1] == pytest.approx(small_s, rel=0.02)
    assert served[0] == pytest.approx(big_s, rel=0.02)
    assert times(run("reno", **fields)).iloc[0][1] > 1.08 * small_s


def test_pias_lets_the_job_that_has_sent_less_go_first() -> None:
    """As above, but nobody knows that the job of 5 MB is the smaller one: only near its end has it sent as much as the other had."""
    jobs = ["synthetic,compute=500ms,bytes=28MB", "synthetic,compute=600ms,bytes=5MB,iterations=1"]
    served = times(run("pias", job=jobs, rate="500mbit", start_offsets="0ms,0ms", iterations=1)).iloc[0]
    assert served[1] == pytest.approx(0.6 + 5e6 * 8 / 500e6 * 1514 / 1448, rel=0.03)
    assert served[0] == pytest.approx(0.5 + 33e6 * 8 / 500e6 * 1514 / 1448, rel=0.02)


def test_priority_interleaves_equal_jobs_after_one_iteration() -> None:
    """The leader's share is everything: the next lead is a whole communication phase."""
    found = times(run("priority", iterations=6, **COMPATIBLE))
    assert found.iloc[0].max() > 1.3 * IDEAL_S
    assert found.iloc[2:].to_numpy().max() <= 1.02 * IDEAL_S


@pytest.mark.slow
def test_static_unfairness_helps_both_of_a_compatible_pair() -> None:
    """The HotNets'22 effect: also the job that gets less is faster than under fair sharing."""
    found = times(run("unfair", iterations=10, **COMPATIBLE))
    fair = times(run("reno", iterations=10, **COMPATIBLE))
    assert found.iloc[-3:].to_numpy().max() <= 1.03 * IDEAL_S
    assert found.mean().max() < 0.9 * fair.mean().min()


@pytest.mark.long
def test_two_jobs_like_vgg19_at_their_rate() -> None:
    """HotNets'22, figure 1: fair about 0.31 s, unfair about 0.255 s, both read from the image.

    With these volumes the jobs need 115 % of the link: both gain on fair sharing, but not alike.
    """
    fields = {
        "compute": "84ms", "bytes": "650MB", "rate": "46gbit", "mtu": 9000, "buffer": "2MB", "ecn": "5kB,200kB,1%",
    }  # fmt: skip
    fair = times(run("dcqcn", iterations=3, **fields))
    unfair = times(run("unfair:over=dcqcn", iterations=12, **fields)).iloc[2:]
    assert fair.to_numpy().mean() == pytest.approx(0.31, rel=0.03)
    assert unfair.mean()[0] == pytest.approx(0.255, rel=0.06)
    assert unfair.mean().max() < 0.31
    assert fair.to_numpy().mean() / unfair.to_numpy().mean() > 1.1


@pytest.mark.slow
def test_a_loop_of_links_is_refused_by_cassini_and_no_obstacle_to_mltcp(capsys: pytest.CaptureFixture[str]) -> None:
    """Three jobs, each pair of which shares a link: the circular dependency of MLTCP's figure 2."""
    assert main(["run", "--topo", "ring", "--jobs", "3", "--cc", "cassini", "--on", "uml"]) == EXIT_REQUEST
    words = capsys.readouterr().err
    assert "(job 1 – link a2-b2 – job 0 – link a1-b1 – job 2 – link a3-b3 – job 1)" in words
    assert "a1-b1 1.000" in words
    ring: dict[str, Any] = {"topo": "ring", "jobs": 3, "rto_min": "5ms", "iterations": 24}
    found = times(run("mltcp_reno", **ring))
    lone = runs.one_plan(alone=True, cc=["mltcp_reno"], **ring)
    isolated_s = metrics.alone(
        times(runs.Result(rundir.unpack(uml.find().run(lone, lambda event: None, patience(lone)))))
    )
    assert found.iloc[-8:].to_numpy().max() <= 1.05 * isolated_s


@pytest.mark.slow
def test_lretf_without_preemption_has_one_job_communicate_at_a_time() -> None:
    """Which the base does not: there they overlap."""
    jobs = ["synthetic,compute=40ms,bytes=1MB,workers=2,collective=ring"] * 3
    overlaps = {
        system: np.nanmean(metrics.overlap(run(system, job=jobs, iterations=6, rate="500mbit").table("iterations.csv")))
        for system in ("reno", "lretf:preempt=no")
    }
    assert overlaps["lretf:preempt=no"] < 1e-3 and overlaps["reno"] > 0.2

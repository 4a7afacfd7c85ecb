"""What jobs send, under virtual time: replays keep to their trace, collectives carry what they must."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed import spec
from testbed.backends import uml
from testbed.backends.progress import patience
from testbed.core.runs import rundir
from testbed.planning import plan
from testbed.traces import collectives
from testbed.traces import trace as library
from tests.support import replay, runs, traces

TEN_MICROSECONDS = 10e-6
EVERYBODY = [name for name in collectives.names() if name != "send_recv"]


def run(**fields: Any) -> runs.Result:
    """The first plan of a spec, whatever else belongs to it."""
    one = plan.plans(plan.resolve(spec.read(None, {"cc": ["reno"], "iterations": 2, **fields})))[0]
    return runs.Result(rundir.unpack(uml.find().run(one, lambda event: None, patience(one))))


@pytest.mark.parametrize("name", runs.some(library.names(), "resnet50", "gpt2-xl", "s2", "vgg19", "googlenet-layers"))
def test_a_replay_keeps_to_its_trace(name: str) -> None:
    """On a link of its own each collective begins when the trace says, given how long those before it took."""
    result = run(
        jobs=1, trace=name, keep_duty=True, rate="1gbit", mtu=9000, buffer="2MB", noise="0%", sample_interval="100ms"
    )
    found = replay.starts(result, library.load(name).scaled(10**9))
    assert found["measured_s"].to_numpy() == pytest.approx(found["expected_s"].to_numpy(), abs=TEN_MICROSECONDS)


@pytest.mark.parametrize(("workers", "channels"), runs.some([(2, 1), (2, 4), (4, 1), (4, 4), (8, 1), (8, 4)], (4, 1)))
def test_every_collective_carries_its_volume(tmp_path: Path, workers: int, channels: int) -> None:
    jobs = [
        f"{traces.one_exchange(tmp_path, name, '200007B')},workers={workers},channels={channels}" for name in EVERYBODY
    ]
    result = run(job=jobs, sample_interval="100ms", rate="1gbit")
    iterations = result.table("iterations.csv")
    for job in result.manifest["plan"]["jobs"]:
        sent = iterations[iterations["job"] == job["job"]].groupby("worker")["bytes"]
        name = job["trace"]
        expected = [0] * workers
        for share in collectives.parts(channels, 200_007):
            for flow in collectives.flows(name, workers):
                expected[flow[0]] += collectives.volume(name, workers, share, flow)
        assert [set(values) for _, values in sent] == [{volume} for volume in expected], name
    flows = result.table("flows.csv")
    per_job = flows.groupby("job")[["worker", "flow"]].apply(lambda rows: len(rows.drop_duplicates()))
    assert list(per_job) == [channels * len(collectives.flows(name, workers)) for name in EVERYBODY]


def test_jobs_come_and_go_and_differ_in_length() -> None:
    result = run(
        rate="100mbit",
        job=["synthetic,compute=50ms,bytes=200kB,iterations=12",
             "synthetic,compute=30ms,bytes=100kB,offset=300ms,leave=700ms,iterations=100",
             "synthetic,compute=100ms,bytes=500kB,iterations=3"],
    )  # fmt: skip
    iterations = result.table("iterations.csv")
    ended = dict(iter(iterations.groupby("job")))
    assert len(ended[0]) == 12 * 2 and len(ended[2]) == 3 * 2
    assert ended[1]["start_s"].min() == pytest.approx(0.3, abs=1e-6)
    assert 0.6 < ended[1]["end_s"].max() <= 0.7
    assert 5 * 2 <= len(ended[1]) <= 11 * 2
    flows = result.table("flows.csv")
    assert flows.loc[flows["job"] == 1, "t_s"].max() == pytest.approx(0.7, abs=0.011)


@pytest.mark.slow
def test_noise_lengthens_whole_iterations_and_stragglers_single_workers() -> None:
    fields: dict[str, Any] = {
        "rate": "1gbit",
        "mtu": 9000,
        "trace": "s2",
        "keep_duty": True,
        "jobs": 1,
        "workers": 4,
        "iterations": 12,
        "sample_interval": "100ms",
    }
    spread = begins(run(noise="lognormal:20%", **fields))
    assert spread.groupby("iteration")["comm"].nunique().max() == 1  # all workers alike
    assert 0.05 < spread.groupby("iteration")["comm"].first().std() < 0.5
    straggling = begins(run(noise="stragglers:50%", **fields))
    late = straggling[straggling["comm"] > 1.001]
    assert 2 <= late["iteration"].nunique() <= 10
    assert set(late.groupby("iteration")["worker"].count()) == {1}


def test_noise_is_drawn_from_the_seed_alone() -> None:
    """Whatever the congestion control. (The sender's: a receiver begins with the bytes.)"""
    fields: dict[str, Any] = {"jobs": 1, "iterations": 4, "compute": "20ms", "bytes": "100kB", "noise": "10%"}
    plans = ({"cc": ["reno"]}, {"cc": ["cubic"]}, {"seed": 2})
    first, again, other = (begins(run(**fields | one)).query("worker == 0")["comm"] for one in plans)
    assert first.nunique() == 4 and list(first) == list(again)
    assert set(first).isdisjoint(other)


def begins(result: runs.Result) -> pd.DataFrame:
    """How long after its iteration's start each worker began to communicate."""
    table = result.table("iterations.csv")
    return table.assign(comm=(table["comm_start_s"] - table["start_s"]).round(6))


def test_a_trace_and_a_topology_from_outside_the_checkout(tmp_path: Path) -> None:
    """The examples, copied elsewhere, as a user would begin: named relative to the file that names them."""
    for name in ("two_bursts.json", "two_sites.py"):
        (tmp_path / name).write_text((runs.ROOT / "examples" / name).read_text())
    (tmp_path / "mine.toml").write_text(
        'topo = "./two_sites.py"\ntrace = "./two_bursts.json"\nkeep_duty = true\njobs = 1\nrate = "200mbit"\niterations = 2\ncc = ["reno"]\non = "uml"\n'
    )
    done = runs.cli("mine.toml", "--allow-external-code", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["results"][0]["mean_s"] >= summary["results"][0]["ideal_s"]
    manifest = json.loads((tmp_path / "results/mine/reno/1/manifest.json").read_text())
    assert manifest["plan"]["jobs"][0]["trace"] == "two-bursts" and manifest["topology_sha256"]

"""Jobs that hold GPUs, under virtual time: who waits starts when others end, to the nanosecond."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from testbed.backends import uml
from testbed.backends.progress import patience
from testbed.core.runs import rundir
from tests.support import runs

# Servers of four GPUs: the first job fits into one, the second spans both, the third waits for GPUs of each.
JOBS = [{"gpus": 2}, {"gpus": 4}, {"gpus": 4, "offset": "20ms"}, {"gpus": 1, "iterations": 3}]
FIELDS: dict[str, Any] = {
    "cc": ["reno"], "scheduler": "first_fit", "job": JOBS, "compute": "10ms", "bytes": "6MB", "rate": "10gbit", "mtu": 9000,
    "iterations": 4, "rto_min": "5ms",
}  # fmt: skip


def run(**fields: Any) -> runs.Result:
    one = runs.one_plan(**{**FIELDS, **fields})
    return runs.Result(rundir.unpack(uml.find().run(one, lambda event: None, patience(one))))


def iterations(result: runs.Result) -> pd.DataFrame:
    return result.table("iterations.csv").groupby("job").agg(begin=("start_s", "min"), end=("end_s", "max"), count=("iteration", "nunique"))  # fmt: skip


@pytest.mark.parametrize("topo", ["cluster,4,4", "star,2,4"])
def test_gpus_go_on_at_the_instant_of_an_end(topo: str) -> None:
    result = run(topo=topo)
    found, took = result.table("jobs.csv").set_index("job"), iterations(result)
    ends = found["end_s"].tolist()
    assert list(found["outcome"]) == ["done"] * 4
    assert list(took["count"]) == [4, 4, 4, 3]
    assert (found["start_s"] == took["begin"]).all() and (found["end_s"] == took["end"]).all()
    assert found["start_s"].tolist()[2] == max(ends[0], ends[3])
    # Inside a server an iteration computes, and nothing else; over two, 2 m (w - 1) / w cross each edge.
    assert ends[0] == pytest.approx(0.04, abs=1e-6)
    sent = result.table("iterations.csv").groupby(["job", "worker"])["bytes"].unique()
    assert list(sent[0][0]) == [0] and list(sent[1][0]) == [9_000_000] and list(sent[1][1]) == [9_000_000]


def test_the_same_bytes_again() -> None:
    first, second = run(topo="star,2,4"), run(topo="star,2,4")
    assert first.files["jobs.csv"] == second.files["jobs.csv"]
    assert first.files["iterations.csv"] == second.files["iterations.csv"]


def test_a_job_that_leaves_frees_its_gpus() -> None:
    jobs = [{"gpus": 8, "iterations": 1000, "leave": "50ms"}, {"gpus": 8}]
    found = run(topo="cluster,4,4", job=jobs).table("jobs.csv").set_index("job")
    assert list(found["outcome"]) == ["left", "done"]
    assert found["end_s"].tolist()[0] == found["start_s"].tolist()[1] == 0.05

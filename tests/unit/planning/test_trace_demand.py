"""What a trace asks of a cluster: bytes on the busiest server's uplink and the longest chain of computes, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import RequestError
from testbed.core.placing import Request
from testbed.models.contention import Model
from testbed.planning.trace_demand import demand
from testbed.traces import job_lists, model_jobs, trace
from tests.support import group_traces
from tests.support.paths import ROOT


def of(raw: dict[str, Any], folder: Path) -> trace.Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps(raw))
    return trace.load(str(path))


def test_an_all_reduce_is_its_tensor() -> None:
    for gpus in (1, 2, 7, 100_000):
        found = demand(trace.load("resnet50"), gpus)
        assert found.gradient_bytes == (102_228_128 if gpus > 1 else 0)
        assert found.compute_s == pytest.approx(trace.load("resnet50").compute_s)
    # All-gather and reduce-scatter put half as much on the wire.
    assert demand(trace.load("resnet50-fsdp"), 4).gradient_bytes == 306_684_384 / 2
    # 2.125 GB one way are 2 m (w − 1) ÷ w.
    assert demand(trace.load("mltcp-50g"), 4).gradient_bytes == round(2.125e9 * 4 / 6)


def test_groups_inside_a_server_cross_no_uplink(tmp_path: Path) -> None:
    """Servers of two ranks: each rank sends two activations, and a ring of two sends the gradients once."""
    asked = demand(of(group_traces.pipeline(), tmp_path))
    busiest = 2 * (2 * group_traces.ACTIVATION + group_traces.GRADIENT)
    assert (asked.gpus, asked.gradient_bytes) == (8, round(busiest * 8 / 14))
    # Forward 2 ms, both passes of the other stage 6 ms, backward 4 ms: twice, as computes of a rank run in list order.
    assert asked.compute_s == pytest.approx(0.024)
    bits = 8 * busiest
    one = Request(0, 8, 1, asked.gradient_bytes, asked.compute_s)
    assert Model(rate_bps=1e9).tau_s(one, servers=4) == pytest.approx(0.024 + bits / 1e9)


def test_uneven_parts_are_those_of_the_busiest(tmp_path: Path) -> None:
    raw = group_traces.experts()
    for role in raw["roles"]:
        role["operations"] = [op for op in role["operations"] if op["kind"] in ("compute", "all_to_all")]
    out = [sum(row) - row[rank] for rank, row in enumerate(group_traces.EXPERTS)]
    came = [sum(row[rank] for row in group_traces.EXPERTS) - group_traces.EXPERTS[rank][rank] for rank in range(4)]
    assert demand(of(raw, tmp_path), 4).gradient_bytes == round(max(*out, *came) * 4 / 6)


def test_what_a_job_cannot_replay(tmp_path: Path) -> None:
    for found, gpus in (
        (trace.load("resnet50"), None),
        (of(group_traces.pipeline(), tmp_path), 4),
        (trace.load("pipeline"), 10**6),
    ):
        with pytest.raises(RequestError):
            demand(found, gpus)


def read(text: str, folder: Path) -> job_lists.JobList:
    (folder / "jobs.csv").write_text(text)
    return job_lists.read(folder / "jobs.csv", 10**10, 1)


def test_a_row_of_a_list_names_a_trace(tmp_path: Path) -> None:
    of(group_traces.pipeline(), tmp_path)
    work = {"version": 2, "name": "work", "operations": [
        {"id": "step", "kind": "compute", "flops": 3.9576e14}, {"id": "all", "kind": "all_reduce", "bytes": "1MB", "after": ["step"]}]}  # fmt: skip
    (tmp_path / "work.json").write_text(json.dumps(work))
    found = read(
        "job,gpus,iterations,trace,arrival_s\n0,4,100,resnet50,0\n1,,50,./trace.json,1\n2,2,10,work.json --device h100 --mfu 40%\n",
        tmp_path,
    )
    resnet50 = demand(trace.load("resnet50"), 4)
    assert found.requests[0] == Request(0, 4, 100, 102_228_128, resnet50.compute_s, 0)
    assert found.requests[1].gpus == 8 and found.requests[1].arrival_s == 1
    assert found.requests[2] == Request(2, 2, 10, 1_000_000, 1.0, 0)  # 395.76 of 989.4 Tflop/s
    assert found.assumed and not found.synthetic
    assert job_lists.read(tmp_path / "jobs.csv", 10**9, 1).requests == found.requests
    toml = tmp_path / "jobs.toml"
    toml.write_text('[[job]]\njob = 0\ngpus = 4\niterations = 100\ntrace = "resnet50"\n')
    assert job_lists.read(toml, 10**10, 1).requests == found.requests[:1]
    mixed = read("job,gpus,iterations,trace,gradient_bytes,compute_s\n0,4,9,resnet50,,\n1,2,9,,1000,0.5\n", tmp_path)
    assert mixed.requests[1] == Request(1, 2, 9, 1000, 0.5, 0)


@pytest.mark.parametrize("name", ["jobs.csv", "philly.json"])
def test_bytes_are_scaled_only_if_jobs_keep_their_duty(name: str, tmp_path: Path) -> None:
    """Of a table's trace and of the models that a log's jobs are drawn from: all have a native rate above 1 Gbit/s."""
    (tmp_path / "jobs.csv").write_text("job,gpus,iterations,trace\n0,4,9,gpt2\n")
    path = tmp_path / name if name == "jobs.csv" else ROOT / "tests" / "data" / "joblists" / name
    fast, slow, kept, native = (
        job_lists.read(path, rate, 1, keep_duty=duty)
        for rate, duty in ((10**11, False), (10**9, False), (10**9, True), (5 * 10**10, True))
    )
    assert fast.requests == slow.requests != kept.requests
    said = ["; ".join((one.synthetic, *one.assumed)) for one in (slow, kept)]
    assert (
        any(words in said[0] for words in ("--keep-duty scales", "--keep-duty would scale")) and "scaled by" in said[1]
    )
    if name == "jobs.csv":
        assert native.requests == slow.requests and not any("duty" in text for text in fast.assumed)
        assert "scaled by 0.02" in said[1]
        assert kept.requests[0].gradient_bytes == round(slow.requests[0].gradient_bytes / 50)


def test_a_row_of_a_list_names_a_model(tmp_path: Path) -> None:
    """GPT-2 has 124,439,808 parameters, and a gradient of two bytes for each."""
    (tmp_path / "own.toml").write_text((ROOT / "workloads" / "models" / "gpt2.toml").read_text())
    found = read(
        "job,gpus,iterations,trace\n0,,10,--model gpt2 --dp 8 --device a100\n1,8,10,--model ./own.toml --dp 8 --device a100\n"
        "2,16,10,--model gpt2 --tp 2 --pp 2 --dp 4 --micro-batches 4 --device a100\n", tmp_path,
    )  # fmt: skip
    first, second, third = found.requests
    assert (first.gpus, first.gradient_bytes) == (8, 2 * 124_439_808)
    assert first.compute_s == pytest.approx(
        model_jobs.from_line("--model gpt2 --dp 8 --device a100").timed(None).compute_s
    )
    assert (second.gpus, second.gradient_bytes, second.compute_s) == (8, first.gradient_bytes, first.compute_s)
    # Four micro-batches on four GPUs of a replica, and one more slot of two stages until the pipeline is full.
    assert third.gpus == 16 and first.compute_s * 5 / 4 < third.compute_s < first.compute_s * 3 / 2


@pytest.mark.parametrize(
    "row",
    [
        "0,4,100,resnet51,0", "0,,100,resnet50,0", "0,4,100,./none.json,0", "0,4,100,'resnet50,0", "0,4,100,resnet50 --device,0",
        "0,4,100,resnet50 --device abacus,0", "0,4,100,resnet50 --fast yes,0", "0,4,100,./trace.json,0", "0,4,100,,0", "0,4,,resnet50,0",
        "0,,100,--model gpt5 --dp 8 --device a100,0", "0,,100,--model gpt2 --dp 8,0", "0,,100,--model,0", "0,4,100,--model gpt2 --tp 2 --dp 4 --device a100,0",
        "0,,100,--model ./none.toml --dp 8 --device a100,0",
    ],
)  # fmt: skip
def test_a_bad_trace_refuses_the_list(row: str, tmp_path: Path) -> None:
    of(group_traces.pipeline(), tmp_path)
    with pytest.raises(RequestError, match="line 2"):
        read(f"job,gpus,iterations,trace,arrival_s\n{row}\n", tmp_path)
    with pytest.raises(RequestError, match="gradient_bytes"):
        read("job,gpus,iterations,trace,gradient_bytes\n0,4,100,resnet50,7\n", tmp_path)

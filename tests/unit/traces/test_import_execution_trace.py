"""PyTorch execution traces, with times and without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.core.units import Duration, Rate
from testbed.traces import importing
from testbed.traces.trace import TraceError
from tests.support.profiles import (
    HOST_ONE_RANK,
    HOST_TWO_RANKS,
    RECORDED,
    Json,
    collectives,
    imported,
    nccl_host_trace,
    profile,
)  # fmt: skip


@pytest.mark.parametrize("path", [HOST_ONE_RANK, HOST_TWO_RANKS], ids=lambda path: path.name)
def test_a_recorded_host_trace(path: Path) -> None:
    """Gloo's collectives are nodes of its own, whose inputs tell how large they are."""
    assert importing.detect(path) == "execution_trace"
    trace = imported(path, iteration=Duration.parse("20ms"))
    assert len(profile(path, iteration=Duration.parse("20ms")).steps) == 3
    assert collectives(trace) == [("all_reduce", size) for size in RECORDED]
    assert trace.compute_s == pytest.approx(0.02)
    said = " ".join(trace.assumptions)
    assert "annotations of their backend (6 gloo:all_reduce)" in said
    assert "nodes' inputs" in said
    assert ("its process group had one rank" in said) == (path == HOST_ONE_RANK)
    with pytest.raises(TraceError, match="--iteration 222ms"):
        imported(path)


def write(folder: Path, raw: Json) -> Path:
    path = folder / "host.json"
    path.write_text(json.dumps(raw))
    return path


def test_a_host_trace_of_nccl(tmp_path: Path) -> None:
    path = write(tmp_path, nccl_host_trace())
    trace = imported(path, iteration=Duration.parse("222ms"), native_rate=Rate.parse("25gbit"))
    assert collectives(trace) == [("all_reduce", 8_196_000), ("all_reduce", 31_502_336)]
    assert trace.compute_s == pytest.approx(0.222)
    assert trace.noise == "0%"
    assert trace.native_rate == 25_000_000_000
    assert "222 ms of computing per step" in trace.assumptions[0]


@pytest.mark.parametrize(
    "inputs",
    [
        {
            "inputs": {
                "values": ["x", "allgather"],
                "shapes": [[[250]], []],
                "types": ["GenericList[Tensor(float)]", "Int"],
            }
        },
        {"inputs": ["x", "allgather"], "input_shapes": [[250], []], "input_types": ["Tensor(float)", "Int"]},
    ],
)
def test_an_old_host_trace_tells_by_its_inputs(tmp_path: Path, inputs: Json) -> None:
    """Before schema 1.1.0 neither the collective's name nor its elements are attributes."""
    raw = nccl_host_trace()
    for node in raw["nodes"]:
        if node["name"] == "record_param_comms":
            node.update(inputs, attrs=[])
    path = write(tmp_path, raw)
    hand = Duration.parse("222ms")
    with pytest.raises(TraceError, match="sizes of its collectives"):
        imported(path, iteration=hand)
    assert collectives(imported(path, iteration=hand, ranks=4)) == [("all_gather", 4000)] * 2


def test_a_refusal_names_what_there_is(tmp_path: Path) -> None:
    raw = nccl_host_trace()
    attributes = [one for node in raw["nodes"] if node["name"] == "record_param_comms" for one in node["attrs"]]
    for one in attributes:
        if one["name"] == "collective_name":
            one["value"] = "gather"
    with pytest.raises(TraceError, match="6 gather "):
        imported(write(tmp_path, raw), iteration=Duration.parse("222ms"))


def test_a_host_trace_with_times(tmp_path: Path) -> None:
    nodes: list[Json] = []
    for number in range(3):
        first, t = 100 * number + 1, 100_000.0 * number
        told = {"collective_name": "allreduce", "dtype": "Float", "in_msg_nelems": 250, "out_msg_nelems": 250}
        attrs = [{"name": key, "value": value} for key, value in told.items()]
        nodes += [
            {"id": first, "name": f"ProfilerStep#{number}", "ctrl_deps": 0, "ts": t, "dur": 90_000.0},
            {"id": first + 2, "name": "record_param_comms", "ts": t + 60_000, "dur": 10_000.0, "attrs": attrs},
            {"id": first + 1, "name": "aten::mm", "ts": t, "dur": 1.0, "op_schema": "aten::mm(…)"},
        ]
    path = tmp_path / "host.json"
    path.write_text(json.dumps({"schema": "1.0.1", "nodes": nodes}))
    trace = imported(path)
    assert [(op.kind, op.duration or op.bytes) for op in trace.operations] == [
        ("compute", 60_000_000), ("all_reduce", 1000), ("compute", 20_000_000),
    ]  # fmt: skip


def test_sends_and_receives_without_a_peer(tmp_path: Path) -> None:
    raw = nccl_host_trace()
    named = [one for node in raw["nodes"] for one in node["attrs"] if one["name"] == "collective_name"]
    for number, one in enumerate(named):
        one["value"] = ("recv", "send")[number % 2]
    trace = imported(write(tmp_path, raw), iteration=Duration.parse("20ms"))
    profiled = next(role for role in trace.roles if role.name == "profiled")
    assert [(op.kind, op.peer) for op in profiled.operations if op.point_to_point] == [("recv", "-1"), ("send", "+1")]

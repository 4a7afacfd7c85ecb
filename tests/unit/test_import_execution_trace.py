"""PyTorch execution traces, with times and without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.profiles import (
    BUCKETS,
    GRADIENTS,
    HOST,
    Json,
    collectives,
    imported,
    profile,
    real,
)
from workloads import importers
from workloads.trace import TraceError
from workloads.units import Duration, Rate


@real
def test_a_real_host_trace(tmp_path: Path) -> None:
    assert importers.detect(HOST) == "execution_trace"
    trace = imported(HOST, iteration=Duration.parse("222ms"), native_rate=Rate.parse("25gbit"))
    assert len(profile(HOST, iteration=Duration.parse("222ms")).steps) == 3
    assert trace.bytes_per_iteration == pytest.approx(GRADIENTS, rel=0.01)
    assert [size for kind, size in collectives(trace) if kind == "all_reduce"] == BUCKETS
    assert trace.compute_s == pytest.approx(0.222)
    assert trace.noise == "0%"
    assert trace.native_rate == 25_000_000_000
    assert "222 ms of computing per step was given by hand" in trace.assumptions[0]
    with pytest.raises(TraceError, match="--iteration 222ms"):
        imported(HOST)


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

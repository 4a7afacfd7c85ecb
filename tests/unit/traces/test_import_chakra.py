"""Chakra traces: with times as they were measured, without them carried out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.traces import importing
from testbed.traces.trace import TraceError
from tests.support.profiles import (
    Chakra,
    collectives,
    imported,
)


def test_chakra_without_times_is_carried_out(tmp_path: Path) -> None:
    made = Chakra()
    forward = made.compute(30_000)
    backward = made.compute(20_000, forward)
    first = made.collective(1000, backward)
    rest = made.compute(10_000, backward)
    second = made.collective(2000, rest)
    made.compute(5_000, first, second)
    path = made.write(tmp_path, "no-extension")
    assert importing.detect(path) == "chakra"
    trace = imported(path)
    assert [(op.id, op.duration or op.bytes, op.after) for op in trace.operations] == [
        ("compute1", 50_000_000, ()),
        ("all_reduce1", 1000, ("compute1",)),
        ("compute2", 10_000_000, ()),
        ("all_reduce2", 2000, ("compute2",)),
        ("optimizer", 5_000_000, ("all_reduce1", "all_reduce2")),
    ]
    assert any("start times" in one for one in trace.assumptions)


def test_chakra_what_the_next_computing_waits_for_blocks(tmp_path: Path) -> None:
    made = Chakra()
    layer = made.compute(10_000)
    gathered = made.collective(1000, layer, type=2)
    label = made.node("label", 1, gathered)
    layer = made.compute(20_000, label)
    made.collective(500, layer, type=7)
    trace = imported(made.write(tmp_path))
    assert [(op.id, op.duration or op.bytes, op.after) for op in trace.operations] == [
        ("compute1", 10_000_000, ()),
        ("all_gather1", 1000, ("compute1",)),
        ("compute2", 20_000_000, ("all_gather1",)),
        ("reduce_scatter2", 500, ("compute2",)),
    ]


def test_chakra_a_collective_may_be_awaited_later(tmp_path: Path) -> None:
    made = Chakra()
    layer = made.compute(10_000)
    early = made.collective(1000, layer)
    layer = made.compute(10_000, layer)
    layer = made.compute(20_000, layer, early)
    made.collective(500, layer)
    trace = imported(made.write(tmp_path))
    assert [(op.id, op.duration or op.bytes, op.after) for op in trace.operations] == [
        ("compute1", 10_000_000, ()),
        ("all_reduce1", 1000, ("compute1",)),
        ("compute2", 10_000_000, ()),
        ("compute2.2", 20_000_000, ("all_reduce1",)),
        ("all_reduce2", 500, ("compute2.2",)),
    ]


def test_chakra_a_queue_is_no_computing(tmp_path: Path) -> None:
    """The second collective waits for the first, 50 ms long; it was ready after 20 ms."""
    made = Chakra()
    first = made.compute(10_000)
    made.collective(1000, first, duration=50_000)
    second = made.compute(10_000, first)
    made.collective(500, second, duration=50_000)
    trace = imported(made.write(tmp_path))
    assert [op.duration for op in trace.operations if op.computes] == [10_000_000, 10_000_000]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"comm_dst": 0}, "sends to itself"),
        ({"comm_dst": -1}, "'comm_dst' is -1"),
        ({"comm_src": "zero"}, "'comm_src' is 'zero'"),
    ],
)
def test_chakra_messages_that_make_no_sense(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    made = Chakra()
    made.node("send", 5, made.compute(10), **{"comm_size": 5, "comm_src": 0, "comm_dst": 1, **changes})
    with pytest.raises(TraceError, match=says):
        imported(made.write(tmp_path))


def test_chakra_the_cpus_call_is_no_collective_of_its_own(tmp_path: Path) -> None:
    """The converter gives c10d::broadcast_ the type of a collective, and the NCCL kernel that it launches as well."""
    made = Chakra()
    for name in ("c10d::broadcast_", "c10d::allreduce_"):
        made.node(name, 7, duration=1000, is_cpu_op=True)
    with pytest.raises(TraceError, match=r"calls of some.*1 c10d::broadcast_, 1 c10d::allreduce_.*chakra_trace_link"):
        imported(made.write(tmp_path))
    made.collective(500, 1, type=5)
    made.node("ncclDevKernel_AllReduce_Sum_f32", 7, 2, comm_size=1000, is_cpu_op=False)
    trace = imported(made.write(tmp_path))
    assert sorted(collectives(trace)) == [("all_reduce", 1000), ("broadcast", 500)]
    said = " ".join(trace.assumptions)
    assert "the CPU's calls of collectives" in said
    assert "taken from their names (1 ncclDevKernel_AllReduce_Sum_f32)" in said


def test_chakra_with_times_groups_and_steps(tmp_path: Path) -> None:
    made = Chakra()
    for number in range(3):
        t = 1_000_000 + 100_000 * number
        made.node(f"ProfilerStep#{number}", 1, start=t)
        made.compute(40_000, start=t)
        made.collective(1000, start=t + 40_000, duration=10_000, pg_name="dp")
        made.collective(10, start=t + 45_000, duration=1_000, pg_name="tp", type=5)
        made.node("barrier", 7, start=t + 55_000, duration=1, comm_type=9)
        made.compute(20_000, start=t + 70_000)
    path = made.write(tmp_path)
    trace = imported(path)
    assert [(op.kind, op.duration or op.bytes) for op in trace.operations] == [
        ("compute", 40_000_000), ("all_reduce", 1000), ("compute", 40_000_000),
    ]  # fmt: skip
    assert "process group 'tp'" in " ".join(trace.assumptions)
    assert collectives(imported(path, group="tp")) == [("broadcast", 10)]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: data[:-3], "message 3 (Node) is cut off"),
        (lambda data: data[:-1] + b"\xff", "cannot be decoded"),
        (lambda data: data + b"\x80", "length of a message is incomplete"),
        (lambda data: data + b"\xff\xff\xff\xff\x0f", "claims 4294967295 bytes"),
        (lambda data: data[:8], "metadata and no nodes"),
        (lambda data: b"", "is empty"),
        (lambda data: b"\x00" * 100, "two nodes have the id 0"),
        (lambda data: Chakra().bytes() + data[8:] + data[8:], "two nodes have the id 1"),
    ],
)
def test_chakra_damaged(tmp_path: Path, spoil: Callable[[bytes], bytes], says: str) -> None:
    made = Chakra()
    made.collective(1000, made.compute(10, made.compute(10)))
    path = made.write(tmp_path)
    assert len(Chakra().bytes()) == 8
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(TraceError) as error:
        imported(path)
    assert says in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda made: made.node("comm", 7, comm_size=5), "no attribute 'comm_type'"),
        (lambda made: made.node("comm", 7, comm_type=0), "'comm_size' has to be a number of bytes, and it is none"),
        (lambda made: made.node("comm", 7, comm_type=0, comm_size="big"), "and it is 'big'"),
        (lambda made: made.node("comm", 7, comm_type=0, comm_size=-5), "and it is -5"),
        (lambda made: made.node("comm", 7, comm_type=3, comm_size=5), "'comm_type' is 3"),
        (lambda made: made.collective(1 << 60, made.compute(5)), "implausible"),
        (lambda made: made.collective(5, made.compute(1 << 61)), "'duration_micros' is 2305843009213693952"),
        (lambda made: made.collective(5, made.compute(1 << 59)), "implausible for an iteration"),
        (lambda made: made.collective(5, made.compute(5, 2)), "waits for itself"),
        (lambda made: made.compute(5), "no collective"),
    ],
)
def test_chakra_that_makes_no_sense(tmp_path: Path, build: Callable[[Chakra], Any], says: str) -> None:
    made = Chakra()
    build(made)
    path = made.write(tmp_path)
    with pytest.raises(TraceError) as error:
        imported(path)
    assert says in str(error.value) and str(path) in str(error.value)

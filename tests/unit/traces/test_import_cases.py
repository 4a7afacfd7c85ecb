"""Small profiles of situations that go wrong easily, each with what is right."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

import pytest

from testbed.core.units import Duration, Rate
from testbed.traces.trace import Role, Trace
from tests.support.profiles import CASES, imported, profile

MS = 1_000_000
RATE = Rate.parse("20gbit")


def case(name: str, **options: object) -> Trace:
    path = next(CASES.glob(f"{name}.*"))
    return imported(path, native_rate=RATE, **options)


def spread(trace: Trace) -> float:
    return float(trace.noise.rstrip("%"))


def ready(trace: Trace) -> list[float]:
    """How many seconds have been computed when each collective is ready."""
    computes = [op for op in trace.operations if op.kind == "compute"]
    ends = dict(zip((op.id for op in computes), accumulate((op.duration or 0) / 1e9 for op in computes), strict=True))
    return [max((ends[name] for name in op.after), default=0.0) for op in trace.operations if op.kind != "compute"]


def awaited(trace: Trace | Role) -> dict[str, str]:
    """The span of computing that first waits for each collective."""
    return {name: op.id for op in reversed(trace.operations) if op.kind == "compute" for name in op.after}


def test_kernels_launched_before_the_profile_belong_to_no_step() -> None:
    trace = case("gpu-behind-cpu")
    assert spread(trace) == 0
    assert trace.compute_s == pytest.approx(0.017, abs=0.0005)
    assert trace.bytes_per_iteration == 40_000_000


def test_a_bucket_that_queues_was_ready_before() -> None:
    trace = case("nccl-stream-backlog")
    assert ready(trace) == pytest.approx([0.0126, 0.0151, 0.0176, 0.0201], abs=1e-5)
    assert trace.compute_s == pytest.approx(0.0355, abs=1e-4)
    assert set(awaited(trace).values()) == {"optimizer"}


def test_gradients_accumulate_over_steps() -> None:
    trace = case("gradient-accumulation")
    assert trace.compute_s == pytest.approx(0.192, abs=1e-3)
    assert trace.bytes_per_iteration == 80_000_000
    assert ready(trace) == pytest.approx([0.190], abs=1e-3)


def test_steps_that_differ_in_sizes_are_alike() -> None:
    assert sorted(case("moe-uneven").groups) == ["dp", "ep"]
    trace = case("moe-uneven", group="ep")
    assert trace.ranks == 8
    sizes = [op.bytes for op in trace.operations if op.kind == "all_to_all"]
    assert len(sizes) == 8
    assert sizes[:2] == [2_002_000, 1_999_000]
    assert "medians of 3 steps" in trace.source.measured_by
    assert trace.compute_s == pytest.approx(0.076, abs=1e-3)


def test_a_layer_waits_for_its_own_all_gather() -> None:
    trace = case("fsdp-prefetch")
    gathers = [op.id for op in trace.operations if op.kind == "all_gather"]
    first = [awaited(trace)[name] for name in gathers]
    assert len(gathers) == len(set(first)) == 12
    assert "optimizer" not in first
    durations = {op.id: op.duration for op in trace.operations}
    assert [durations[name] for name in first] == [8 * MS] * 6 + [12 * MS] * 6


def test_a_number_of_64_bits() -> None:
    assert case("comms-id-uint64").bytes_per_iteration == 16_000_000


def test_kernels_tell_their_own_sizes() -> None:
    trace = case("sizes-on-kernels")
    assert trace.bytes_per_iteration == 16_000_000
    assert trace.compute_s == pytest.approx(0.031, abs=1e-3)


def test_both_groups_of_tensor_and_data_parallel_training() -> None:
    trace = case("tp-inside-dp-across")
    assert trace.ranks == 32
    assert {name: {len(one) for one in lists} for name, lists in trace.groups.items()} == {"tp": {8}, "dp": {4}}
    sizes = Counter[str | None]()
    for op in trace.operations:
        sizes[op.group] += op.size
    assert (sizes["tp"], sizes["dp"]) == (256_000_000, 120_000_000)
    assert trace.placement is not None and trace.placement.inside == ("tp",)
    assert trace.compute_s == pytest.approx(0.108, abs=1e-3)
    for name in ("dp", "DATA_PARALLEL_GROUP"):
        assert (
            case("tp-inside-dp-across", group=name).ranks,
            case("tp-inside-dp-across", group=name).bytes_per_iteration,
        ) == (4, 120_000_000)


def test_directions_and_peers_of_a_pipeline() -> None:
    trace = case("pipeline-and-data-parallel")
    assert sorted(trace.groups) == ["dp", "pp"]
    profiled = next(role for role in trace.roles if role.name == "profiled")
    moved = Counter[tuple[str, object]]()
    for op in profiled.operations:
        moved[op.kind, op.peer] += op.size
    assert moved == {
        ("compute", None): 0, ("all_reduce", None): 40_000_000,
        ("recv", "-1"): 33_554_432, ("send", "-1"): 33_554_432, ("recv", "+1"): 33_554_432, ("send", "+1"): 33_554_432,
    }  # fmt: skip
    assert {len(one) for one in trace.groups["dp"]} == {8}


def test_tensor_parallel_computing_waits() -> None:
    trace = case("tp-inside-dp-across", group="tp")
    assert trace.bytes_per_iteration == 256_000_000
    waiting = awaited(trace)
    assert len(set(waiting.values())) == 16
    assert trace.compute_s == pytest.approx(0.118, abs=1e-3)


def test_a_ring_of_sends_and_receives() -> None:
    trace = case("chakra-ring-by-hand")
    assert trace.ranks == 4
    first = next(role for role in trace.roles if role.ranks == (0,))
    assert [(op.kind, op.peer, op.size) for op in first.operations if op.point_to_point and op.kind == "send"] == [
        ("send", 1, 500_000)
    ] * 6
    assert [(op.kind, op.peer, op.size) for op in first.operations if op.point_to_point and op.kind == "recv"] == [
        ("recv", 3, 500_000)
    ] * 6
    assert sum((op.duration or 0) for op in first.operations) == 54_000
    waits = {name: one for name, one in awaited(first).items() if name.startswith("recv")}
    assert len(waits) == len(set(waits.values())) == 6
    assert not profile(next(CASES.glob("chakra-ring-by-hand.*"))).timed  # nothing says when a node began


def test_a_collective_without_computing() -> None:
    trace = case("chakra-pure-collective")
    assert [(op.kind, op.size) for op in trace.operations] == [("all_reduce", 2_000_000)]
    with_period = case("chakra-pure-collective", iteration=Duration.parse("50ms"))
    assert with_period.compute_s == 0.05
    assert [(op.kind, op.after) for op in with_period.operations] == [("all_reduce", ()), ("compute", ())]

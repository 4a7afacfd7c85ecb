"""PyTorch profiler traces: what was computed and exchanged in a step, and what waited for what."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.profiles import (
    BUCKETS,
    GRADIENTS,
    KINETO,
    Json,
    Kineto,
    collectives,
    data_parallel,
    imported,
    profile,
    real,
)
from workloads import importers
from workloads.importers import Request, import_trace
from workloads.trace import Kind, Operation, TraceError, load
from workloads.units import Duration, Size


@real
def test_a_real_kineto_trace() -> None:
    assert importers.detect(KINETO) == "kineto"
    read = profile(KINETO)
    assert len(read.steps) == 3
    assert [step.duration_s for step in read.steps] == pytest.approx([0.22244, 0.21973, 0.22494], abs=1e-5)
    assert not any(one.blocking for step in read.steps for one in step.exchanges)
    trace = imported(KINETO)
    assert trace.bytes_per_iteration == pytest.approx(GRADIENTS, rel=0.01)
    assert collectives(trace) == [
        ("broadcast", 212_480), ("broadcast", 424), *(("all_reduce", size) for size in BUCKETS),
    ]  # fmt: skip
    assert trace.noise == "1.17%"
    assert trace.source.measured_by == "PyTorch profiler (Kineto), rank 0 of 2, NCCL 2.17.1; medians of 3 steps"
    assert trace.source.on == "2 × NVIDIA A100-PG509-200"
    assert trace.assumptions == ("native_rate is assumed to be 10 Gbit/s: --native-rate was not given",)


@real
def test_the_trace_of_the_library_is_this_one() -> None:
    ours, library = imported(KINETO, only=frozenset({"all_reduce"})), load("resnet50")
    assert ours.operations == library.operations
    assert ours.noise == library.noise
    assert ours.bytes_per_iteration == GRADIENTS


def test_overlap_is_kept_and_the_optimizer_waits(tmp_path: Path) -> None:
    trace = imported(data_parallel().write(tmp_path))
    ms = 1_000_000
    assert trace.operations == (
        Operation("compute1", "compute", Duration(40 * ms)),
        Operation("all_reduce1", "all_reduce", bytes=Size(4000), after=("compute1",)),
        Operation("compute2", "compute", Duration(40 * ms)),
        Operation("all_reduce2", "all_reduce", bytes=Size(12000), after=("compute2",)),
        Operation("beside", "compute", Duration(5 * ms)),
        Operation("optimizer", "compute", Duration(10 * ms), after=("all_reduce1", "all_reduce2")),
    )


@pytest.mark.parametrize("by_id", [True, False])
def test_the_gpu_may_trail_behind_the_cpu(tmp_path: Path, by_id: bool) -> None:
    """The CPU needs 20 ms for a step, the GPU 100 ms: what counts is the GPU."""
    made = Kineto()
    for number in range(3):
        cpu, gpu = 20.0 * number, 5 + 100.0 * number
        made.step(number, cpu, 20)
        made.kernel(gpu, 60, launch=cpu + 1)
        made.collective(cpu + 5, gpu + 50, 20, by_id=by_id)
        made.kernel(gpu + 70, 30, launch=cpu + 6)
    steps = profile(made.write(tmp_path)).steps
    assert [step.duration_s for step in steps] == pytest.approx([0.105, 0.1, 0.1])
    assert [one.ready_s for step in steps for one in step.exchanges] == pytest.approx([0.055, 0.05, 0.05])
    assert [step.beside_s for step in steps] == pytest.approx([0.01] * 3)


@pytest.mark.parametrize(
    ("launch", "stream", "cpu_waits", "blocking"),
    [
        (25.0, 40, False, True),  # the next kernel was launched before the collective ended: it waited
        (35.0, 40, False, False),  # the CPU was merely busy with something else
        (35.0, 7, False, True),  # but in the same stream nothing can overtake
        (35.0, 40, True, True),  # or the CPU waited for the GPU
    ],
)
def test_what_computing_waits_for(tmp_path: Path, launch: float, stream: int, cpu_waits: bool, blocking: bool) -> None:
    made = Kineto()
    for number in range(3):
        t = 100.0 * number
        made.step(number, t, 100)
        made.kernel(t + 1, 19)
        made.collective(t + 20, t + 20, 10, stream=stream)
        made.kernel(t + 40, 40, launch=t + launch)
        made.collective(t + 80, t + 80, 10)
        if cpu_waits:
            made.event("cudaStreamSynchronize", "cuda_runtime", t + 21, 10)
    for step in profile(made.write(tmp_path)).steps:
        assert [one.blocking for one in step.exchanges] == [blocking, False]


def test_sizes_are_those_of_the_whole_tensor(tmp_path: Path) -> None:
    made = Kineto()
    made.step(0, 0, 100)
    cases: list[tuple[str, str, int, int, str, tuple[Kind, int] | None]] = [
        ("_allgather_base", "AllGather", 100, 400, "BFloat16", ("all_gather", 800)),
        ("_reduce_scatter_base", "ReduceScatter", 400, 100, "Half", ("reduce_scatter", 800)),
        ("all_to_allv", "SendRecv", 60, 70, "Float8_e4m3fn", ("all_to_all", 60)),
        ("broadcast", "Broadcast", 5, 5, "Long", ("broadcast", 40)),
        ("send", "SendRecv", 9, 9, "Byte", ("send_recv", 9)),
        ("recv", "SendRecv", 9, 9, "Double", ("send_recv", 72)),
        ("barrier", "AllReduce", 1, 1, "Byte", None),
        ("wait", "AllReduce", 0, 0, "Byte", None),
        ("reduce", "Reduce", 8, 8, "Int", None),
    ]
    for number, (name, kernel, elements_in, elements_out, dtype, _) in enumerate(cases):
        made.collective(
            10 * number, 10 * number, 5, name=name, kernel=kernel, dtype=dtype,
            **{"In msg nelems": elements_in, "Out msg nelems": elements_out},
        )  # fmt: skip
    trace = imported(made.write(tmp_path))
    assert collectives(trace) == [said for *_, said in cases if said]
    assert "1 reduce cannot be replayed and were left out" in trace.assumptions


def test_process_groups(tmp_path: Path) -> None:
    made = data_parallel()
    for number in range(3):
        made.collective(
            100 * number + 5, 100 * number + 5, 1, elements=7, **{"Process Group Name": "tp", "Group size": 8}
        )
        made.collective(100 * number + 9, 100 * number + 9, 1, elements=10**9, **{"Group size": 1})
    path = made.write(tmp_path)
    trace = imported(path)
    assert trace.bytes_per_iteration == 16000
    assert "process group 'tp' (8 ranks, 3 collectives, 84 B in all profiled steps) was left out" in trace.assumptions
    assert imported(path, group="tp").bytes_per_iteration == 28
    with pytest.raises(TraceError, match=r"'pp'; its groups: '0', 'tp'"):
        imported(path, group="pp")


OLD = dict.fromkeys(("Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size"))


@pytest.mark.parametrize(
    ("args", "lacks"),
    [
        (OLD, "record_param_comms events have no 'Collective name'"),
        ({"In msg nelems": None}, "'In msg nelems'"),
        ({"dtype": None}, "have no 'dtype'"),
    ],
)
def test_sizes_of_an_old_trace_are_given_by_hand(tmp_path: Path, args: Json, lacks: str) -> None:
    path = data_parallel(**args).write(tmp_path)
    with pytest.raises(TraceError, match=f"{lacks}.*--bytes: one for each of the 2 collectives") as error:
        imported(path)
    assert str(path) in str(error.value)
    trace = imported(path, sizes=(Size(5), Size(6)))
    assert collectives(trace) == [("all_reduce", 5), ("all_reduce", 6)]
    assert "they were given by hand" in " ".join(trace.assumptions)
    trace = imported(path, sizes=(Size.parse("11B"),))
    assert collectives(trace) == [("all_reduce", 5), ("all_reduce", 6)]
    assert "collective sizes are assumed: 11 B per step, split evenly" in trace.assumptions
    with pytest.raises(TraceError, match="--bytes has 3 sizes, and its steps have 2 collectives"):
        imported(path, sizes=(Size(1), Size(2), Size(3)))


def test_sizes_by_hand_are_refused_where_there_are_some(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="--bytes is for traces without sizes"):
        imported(data_parallel().write(tmp_path), sizes=(Size(5),))


def test_without_profiler_steps_an_optimizer_step_will_do(tmp_path: Path) -> None:
    made = data_parallel(4)
    made.events = [event for event in made.events if "ProfilerStep" not in event["name"]]
    with pytest.raises(TraceError, match=r"no 'ProfilerStep#N' annotations.*no Optimizer.step either.*prof\.step\(\)"):
        imported(made.write(tmp_path))
    for number in range(4):
        made.event("Optimizer.step#SGD.step", "user_annotation", 100 * number + 90, 10)
    path = made.write(tmp_path)
    assert len(profile(path).steps) == 3
    trace = imported(path)
    assert trace.compute_s == pytest.approx(0.095)
    assert "steps are taken to end with each Optimizer.step#SGD.step" in trace.assumptions[1]
    made.event("Optimizer.step#Adam.step", "user_annotation", 95, 1)
    with pytest.raises(TraceError, match=r"1 × Optimizer.step#Adam.step, 4 × Optimizer.step#SGD.step"):
        imported(made.write(tmp_path))


def test_several_ranks_are_pooled_and_odd_steps_left_out(tmp_path: Path) -> None:
    first, second = data_parallel(), data_parallel(shift=3.0)
    second.collective(140, 140, 1)
    paths = [first.write(tmp_path, "0.json"), second.write(tmp_path, "1.json")]
    trace = import_trace(paths, Request(), name="mine", model="a model")
    assert "medians of 6 steps from 2 files" in trace.source.measured_by
    assert "1 of 6 steps exchanged something else and were left out" in trace.assumptions


def test_without_kernels_the_cpu_tells_when(tmp_path: Path) -> None:
    made = data_parallel()
    made.events = [event for event in made.events if event["cat"] != "kernel"]
    trace = imported(made.write(tmp_path))
    assert "6 of 6 collectives have no NCCL kernel" in " ".join(trace.assumptions)

"""PyTorch profiler traces: what was computed and exchanged in a step, and what waited for what."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from testbed.core.units import Duration, Size
from testbed.traces import importing
from testbed.traces.importing import Request, import_trace
from testbed.traces.pytorch import shapes_bytes
from testbed.traces.trace import Kind, Operation, TraceError, load
from tests.support.profiles import (
    ONE_RANK,
    RECORDED,
    TWO_RANKS,
    Json,
    Kineto,
    collectives,
    data_parallel,
    hybrid_parallel,
    imported,
    profile,
)  # fmt: skip

PUBLIC = Path(__file__).parents[4] / "shared" / "traces" / "resnet50-ddp-2gpu-kineto.json.gz"


@pytest.mark.parametrize("path", [ONE_RANK, *TWO_RANKS], ids=lambda path: path.name)
def test_a_recorded_profile(path: Path) -> None:
    """Real training over Gloo: two buckets of gradients a step, ready one after the other, before the optimizer."""
    assert importing.detect(path) == "kineto"
    read = profile(path)
    assert len(read.steps) == 3
    for step in read.steps:
        first, second = step.exchanges
        assert 0 < first.ready_s < second.ready_s < step.duration_s
        assert not first.blocking and not second.blocking
    trace = imported(path)
    assert collectives(trace) == [("all_reduce", size) for size in RECORDED]
    assert trace.source.measured_by.endswith(f"of {1 if path == ONE_RANK else 2}; medians of 3 steps")
    said = " ".join(trace.assumptions)
    assert "annotations of their backend (6 gloo:all_reduce)" in said
    assert ("its process group had one rank" in said) == (path == ONE_RANK)


def test_recorded_ranks_are_pooled() -> None:
    trace = import_trace(TWO_RANKS, Request(), name="mine", model="a model")
    assert re.findall(r"\d+", trace.source.measured_by) == ["0", "2", "6", "2"]  # rank, ranks, steps, ranks
    assert collectives(trace) == [("all_reduce", size) for size in RECORDED]


def test_who_measured_and_on_what(tmp_path: Path) -> None:
    head = {
        "distributedInfo": {"rank": 0, "world_size": 2, "nccl_version": "2.17.1"},
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100"}],
    }
    source = imported(data_parallel().write(tmp_path, **head)).source
    assert re.findall(r"[\d.]+", source.measured_by) == ["0", "2", "2.17.1", "3"]  # rank, ranks, NCCL, steps
    assert source.on == "2 × NVIDIA A100"


def test_the_trace_of_the_library() -> None:
    """It is of a public profile, which is not in the repository: what is known of it, and all of it where it lies beside."""
    library = load("resnet50")
    assert library.bytes_per_iteration == 4 * 25_557_032  # the parameters of torchvision's ResNet-50, fp32
    assert [op.bytes for op in library.operations if op.bytes] == [
        8_196_000,
        31_502_336,
        26_255_360,
        26_550_272,
        9_724_160,
    ]
    if PUBLIC.exists():
        ours = imported(PUBLIC, only=frozenset({"all_reduce"}))
        assert (collectives(ours), ours.noise) == (collectives(library), library.noise)
        assert ours.compute_s == pytest.approx(library.compute_s, rel=1e-3)


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
        ("send", "SendRecv", 9, 9, "Byte", ("send", 9)),
        ("recv", "SendRecv", 9, 9, "Double", ("recv", 72)),
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
    profiled = next(role for role in trace.roles if role.name == "profiled")
    assert [(op.kind, op.size) for op in profiled.operations if op.size] == [said for *_, said in cases if said]
    assert any("1 reduce " in one for one in trace.assumptions)


def test_process_groups(tmp_path: Path) -> None:
    made = data_parallel()
    for number in range(3):
        made.collective(
            100 * number + 5, 100 * number + 5, 1, elements=7, **{"Process Group Name": "tp", "Group size": 8}
        )
        made.collective(100 * number + 9, 100 * number + 9, 1, elements=10**9, **{"Group size": 1})
    path = made.write(tmp_path)
    both = imported(path)
    assert both.bytes_per_iteration == 16028
    assert both.ranks == 16
    assert {name: len(lists[0]) for name, lists in both.groups.items()} == {"tp": 8, "0": 2}
    trace = imported(path, group="0")
    assert trace.bytes_per_iteration == 16000
    assert any("'tp' (8 ranks, 3 collectives, 84 B " in one for one in trace.assumptions)
    assert (imported(path, group="tp").bytes_per_iteration, imported(path, group="tp").ranks) == (28, 8)
    with pytest.raises(TraceError, match=r"'pp'; its groups: '0', 'tp'"):
        imported(path, group="pp")


OLD: dict[str, Any] = dict.fromkeys(("Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size"))


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
    assert any("11 B per step" in one for one in trace.assumptions)
    with pytest.raises(TraceError, match=r"--bytes .*3 sizes.* 2 collectives"):
        imported(path, sizes=(Size(1), Size(2), Size(3)))


def test_sizes_by_hand_are_refused_where_there_are_some(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="--bytes is for traces without sizes"):
        imported(data_parallel().write(tmp_path), sizes=(Size(5),))


def test_without_profiler_steps_an_optimizer_step_will_do(tmp_path: Path) -> None:
    made = data_parallel(4)
    made.events = [event for event in made.events if "ProfilerStep" not in event["name"]]
    with pytest.raises(TraceError, match=r"'ProfilerStep#N' .*Optimizer.step .*prof\.step\(\)"):
        imported(made.write(tmp_path))
    for number in range(4):
        made.event("Optimizer.step#SGD.step", "user_annotation", 100 * number + 90, 10)
    path = made.write(tmp_path)
    assert len(profile(path).steps) == 3
    trace = imported(path)
    assert trace.compute_s == pytest.approx(0.095)
    assert "Optimizer.step#SGD.step" in trace.assumptions[1]
    made.event("Optimizer.step#Adam.step", "user_annotation", 95, 1)
    with pytest.raises(TraceError, match=r"1 × Optimizer.step#Adam.step, 4 × Optimizer.step#SGD.step"):
        imported(made.write(tmp_path))


def test_several_ranks_are_pooled_and_odd_steps_left_out(tmp_path: Path) -> None:
    first, second = data_parallel(), data_parallel(shift=3.0)
    second.collective(140, 140, 1)
    paths = [first.write(tmp_path, "0.json"), second.write(tmp_path, "1.json")]
    trace = import_trace(paths, Request(), name="mine", model="a model")
    assert "medians of 5 steps of 2 ranks" in trace.source.measured_by
    assert any("1 of 6 steps" in one for one in trace.assumptions)


def test_without_kernels_the_cpu_tells_when(tmp_path: Path) -> None:
    made = data_parallel()
    made.events = [event for event in made.events if event["cat"] != "kernel"]
    trace = imported(made.write(tmp_path))
    assert "6 of 6 collectives have no NCCL kernel" in " ".join(trace.assumptions)


HYBRID = [("all_to_all", 51_200)] * 9 + [
    ("all_reduce", 4000), ("all_reduce", 3072), ("reduce_scatter", 4096), ("reduce_scatter", 4096),
    ("all_gather", 8192), ("all_gather", 4096),
]  # fmt: skip
SIXTEEN: dict[str, Any] = {
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 16, "pg_config": [{"pg_size": 16}]}
}


def test_annotations_tell_what_kernels_of_one_name_carry_out(tmp_path: Path) -> None:
    """NCCL runs all-to-all and much else as SendRecv: what was meant stands around the launch."""
    trace = imported(hybrid_parallel().write(tmp_path, **SIXTEEN))
    assert collectives(trace) == HYBRID
    said = " ".join(trace.assumptions)
    assert "annotations around the launches" in said
    assert "5 NCCL kernels" in said
    assert "(5 send_recv)" in said
    assert "'Input Dims' and 'Input type'" in said
    assert "times 16 ranks" in said
    assert "1 of 5 steps" in said
    assert trace.source.measured_by.endswith("medians of 4 steps")


def test_an_annotation_counts_on_the_thread_that_launches(tmp_path: Path) -> None:
    made = data_parallel(**OLD)
    for number in range(3):
        made.old_collective("nccl:all_to_all", 100 * number + 50, 100 * number + 50, 1, [10], tid=5)
        made.event("nccl:broadcast", "user_annotation", 100 * number + 45, 20, tid=6)
        made.event("nccl:all_gather", "user_annotation", 100 * number + 45, 3, tid=5)  # over by then
        made.event("nccl:all_reduce", "gpu_user_annotation", 100 * number + 49, 3, tid=5)
    kinds = [kind for kind, _ in collectives(imported(made.write(tmp_path), sizes=(Size(9),)))]
    assert kinds == ["all_reduce", "all_to_all", "all_reduce"]


def test_an_id_of_none_joins_nothing(tmp_path: Path) -> None:
    """Versions without External ids, or with 0 in all of them: the kernel is the one launched during the call."""
    for nobody in ({}, {"External id": 0}):
        made = data_parallel(by_id=False)
        for event in made.events:
            event["args"].pop("External id", None)
            event["args"] |= nobody
        path = made.write(tmp_path)
        assert [(one.ready_s, one.end_s) for one in profile(path).steps[1].exchanges] == [(0.04, 0.05), (0.08, 0.09)]
        old = hybrid_parallel()
        for event in old.events:
            event["args"].pop("External id", None)
            event["args"] |= nobody
        assert collectives(imported(old.write(tmp_path, **SIXTEEN))) == HYBRID


def test_what_cpus_exchange_beside_gpus_is_left_out_and_said(tmp_path: Path) -> None:
    made = data_parallel()
    made.event("gloo:broadcast", "user_annotation", 50, 2, **{"Input Dims": [[9]], "Input type": ["float"]})
    trace = imported(made.write(tmp_path))
    assert collectives(trace) == [("all_reduce", 4000), ("all_reduce", 12000)]
    assert any("(1 gloo:broadcast)" in one for one in trace.assumptions)


def test_several_kernels_of_one_annotation_are_one_collective(tmp_path: Path) -> None:
    made = Kineto()
    for number in range(3):
        t = 100.0 * number
        made.step(number, t, 100)
        made.event("nccl:all_to_all", "user_annotation", t + 10, 5, **{"Input Dims": [[8]], "Input type": ["float"]})
        for index in range(3):
            made.old_collective(None, t + 11 + index, t + 20 + 10 * index, 9)
    (exchange,) = profile(made.write(tmp_path)).steps[1].exchanges
    assert (exchange.kind, exchange.bytes) == ("all_to_all", 32)
    assert (exchange.ready_s, exchange.end_s) == pytest.approx((0.0111, 0.049))  # from when it is launched


def test_what_an_all_gather_gathers_needs_the_ranks(tmp_path: Path) -> None:
    path = hybrid_parallel().write(tmp_path)
    with pytest.raises(TraceError, match=r"10 all-gathers each rank's part.*--ranks 8"):
        imported(path)
    assert collectives(imported(path, ranks=16)) == HYBRID


def test_sizes_are_asked_for_the_usual_step(tmp_path: Path) -> None:
    """The first step has 20 collectives, the others 15: 20 sizes would keep the odd one alone."""
    path = hybrid_parallel(dims=False).write(tmp_path)
    with pytest.raises(TraceError, match=r"15 collectives of a step \(9 all_to_all.*4 of its 5"):
        imported(path)
    trace = imported(path, sizes=tuple(Size(100 + index) for index in range(15)))
    assert trace.bytes_per_iteration == 15 * 100 + 14 * 15 // 2
    assert trace.source.measured_by.endswith("medians of 4 steps")


def test_named_collectives_have_sizes_by_their_inputs_too(tmp_path: Path) -> None:
    lacking = {
        "In msg nelems": None,
        "Input Dims": [[[5], [7, 2]]],
        "Input type": ["GenericList[Tensor(float),Tensor(float)]"],
    }
    assert collectives(imported(data_parallel(**lacking).write(tmp_path))) == [("all_reduce", 76)] * 2


@pytest.mark.parametrize(
    ("shapes", "types", "size"),
    [
        ([[419430400]], ["unsigned char"], 419_430_400),
        ([[384], []], ["long", "Int"], 3072),
        ([[]], ["float"], 4),
        ([[2, 3], [4]], ["c10::Half", "double"], 44),
        ([[[2, 3], [4]]], ["GenericList[Tensor(float),Tensor(float)]"], 40),
        ([[[2]]], ["TensorList"], None),
        ([[[2], [3]]], ["GenericList[Tensor(float),Tensor(int)]"], None),
        ([[2]], ["Quaternion"], None),
        ([[-1]], ["float"], None),
        ([["many"]], ["float"], None),
        ([[1] * 65], ["float"], None),
        ([7], ["float"], None),
        (7, 8, None),
        ([[2]], [9], None),
    ],
)
def test_bytes_of_inputs(shapes: object, types: object, size: int | None) -> None:
    assert shapes_bytes(shapes, types) == size


def test_one_rank_imports_and_says_so(tmp_path: Path) -> None:
    trace = imported(data_parallel(**{"Group size": 1}).write(tmp_path))
    assert collectives(trace) == [("all_reduce", 4000), ("all_reduce", 12000)]
    assert "its process group had one rank" in " ".join(trace.assumptions)
    assert "the experiment's choice" in " ".join(trace.assumptions)


def test_gloo_on_a_cpu(tmp_path: Path) -> None:
    made = Kineto()
    for number in range(3):
        t = 100.0 * number
        made.step(number, t, 100)
        told = {"Input Dims": [[1000]], "Input type": ["float"]}
        made.event("gloo:all_reduce", "user_annotation", t + 40, 20, tid=9, **told)
        made.event("gloo:barrier", "user_annotation", t + 70, 5, tid=9)
    path = made.write(tmp_path)
    (exchange,) = profile(path).steps[0].exchanges
    assert (exchange.bytes, exchange.ready_s, exchange.end_s) == (4000, 0.04, 0.06)
    said = " ".join(imported(path).assumptions)
    assert "(3 gloo:all_reduce, 3 gloo:barrier)" in said
    assert "3 gloo:barrier cannot be replayed" in said


def test_a_refusal_names_what_there_is(tmp_path: Path) -> None:
    made = Kineto()
    made.step(0, 0, 100)
    made.collective(200, 200, 1)
    made.collective(10, 10, 1, name="gather", kernel="SendRecv")
    made.collective(20, 20, 1, elements=0)
    with pytest.raises(TraceError) as error:
        imported(made.write(tmp_path))
    for what in (
        "no collective that can be replayed within its 1 steps",
        "record_param_comms outside of its steps: 1 all_reduce",
        "of no bytes: 1 allreduce",
        "of a kind that cannot be replayed: 1 gather",
        "NCCL kernels: 2 ncclDevKernel_AllReduce_RING, 1 ncclDevKernel_SendRecv_RING",
    ):
        assert what in str(error.value)
    nothing = Kineto()
    nothing.step(0, 0, 100)
    with pytest.raises(TraceError, match="whole file"):
        imported(nothing.write(tmp_path))


def test_noise_is_from_step_to_step_not_from_rank_to_rank(tmp_path: Path) -> None:
    """Two ranks without any spread of their own, one twice as slow: no noise, and the difference is said."""
    slow = data_parallel()
    for event in slow.events:
        event["ts"], event["dur"] = 2 * event["ts"], 2 * event["dur"]
    paths = [data_parallel().write(tmp_path, "0.json"), slow.write(tmp_path, "1.json")]
    trace = import_trace(paths, Request(), name="mine", model="a model")
    assert trace.noise == "0%"
    assert "2 ranks compute for 95 to 190 ms" in " ".join(trace.assumptions)


def test_one_odd_step_makes_no_noise_and_is_named(tmp_path: Path) -> None:
    made = Kineto()
    t = 0.0
    for number in range(6):
        extra = 300.0 if number == 3 else 0.0
        made.step(number, t, 100 + extra)
        made.kernel(t + 1, 50)
        made.collective(t + 51.1, t + 51.1, 10)
        if extra:
            made.event("save_checkpoint", "user_annotation", t + 70, extra)
        t += 100 + extra
    trace = imported(made.write(tmp_path))
    assert trace.noise == "0%"
    assert trace.compute_s == pytest.approx(0.09)
    said = " ".join(trace.assumptions)
    assert "ProfilerStep#3" in said and "save_checkpoint" in said


def test_noise_above_a_fifth_names_a_step(tmp_path: Path) -> None:
    made = Kineto()
    t = 0.0
    for number, length in enumerate((40, 70, 100, 130, 160)):
        made.step(number, t, length)
        made.collective(t + 20, t + 20, 10)
        t += length
    trace = imported(made.write(tmp_path))
    assert float(trace.noise.rstrip("%")) > 20
    assert any(one.startswith("warning:") and "ProfilerStep#" in one for one in trace.assumptions)


def test_events_of_cuda_tell_what_waits_for_what(tmp_path: Path) -> None:
    """Two streams compute; the collective waits for the shorter one, and the other goes on beside it."""
    made = Kineto()
    for number in range(3):
        t = 100.0 * number
        made.step(number, t, 100)
        made.kernel(t + 1, 60, launch=t + 0.1, stream=7)
        made.kernel(t + 1, 20, launch=t + 0.2, stream=8)
        record = made.call("cudaEventRecord", t + 0.3)
        made.stream_wait(t + 0.4, stream=40, awaited=8, record=record)
        made.collective(t + 0.5, t + 30, 10)  # its stream was busy until 30 ms
        made.kernel(t + 61, 5, launch=t + 0.6)
        record = made.call("cudaEventRecord", t + 0.7)
        made.stream_wait(t + 0.8, stream=7, awaited=40, record=record)
        made.kernel(t + 66, 5, launch=t + 0.9)
    for step in profile(made.write(tmp_path)).steps:
        (exchange,) = step.exchanges
        assert exchange.ready_s == pytest.approx(0.021)
        assert exchange.awaited_s == pytest.approx(0.066)


def test_a_clock_that_is_behind_is_corrected(tmp_path: Path) -> None:
    made = data_parallel()
    for event in made.events:
        if event["cat"] == "kernel":
            event["ts"] -= 3000
            event["ts"] = max(event["ts"], 0)
    for shifted in (imported(made.write(tmp_path)), imported(data_parallel().write(tmp_path, "right.json"))):
        assert [op.duration for op in shifted.operations if op.duration] == pytest.approx(
            [40e6, 40e6, 5e6, 10e6], abs=2e5
        )


@pytest.mark.parametrize(
    ("kernel", "annotation"),
    [("rcclDevKernel_Generic_1(rcclDevComm*)", "rccl:all_reduce"), ("hcom_allReduce__524_0_1", "hccl:all_reduce")],
)
def test_libraries_of_other_gpus(tmp_path: Path, kernel: str, annotation: str) -> None:
    made = data_parallel(**OLD)
    for event in made.events:
        if event["cat"] == "kernel" and "nccl" in event["name"]:
            event["name"] = kernel
    for number in range(3):
        for at in (40, 80):
            told = {"Input Dims": [[1000]], "Input type": ["float"]}
            made.event(annotation, "user_annotation", 100 * number + at, 0.2, **told)
    assert collectives(imported(made.write(tmp_path))) == [("all_reduce", 4000)] * 2


def test_steps_by_the_clock_of_the_gpu(tmp_path: Path) -> None:
    """Only the GPU was profiled: no calls of the CPU, and the kernels tell what they carry out."""
    made = data_parallel()
    told = {
        "Collective name": "allreduce",
        "In msg nelems": 500,
        "Out msg nelems": 500,
        "dtype": "Float",
        "Group size": 8,
    }
    made.events = [event for event in made.events if event["cat"] in ("kernel", "user_annotation")]
    for event in made.events:
        event["cat"] = event["cat"].replace("user_annotation", "gpu_user_annotation")
        if "nccl" in event["name"]:
            event["args"] |= told
    trace = imported(made.write(tmp_path))
    assert collectives(trace) == [("all_reduce", 2000)] * 2
    assert "medians of 3 steps" in trace.source.measured_by


def test_a_profile_of_jax_is_called_one(tmp_path: Path) -> None:
    events = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/host:CPU"}}]
    path = tmp_path / "jax.trace.json"
    path.write_text(json.dumps({"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": events}))
    with pytest.raises(TraceError, match="JAX"):
        imported(path)


def test_where_json_breaks(tmp_path: Path) -> None:
    path = data_parallel().write(tmp_path)
    text = path.read_text()
    for at in (text.index('"ph"', 2000), text.index('"ph"', len(text) // 2)):
        path.write_text(text[:at] + "?" + text[at:])
        with pytest.raises(TraceError, match=f"byte {at:,}$"):
            imported(path)

"""What profilers write becomes a trace, and what cannot be read is refused in one clear paragraph."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads import commands, importers
from workloads.__main__ import main
from workloads.importers import Profile, Request, chakra, import_trace
from workloads.steps import Exchange, Step, trace_of
from workloads.trace import Kind, Operation, Source, Trace, TraceError, load
from workloads.units import Duration, Rate, Size

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "traces"
KINETO = REAL / "resnet50-ddp-2gpu-kineto.json.gz"
HOST = REAL / "resnet-2gpu-chakra-host-et.json.gz"
real = pytest.mark.skipif(not KINETO.exists(), reason=f"the real traces are not in {REAL}")

GRADIENTS = 4 * 25_557_032  # ResNet-50's parameters (torchvision), fp32
BUCKETS = [8_196_000, 31_502_336, 26_255_360, 26_550_272, 9_724_160]

Json = dict[str, Any]


def imported(path: Path, **options: Any) -> Trace:
    fields = {key: options.pop(key) for key in ("group", "sizes", "iteration") if key in options}
    return import_trace([path], Request(**fields), name="mine", model="a model", **options)


def profile(path: Path, **fields: Any) -> Profile:
    result: Profile = importers.find(importers.detect(path)).read(path, Request(**fields))
    return result


def collectives(trace: Trace) -> list[tuple[Kind, int]]:
    return [(op.kind, int(op.bytes)) for op in trace.operations if op.bytes]


def cli(*arguments: str | Path) -> int:
    return main(["import", *map(str, arguments)])


# The real ones


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


@real
def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.json"
    arguments = [KINETO, "--only", "all_reduce", "--model", "ResNet-50", "--on", "two GPUs", "-o", out]
    assert cli(*arguments) == 0
    said = capsys.readouterr().out
    assert "102.228 MB in 5 collectives" in said and "at 10 Gbit/s" in said
    assert "assumed   left out of each step: 2 broadcast (212.904 kB in all)" in said
    trace = load(str(out))
    assert (trace.name, trace.model, trace.source.on) == ("mine", "ResNet-50", "two GPUs")
    before = out.read_bytes()
    assert cli(*arguments) == 2
    assert "--force overwrites it" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert cli(*arguments, "--force", "--native-rate", "50gbit") == 0
    assert load(str(out)).native_rate == 50_000_000_000


# Small Kineto traces, made here


class Kineto:
    """A Chrome trace under construction; times in milliseconds."""

    def __init__(self) -> None:
        self.events: list[Json] = []

    def event(self, name: str, category: str, start: float, length: float, **args: Any) -> Json:
        event = {"ph": "X", "cat": category, "name": name, "ts": start * 1e3, "dur": length * 1e3, "args": args}
        self.events.append(event)
        return event

    def step(self, number: int, start: float, length: float) -> None:
        self.event(f"ProfilerStep#{number}", "user_annotation", start, length)

    def kernel(self, start: float, length: float, launch: float | None = None, stream: int = 7) -> None:
        own = len(self.events)
        self.event("gemm", "kernel", start, length, stream=stream, correlation=own)
        self.event("cudaLaunchKernel", "cuda_runtime", start if launch is None else launch, 0.01, correlation=own)

    def collective(
        self, launch: float, start: float, length: float, elements: int = 1000, name: str = "allreduce",
        kernel: str = "AllReduce", stream: int = 40, by_id: bool = True, **args: Any,
    ) -> None:  # fmt: skip
        own = len(self.events)
        sizes = {"In msg nelems": elements, "Out msg nelems": elements, "dtype": "Float", "Group size": 2}
        told = {"Collective name": name, "Process Group Name": "0", **sizes, **args}
        told = {key: value for key, value in told.items() if value is not None}
        self.event("record_param_comms", "cpu_op", launch, 0.1, **{"External id": own, **told})
        known = {"External id": own} if by_id else {}
        self.event(f"ncclDevKernel_{kernel}_RING", "kernel", start, length, stream=stream, correlation=own, **known)
        self.event("cudaLaunchKernelExC", "cuda_runtime", launch + 0.05, 0.01, correlation=own)

    def write(self, folder: Path, name: str = "kineto.json") -> Path:
        path = folder / name
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return path


def data_parallel(steps: int = 3, shift: float = 0.0, **args: Any) -> Kineto:
    """100 ms each: two buckets at 40 and 80 ms, backward until 85 ms, the optimizer from 90 ms."""
    made = Kineto()
    for number in range(steps):
        t = 100.0 * number + shift
        made.step(number, t, 100)
        made.kernel(t + 1, 84)
        made.collective(t + 40, t + 40, 10, elements=1000, **args)
        made.collective(t + 80, t + 80, 10, elements=3000, **args)
        made.kernel(t + 90, 9, launch=t + 86)
    return made


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


# Many steps to one iteration


def test_the_median_step_adds_up() -> None:
    """Medians of spans would give 3 + 3 + 1 = 7 ms here; the median step computes 9 ms."""
    steps = []
    for one, two in ((1, 7), (3, 3), (7, 1)):
        exchange = Exchange("all_reduce", 5, one / 1e3, one / 1e3)
        steps.append(
            Step((one + two + 1) / 1e3, (exchange, Exchange("all_reduce", 6, (one + two) / 1e3, (one + two) / 1e3)))
        )
    trace = trace_of(steps, name="x", model="x", source=Source(kind="synthetic"), native_rate=None)
    assert trace.compute_s == pytest.approx(0.009)
    assert [op.duration for op in trace.operations if op.duration] == [3_000_000, 5_000_000, 1_000_000]


def test_an_exchange_blocks_if_it_does_in_most_steps() -> None:
    def step(blocking: bool) -> Step:
        return Step(0.1, (Exchange("all_gather", 5, 0.01, 0.02, blocking), Exchange("all_reduce", 6, 0.05, 0.06)))

    steps = [step(True), step(False), step(True)]
    trace = trace_of(steps, name="x", model="x", source=Source(kind="synthetic"), native_rate=None)
    assert trace.operations[2].after == ("all_gather1",)
    assert trace.operations[2].duration == 30_000_000
    assert trace.assumptions == ()


# Execution traces with times, and Chakra


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


class Chakra:
    """A Chakra trace under construction; times in microseconds."""

    def __init__(self) -> None:
        metadata = chakra.message("GlobalMetadata")
        metadata.version = "0.0.4"
        self.messages = [metadata]

    def node(self, name: str, kind: int, *after: int, start: int = 0, duration: int = 0, **attributes: Any) -> int:
        node = chakra.message("Node")
        node.id, node.name, node.type = len(self.messages), name, kind
        node.start_time_micros, node.duration_micros = start, duration
        node.data_deps.extend(after)
        for key, value in attributes.items():
            field = {bool: "bool_val", int: "int64_val", str: "string_val", float: "double_val"}[type(value)]
            node.attr.add(name=key, **{field: value})
        self.messages.append(node)
        return int(node.id)

    def compute(self, duration: int, *after: int, **more: Any) -> int:
        return self.node("compute", 4, *after, duration=duration, is_cpu_op=False, **more)

    def collective(self, size: int, *after: int, type: int = 0, **more: Any) -> int:
        return self.node("comm", 7, *after, comm_type=type, comm_size=size, is_cpu_op=False, **more)

    def bytes(self) -> bytes:
        out = io.BytesIO()
        for message in self.messages:
            data = message.SerializeToString()
            size = len(data)
            while size > 0x7F:
                out.write(bytes([size & 0x7F | 0x80]))
                size >>= 7
            out.write(bytes([size]) + data)
        return out.getvalue()

    def write(self, folder: Path, name: str = "trace.et") -> Path:
        path = folder / name
        path.write_bytes(self.bytes())
        return path


def test_chakra_without_times_is_carried_out(tmp_path: Path) -> None:
    made = Chakra()
    forward = made.compute(30_000)
    backward = made.compute(20_000, forward)
    first = made.collective(1000, backward)
    rest = made.compute(10_000, backward)
    second = made.collective(2000, rest)
    made.compute(5_000, first, second)
    path = made.write(tmp_path, "no-extension")
    assert importers.detect(path) == "chakra"
    trace = imported(path)
    assert [(op.id, op.duration or op.bytes, op.after) for op in trace.operations] == [
        ("compute1", 50_000_000, ()),
        ("all_reduce1", 1000, ("compute1",)),
        ("compute2", 10_000_000, ()),
        ("all_reduce2", 2000, ("compute2",)),
        ("optimizer", 5_000_000, ("all_reduce1", "all_reduce2")),
    ]
    assert "the trace has no start times: they follow from durations and dependencies" in trace.assumptions


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


def test_chakra_says_what_it_cannot_tell(tmp_path: Path) -> None:
    made = Chakra()
    layer = made.compute(10_000)
    early = made.collective(1000, layer)
    layer = made.compute(10_000, layer)
    layer = made.compute(10_000, layer, early)
    made.collective(500, layer)
    trace = imported(made.write(tmp_path))
    assert "1 collectives are awaited by computing in the middle of a step" in " ".join(trace.assumptions)


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
        (lambda data: data + b"\x80", "length is not complete"),
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
        (lambda made: made.collective(1 << 60, made.compute(5)), "beyond reason"),
        (lambda made: made.collective(5, made.compute(1 << 61)), "'duration_micros' is 2305843009213693952"),
        (lambda made: made.collective(5, made.compute(1 << 59)), "which no iteration does"),
        (lambda made: made.collective(5, made.compute(5, 2)), "waits for itself"),
        (lambda made: made.compute(5), "no collective"),
        (lambda made: made.collective(5), "takes 0 s"),
    ],
)
def test_chakra_that_makes_no_sense(tmp_path: Path, build: Callable[[Chakra], Any], says: str) -> None:
    made = Chakra()
    build(made)
    path = made.write(tmp_path)
    with pytest.raises(TraceError) as error:
        imported(path)
    assert says in str(error.value) and str(path) in str(error.value)


# Tables


def table(folder: Path, text: str) -> Path:
    path = folder / "mine.csv"
    path.write_text(text)
    return path


def test_a_table(tmp_path: Path) -> None:
    rows = ["step,time_ms,bytes,kind"]
    for number, extra in enumerate((0, 2, 4)):
        rows += [f"{number},{10 + extra},1000,", f"{number},20,500,all_gather", f"{number},{50 + extra},0,"]
    trace = imported(table(tmp_path, "\ufeff" + "\r\n".join(rows)))
    assert [(op.kind, op.duration or op.bytes) for op in trace.operations] == [
        ("compute", 12_000_000), ("all_reduce", 1000), ("compute", 8_000_000), ("all_gather", 500),
        ("compute", 32_000_000),
    ]  # fmt: skip
    assert trace.noise == "3.85%"


def test_a_table_without_an_end(tmp_path: Path) -> None:
    path = table(tmp_path, "time_us,bytes\n1e4,1000\n")
    with pytest.raises(TraceError, match="--iteration 222ms"):
        imported(path)
    assert imported(path, iteration=Duration.parse("30ms")).compute_s == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time_s,bytes\n", "no rows"),
        ("time_s,bytes\n1,2,3\n2,0\n", None),
        ("time_s,bytes\n1,many\n", "line 2: 'bytes' is 'many'"),
        ("time_s,bytes\n1\n", "'bytes' is None"),
        ("time_s,bytes\n-1,5\n2,0\n", "line 2: 'time_s' is '-1'"),
        ("time_s,bytes\nnan,5\n2,0\n", "'time_s' is 'nan'"),
        ("time_s,bytes\n1,0.5\n2,0\n", "not a whole number"),
        ("time_s,bytes\n1,1e17\n2,0\n", "beyond reason"),
        ("time_s,bytes\n1e9,5\n2e9,0\n", "no iteration"),
        ("time_s,bytes\n1,0\n2,0\n", "only the end may have none"),
        ("time_s,bytes\n1,5\n", "--iteration"),
        ("time_s,size\n1,5\n", "columns 'bytes' and one of"),
        ("time_s,time_ms,bytes\n1,1,5\n", "columns 'bytes' and one of"),
        ("time_s,bytes,bytes\n1,1,5\n", "a column twice"),
        ("time_s,bytes,kind\n1,5,dance\n", "kind 'dance' is none of all_reduce"),
        ('time_s,bytes\n"' + "1" * 200_000, "field larger than field limit"),
        ("time_s,bytes\n" + "1" * 20_000_000, "more than 8 MiB"),
    ],
)
def test_a_table_that_makes_no_sense(tmp_path: Path, text: str, says: str | None) -> None:
    path = table(tmp_path, text)
    if says is None:  # a column more than the header names is nobody's business
        imported(path)
        return
    with pytest.raises(TraceError) as error:
        imported(path)
    assert says in str(error.value) and str(path) in str(error.value)


# The real ones, spoiled


@cache
def content(path: Path) -> Json:
    """A real trace without the events that no importer looks at; do not change it."""
    raw: Json = json.loads(gzip.decompress(path.read_bytes()))
    if "traceEvents" in raw:
        wanted = {"record_param_comms", "cudaLaunchKernel", "cudaLaunchKernelExC"}
        raw["traceEvents"] = [
            event
            for event in raw["traceEvents"]
            if event.get("cat") == "kernel" or event["name"] in wanted or "Step#" in event["name"]
        ]
    return raw


def spoiled(path: Path, key: str, name: str, change: Callable[[Json], None]) -> bytes:
    """The trace with ``change`` applied to (copies of) all its events or nodes named ``name…``."""
    raw = dict(content(path))
    entries = []
    for entry in raw[key]:
        if entry["name"].startswith(name):
            entry = json.loads(json.dumps(entry))
            change(entry)
        entries.append(entry)
    return json.dumps(raw | {key: entries}).encode()


def event(name: str, /, **fields: Any) -> Callable[[], bytes]:
    return lambda: spoiled(KINETO, "traceEvents", name, lambda entry: entry.update(fields))


def told(**args: Any) -> Callable[[], bytes]:
    def change(entry: Json) -> None:
        for key, value in args.items():
            entry["args"].pop(key.replace("_", " "), None)
            if value is not None:
                entry["args"][key.replace("_", " ")] = value

    return lambda: spoiled(KINETO, "traceEvents", "record_param_comms", change)


def node(name: str = "record_param_comms", /, **fields: Any) -> Callable[[], bytes]:
    return lambda: spoiled(HOST, "nodes", name, lambda entry: entry.update(fields))


def attribute(key: str, value: Any) -> Callable[[], bytes]:
    def change(entry: Json) -> None:
        entry["attrs"] = [one for one in entry["attrs"] if one["name"] != key or value is not None]
        for one in entry["attrs"]:
            if one["name"] == key:
                one["value"] = value

    return lambda: spoiled(HOST, "nodes", "record_param_comms", change)


def without(path: Path, key: str, *names: str) -> Callable[[], bytes]:
    def rest() -> bytes:
        raw = dict(content(path))
        return json.dumps(raw | {key: [one for one in raw[key] if not one["name"].startswith(names)]}).encode()

    return rest


def cut(path: Path, part: float) -> Callable[[], bytes]:
    return lambda: path.read_bytes()[: int(path.stat().st_size * part)]


def cut_text(path: Path, part: float) -> Callable[[], bytes]:
    def start() -> bytes:
        text = gzip.decompress(path.read_bytes())
        return text[: int(len(text) * part)]

    return start


def bomb(start: bytes, token: bytes) -> Callable[[], bytes]:
    return lambda: gzip.compress(start + token * (64_000_000 // len(token)), 1)


EVENTS, NODES = b'{"schemaVersion": 1, "traceEvents": [', b'{"schema": "1.1.0-chakra.0.0.4", "nodes": ['

KINETO_SPOILED: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "is empty"),
    "cut at 0.01 %": (cut(KINETO, 1e-4), "ends too early"),
    "cut at 50 %": (cut(KINETO, 0.5), "ends too early"),
    "cut at 99.9 %": (cut(KINETO, 0.999), "ends too early"),
    "text cut at 40 %": (cut_text(KINETO, 0.4), "not complete, valid JSON"),
    "text cut at 100 bytes": (cut_text(KINETO, 1e-5), "not complete, valid JSON"),
    "not gzip": (lambda: b"\x1f\x8b" + KINETO.read_bytes()[9000:], "cannot be unpacked"),
    "damaged in the middle": (
        lambda: KINETO.read_bytes()[:300_000] + bytes(50) + KINETO.read_bytes()[300_050:], "not complete, valid JSON",
    ),
    "a list": (lambda: json.dumps(content(KINETO)["traceEvents"]).encode(), "no format"),
    "another schema": (lambda: json.dumps(content(KINETO)).replace("traceEvents", "events", 1).encode(), "'traceEvents'"),
    "no events": (lambda: EVENTS + b"]}", "'traceEvents'"),
    "events are numbers": (lambda: EVENTS + b"1, 2]}", "'traceEvents' has to hold objects"),
    "not UTF-8": (lambda: EVENTS + b'{"name": "\xff"}]}', "not complete, valid JSON"),
    "rubbish at the end": (lambda: json.dumps(content(KINETO)).encode() + b"}", "not complete, valid JSON"),
    "no sizes": (told(In_msg_nelems=None), "'In msg nelems'"),
    "no types": (told(dtype=None), "'dtype'"),
    "an unknown type": (told(dtype="Quaternion"), "dtype 'Quaternion'"),
    "sizes are text": (told(In_msg_nelems="many"), "'In msg nelems' is 'many'"),
    "negative sizes": (told(In_msg_nelems=-5), "'In msg nelems' is -5"),
    "absurd sizes": (told(In_msg_nelems=10**17), "beyond reason"),
    "names are numbers": (told(Collective_name=7), "'Collective name' is 7"),
    "args is a list": (event("record_param_comms", args=[1]), "'args' of the event 'record_param_comms'"),
    "name is a number": (event("ProfilerStep", name=3), "'name' is 3"),
    "negative durations": (event("ProfilerStep", dur=-1.0), "'dur' is -1.0"),
    "negative times": (event("nccl", ts=-1.0), "'ts' is -1.0"),
    "times are text": (event("ProfilerStep", ts="noon"), "'ts' is 'noon'"),
    "times are not numbers": (event("ProfilerStep", ts=math.nan), "not complete, valid JSON"),
    "absurd times": (event("ProfilerStep", dur=1e17), "no iteration"),
    "infinite times": (lambda: EVENTS + b'{"ph":"X","name":"ProfilerStep#1","ts":1e999,"dur":1}]}', "valid JSON"),
    "no durations": (lambda: EVENTS + b'{"ph":"X","name":"ProfilerStep#1","ts":1}]}', "has no 'dur'"),
    "no steps": (without(KINETO, "traceEvents", "ProfilerStep", "Optimizer"), "'ProfilerStep#N'"),
    "two ranks in one": (event("ProfilerStep", name="ProfilerStep#4"), "ProfilerStep#4 more than once"),
    "no collectives": (without(KINETO, "traceEvents", "record_param_comms", "nccl"), "no collective"),
    "deep": (lambda: EVENTS + b'{"args":' * 100_000, "nests deeper"),
    "deep lists": (lambda: b'{"traceEvents":' + b'[1,"\\"[",' * 50_000, "nests deeper"),
    "an endless string": (bomb(EVENTS + b'{"name": "', b"a"), "more than 8 MiB"),
    "an endless event": (bomb(EVENTS + b'{"args": [', b"1,"), "more than 8 MiB"),
    "an endless number": (bomb(EVENTS, b"1"), "more than 8 MiB"),
    "endless blanks": (bomb(EVENTS, b" "), "more than 8 MiB"),
}  # fmt: skip

HOST_SPOILED: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "is empty"),
    "cut at 0.01 %": (cut(HOST, 1e-4), "ends too early"),
    "cut at 50 %": (cut(HOST, 0.5), "ends too early"),
    "cut at 99.9 %": (cut(HOST, 0.999), "ends too early"),
    "text cut at 40 %": (cut_text(HOST, 0.4), "not complete, valid JSON"),
    "not gzip": (lambda: b"\x1f\x8b" + HOST.read_bytes()[9000:], "cannot be unpacked"),
    "a list": (lambda: json.dumps(content(HOST)["nodes"]).encode(), "no format"),
    "a schema of the future": (lambda: json.dumps(content(HOST) | {"schema": "2.0"}).encode(), "schema '2.0'"),
    "no schema": (lambda: json.dumps({"nodes": content(HOST)["nodes"]}).encode(), "no format"),
    "no nodes": (lambda: NODES + b"]}", "'nodes'"),
    "nodes are text": (lambda: NODES + b'"a"]}', "'nodes' has to hold objects"),
    "no sizes": (attribute("in_msg_nelems", None), "'in_msg_nelems'"),
    "no types": (attribute("dtype", None), "'dtype'"),
    "an unknown type": (attribute("dtype", "Quaternion"), "dtype 'Quaternion'"),
    "negative sizes": (attribute("in_msg_nelems", -5), "'in_msg_nelems' is -5"),
    "sizes are text": (attribute("in_msg_nelems", "many"), "'in_msg_nelems' is 'many'"),
    "absurd sizes": (attribute("in_msg_nelems", 10**17), "beyond reason"),
    "names are numbers": (attribute("collective_name", 7), "'collective_name' is 7"),
    "attrs is a number": (node(attrs=7), "'attrs' is 7"),
    "attrs holds numbers": (node(attrs=[7]), "'attrs' is [7]"),
    "id is text": (node(id="one"), "'id' is 'one'"),
    "name is a list": (node(name=[]), "'name' is []"),
    "negative durations": (node(ts=1.0, dur=-1.0), "'dur' is -1.0"),
    "no collectives": (without(HOST, "nodes", "record_param_comms"), "no collective"),
    "deep": (lambda: NODES + b'{"inputs":' * 100_000, "nests deeper"),
    "an endless string": (bomb(NODES + b'{"name": "', b"a"), "more than 8 MiB"),
}


def refused(path: Path, says: str, capsys: pytest.CaptureFixture[str], *options: str) -> None:
    out = path.with_name("out.json")
    before = sorted(path.parent.iterdir())
    assert cli(path, "-o", out, *options) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and len(error.splitlines()) == 1 and len(error) < 1000
    assert str(path) in error and says in error
    assert sorted(path.parent.iterdir()) == before


@real
@pytest.mark.parametrize("what", KINETO_SPOILED)
def test_kineto_spoiled(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, says = KINETO_SPOILED[what]
    path = tmp_path / "spoiled.json"
    path.write_bytes(data())
    refused(path, says, capsys)


@real
@pytest.mark.parametrize("what", HOST_SPOILED)
def test_host_trace_spoiled(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, says = HOST_SPOILED[what]
    path = tmp_path / "spoiled.json"
    path.write_bytes(data())
    refused(path, says, capsys, "--iteration", "222ms")


@real
def test_slimmed_they_are_still_themselves(tmp_path: Path) -> None:
    """The spoiled ones are refused for what was done to them, not for what `content` leaves out."""
    path = tmp_path / "whole.json"
    path.write_bytes(json.dumps(content(KINETO)).encode())
    assert profile(path).steps == pytest.approx(profile(KINETO).steps)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-o", "out.txt"], "ends in .json"),
        (["-o", "nowhere/out.json"], "no folder nowhere"),
        (["-o", "out.json", "--native-rate", "10"], "no unit"),
        (["-o", "out.json", "--bytes", "5"], "no unit"),
        (["-o", "out.json", "--iteration", "5ms"], "--iteration means nothing for this format"),
        (["-o", "out.json", "--format", "dance"], "no format 'dance'; there are chakra, "),
        (["-o", "out.json", "--only", "dance"], "'dance' is none of"),
        (["-o", "out.json", "--only", "broadcast"], "no step exchanges anything"),
        ([], "--output"),
    ],
)
def test_wrong_requests(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = data_parallel().write(tmp_path)
    assert cli(path, *options) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "gone.json", tmp_path):
        assert cli(path, "-o", tmp_path / "out.json") == 2
        assert f"error: {path} cannot be read" in capsys.readouterr().err


def test_importers_and_commands_are_found_by_their_files() -> None:
    assert importers.names() == ["chakra", "execution_trace", "kineto", "table"]
    assert "import" in commands.names()


# Anything at all

values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
words = st.sampled_from(
    """ph,X,cat,kernel,cuda_runtime,name,ts,dur,args,id,nodes,traceEvents,schema,attrs,value,record_param_comms,
    ProfilerStep#1,ProfilerStep#2,Optimizer.step#A,ncclKernel_AllReduce,External id,correlation,Collective name,
    allreduce,In msg nelems,Out msg nelems,dtype,Float,Group size,collective_name,in_msg_nelems,out_msg_nelems""".replace(
        "\n    ", ""
    ).split(",")
)
anything = st.recursive(
    values | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | words, inner, max_size=6),
    max_leaves=20,
)
times = st.integers(-1, 50) | st.floats()
events = st.fixed_dictionaries(
    {"ph": st.just("X"), "ts": times, "dur": times, "name": words, "cat": words | values},
    optional={"args": st.dictionaries(words, values | words, max_size=6) | anything},
)
nodes_of_a_host = st.fixed_dictionaries(
    {"id": times, "name": words}, optional={"ts": times, "dur": times, "attrs": anything, "op_schema": values}
)
documents = (
    anything
    | st.fixed_dictionaries({"traceEvents": st.lists(events, max_size=8)})
    | st.fixed_dictionaries({"schema": st.just("1.1.0-chakra"), "nodes": st.lists(nodes_of_a_host, max_size=8)})
)
some_nodes = st.lists(
    st.tuples(st.integers(0, 8), st.lists(st.integers(0, 9), max_size=3), st.integers(0, 1 << 61), values), max_size=8
)


def any_nodes(nodes: list[tuple[int, list[int], int, Any]]) -> bytes:
    made = Chakra()
    for kind, after, duration, value in nodes:
        attributes = {"comm_type": 0, "comm_size": value, "pg_name": value, "is_cpu_op": value}
        fit = {
            key: one
            for key, one in attributes.items()
            if one is not None and not (isinstance(one, int) and abs(one) >= 1 << 63)
            and not (isinstance(one, str) and not one.isprintable())
        }  # fmt: skip
        made.node("ProfilerStep#1" if kind == 1 else "node", kind, *after, duration=duration, **fit)
    return made.bytes()


rows = st.lists(st.lists(values | st.sampled_from(["0", "1", "5"]), max_size=4), max_size=5)


def any_table(lines: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([["time_s", "bytes", "step", "kind"], *lines])
    return text.getvalue().encode("utf-8", "surrogatepass")


data_of_any_kind = (
    st.binary(max_size=300)
    | st.binary(max_size=100).map(gzip.compress)
    | documents.map(lambda document: json.dumps(document).encode())
    | some_nodes.map(any_nodes)
    | rows.map(any_table)
)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data_of_any_kind, st.sampled_from([None, *importers.names()]), st.booleans())
def test_whatever_it_is_it_is_read_or_refused(data: bytes, format: str | None, helped: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "anything"
        path.write_bytes(data)
        uses = importers.find(format or "kineto").USES if helped else frozenset()
        by_hand = {"sizes": (Size(5),), "iteration": Duration(10**6), "group": "0"}
        try:
            imported(path, format=format, **{key: value for key, value in by_hand.items() if key in uses})
        except TraceError as error:
            assert "anything" in str(error)

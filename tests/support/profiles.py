"""What profilers write, as the tests make and find it, and how they import it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from testbed.cli import main
from testbed.traces import importing
from testbed.traces.importing import Profile, Request, import_trace
from testbed.traces.trace import Kind, Trace
from workloads.importers import chakra

DATA = Path(__file__).parents[1] / "data" / "profiles"
CASES = DATA.with_name("cases")
ONE_RANK = DATA / "kineto-1-rank-0.json.gz"
TWO_RANKS = [DATA / f"kineto-2-ranks-{rank}.json.gz" for rank in range(2)]
HOST_ONE_RANK, HOST_TWO_RANKS = DATA / "host-1-rank.json.gz", DATA / "host-2-ranks.json.gz"
RECORDED = [4 * (256 * 128 + 128), 4 * (256 * 256 + 256)]  # bytes of the gradients of the model's two layers

Json = dict[str, Any]


def imported(path: Path, **options: Any) -> Trace:
    fields = {key: options.pop(key) for key in ("group", "sizes", "ranks", "iteration", "steps") if key in options}
    return import_trace([path], Request(**fields), name="mine", model="a model", **options)


def profile(path: Path, **fields: Any) -> Profile:
    result: Profile = importing.find(importing.detect(path)).read(path, Request(**fields))
    return result


def collectives(trace: Trace) -> list[tuple[Kind, int]]:
    return [(op.kind, int(op.bytes)) for op in trace.operations if op.bytes]


def cli(*arguments: str | Path) -> int:
    return main(["import", *map(str, arguments)])


class Kineto:
    """A Chrome trace under construction; times in milliseconds."""

    def __init__(self) -> None:
        self.events: list[Json] = []

    def event(self, name: str, category: str, start: float, length: float, tid: int = 1, **args: Any) -> Json:
        event = {"ph": "X", "cat": category, "name": name, "ts": start * 1e3, "dur": length * 1e3, "args": args}
        event |= {"pid": 1, "tid": tid}
        self.events.append(event)
        return event

    def step(self, number: int, start: float, length: float) -> None:
        self.event(f"ProfilerStep#{number}", "user_annotation", start, length)

    def kernel(self, start: float, length: float, launch: float | None = None, stream: int = 7) -> None:
        own = len(self.events)
        self.event("gemm", "kernel", start, length, stream=stream, correlation=own)
        self.event("cudaLaunchKernel", "cuda_runtime", start if launch is None else launch, 0.01, correlation=own)

    def call(self, name: str, start: float) -> int:
        """A call of the CUDA runtime; its correlation."""
        own = len(self.events)
        self.event(name, "cuda_runtime", start, 0.01, correlation=own)
        return own

    def stream_wait(self, start: float, stream: int, awaited: int, record: int) -> None:
        told = {"wait_on_stream": awaited, "wait_on_cuda_event_record_corr_id": record}
        own = self.call("cudaStreamWaitEvent", start)
        self.event("Stream Wait Event", "cuda_sync", start, 0.0, stream=stream, correlation=own, **told)

    def collective(
        self, launch: float, start: float, length: float, elements: int = 1000, name: str = "allreduce",
        kernel: str = "AllReduce", stream: int = 40, by_id: bool = True, lead: float = 0.05, **args: Any,
    ) -> None:  # fmt: skip
        """``lead``: from the call to the launch."""
        own = len(self.events)
        sizes = {"In msg nelems": elements, "Out msg nelems": elements, "dtype": "Float", "Group size": 2}
        told = {"Collective name": name, "Process Group Name": "0", **sizes, **args}
        told = {key: value for key, value in told.items() if value is not None}
        self.event("record_param_comms", "cpu_op", launch, 2 * lead, **{"External id": own, **told})
        known = {"External id": own} if by_id else {}
        self.event(f"ncclDevKernel_{kernel}_RING", "kernel", start, length, stream=stream, correlation=own, **known)
        self.event("cudaLaunchKernelExC", "cuda_runtime", launch + lead, 0.01, correlation=own)

    def old_collective(
        self, annotation: str | None, launch: float, start: float, length: float,
        dims: Any = None, type: str = "float", kernel: str = "SendRecv", tid: int = 1,
    ) -> None:  # fmt: skip
        """As PyTorch 1.x writes it: no names, one NCCL kernel for all, and an annotation around its launch."""
        own = len(self.events)
        shapes = {"Input Dims": [dims, [], []], "Input type": [type, "Int", "Int"]} if dims is not None else {}
        self.event("record_param_comms", "cpu_op", launch, 0.3, tid, **{"External id": own}, **shapes)
        if annotation is not None:
            self.event(annotation, "user_annotation", launch + 0.05, 0.2, tid)
        self.event("cudaLaunchKernel", "cuda_runtime", launch + 0.1, 0.01, tid, correlation=own)
        self.event(
            f"ncclKernel_{kernel}_RING_LL_Sum_int8_t(ncclColl)", "kernel", start, length, 7, stream=40, correlation=own
        )

    def write(self, folder: Path, name: str = "kineto.json", **head: Any) -> Path:
        path = folder / name
        path.write_text(json.dumps({"schemaVersion": 1, **head, "traceEvents": self.events}))
        return path


def hybrid_parallel(steps: int = 5, dims: bool = True) -> Kineto:
    """Recommendation training on 16 ranks in the shape that PyTorch 1.x profiles have; made by hand.

    The first step has five kernels more, which were launched before the profile began and so without an annotation.
    """
    made = Kineto()
    for number in range(steps):
        t = 100.0 * number
        made.step(number, t, 99)
        made.kernel(t + 1, 60)
        if number == 0:
            for early in range(5):
                made.old_collective(None, t + 1 + early, t + 1 + early, 0.5)
        shapes: list[tuple[str, list[int], str]] = [
            *[("nccl:all_to_all", [256, 100], "c10::Half")] * 9,
            ("nccl:all_reduce", [1000], "float"), ("nccl:all_reduce", [384], "long"),
            ("nccl:_reduce_scatter_base", [4096], "unsigned char"), ("nccl:_reduce_scatter_base", [512], "long int"),
            ("nccl:_all_gather_base", [256], "c10::BFloat16"), ("nccl:_all_gather_base", [32], "double"),
        ]  # fmt: skip
        for index, (name, shape, type) in enumerate(shapes):
            made.old_collective(name, t + 10 + index, t + 20 + 3 * index, 2, shape if dims else None, type)
        made.kernel(t + 90, 5, launch=t + 70)
    return made


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


def nccl_profile() -> Json:
    """Data-parallel training on two GPUs as today's PyTorch writes it; made by hand."""
    made = Kineto()
    for number in range(3, 6):
        t = 100.0 * number
        made.step(number, t, 100)
        made.event("aten::mm", "cpu_op", t + 1, 2)
        made.kernel(t + 1, 84)
        for at, elements in ((40, 2_049_000), (80, 7_875_584)):
            made.collective(t + at, t + at, 10, elements)
            made.event("nccl:all_reduce", "user_annotation", t + at, 0.08)
        made.kernel(t + 90, 9, launch=t + 86)
        made.event("Optimizer.step#SGD.step", "user_annotation", t + 86, 4)
    head = {"deviceProperties": [{"id": 0, "name": "a GPU"}], "distributedInfo": {"rank": 0, "world_size": 2}}
    return {"schemaVersion": 1, **head, "traceEvents": made.events}


def nccl_host_trace() -> Json:
    """The same as an execution trace, which has no times; made by hand."""
    nodes: list[Json] = []

    def node(name: str, **attributes: Any) -> None:
        attrs = [{"name": key, "type": "", "value": value} for key, value in attributes.items()]
        nodes.append({"id": len(nodes) + 1, "name": name, "ctrl_deps": 0, "attrs": attrs})

    for number in range(3):
        node(f"ProfilerStep#{number}")
        for elements in (2_049_000, 7_875_584):
            node("aten::mm", op_schema="aten::mm(…)")
            told = {"dtype": "Float", "in_msg_nelems": elements, "out_msg_nelems": elements}
            node("record_param_comms", collective_name="allreduce", pg_name="0", pg_size=2, **told)
            node("nccl:all_reduce")
    return {"schema": "1.1.0-chakra.0.0.4", "nodes": nodes}


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
            if isinstance(value, list):
                node.attr.add(name=key).bool_list.values.extend(value)
                continue
            field = {bool: "bool_val", int: "int64_val", str: "string_val", float: "double_val"}[type(value)]
            node.attr.add(name=key, **{field: value})
        self.messages.append(node)
        return int(node.id)

    def compute(self, duration: int, *after: int, **more: Any) -> int:
        return self.node("compute", 4, *after, duration=duration, is_cpu_op=False, **more)

    def collective(self, size: int, *after: int, type: int = 0, **more: Any) -> int:
        return self.node("comm", 7, *after, comm_type=type, comm_size=size, is_cpu_op=False, **more)

    def work(self, flops: int, memory: int, *after: int, **more: Any) -> int:
        return self.node("work", 4, *after, num_ops=flops, tensor_size=memory, is_cpu_op=False, **more)

    def send(self, size: int, peer: int, *after: int, tag: int = 0, **more: Any) -> int:
        return self.node("send", 5, *after, comm_size=size, comm_dst=peer, comm_tag=tag, **more)

    def recv(self, size: int, peer: int, *after: int, tag: int = 0, **more: Any) -> int:
        return self.node("recv", 6, *after, comm_size=size, comm_src=peer, comm_tag=tag, **more)

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

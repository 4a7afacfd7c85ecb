"""What profilers write, as the tests make and find it, and how they import it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from workloads import importers
from workloads.__main__ import main
from workloads.importers import Profile, Request, chakra, import_trace
from workloads.trace import Kind, Trace

ROOT = Path(__file__).parents[1]
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

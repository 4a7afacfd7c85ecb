"""How PyTorch names collectives and element types; shared by the importers of its traces."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from testbed.core.text import quoted, shown
from testbed.traces import nccl
from testbed.traces.importing import Request
from testbed.traces.process_groups import InGroup
from testbed.traces.trace import Kind, TraceError

# Names as in ProcessGroupNCCL's record_param_comms (allreduce, _allgather_base, all_to_allv) and in
# NCCL's kernels (ncclDevKernel_ReduceScatter_…): any that contains one of these, underscores aside.
_KINDS: dict[str, Kind] = {"sendrecv": "send_recv", **nccl.KINDS}  # first a kernel that may do either
_ONE_WAY = ("send", "recv", "send_recv")
WITHOUT_DATA = {"wait", "barrier", "init"}
# What a backend of torch.distributed calls a collective while it carries it out: nccl:all_reduce, gloo:broadcast
ANNOTATION = re.compile(r"(?:nccl|rccl|xccl|hccl|gloo|mpi|ucc):|hcom_")
# What the libraries' own kernels are called: NCCL and AMD's RCCL (nccl…, rccl…), Huawei's HCCL (hcom_allReduce_…), Intel's oneCCL
COMMUNICATION = re.compile(r"(?i)[nrhx]ccl|oneccl|\bhcom_")

# c10::ScalarType by name; of these NCCL carries all but the complex ones, which PyTorch sends as reals
_ELEMENT_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("half", "bfloat16", "float16", "short", "int16", "uint16"), 2),
    **dict.fromkeys(("float", "float32", "int", "int32", "uint32", "complexhalf"), 4),
    **dict.fromkeys(("double", "float64", "long", "int64", "uint64", "complexfloat"), 8),
    **dict.fromkeys(("complexdouble",), 16),
}


# The names of the same types in C++, which are those of "Input type" and of execution traces
_CPP_TYPES = {
    **dict.fromkeys(("unsigned char", "signed char", "char", "bool"), 1),
    **dict.fromkeys(("c10::Float8_e4m3fn", "c10::Float8_e4m3fnuz", "c10::Float8_e5m2", "c10::Float8_e5m2fnuz"), 1),
    **dict.fromkeys(("c10::Half", "c10::BFloat16", "short", "short int", "unsigned short", "short unsigned int"), 2),
    **dict.fromkeys(("float", "int", "unsigned int"), 4),
    **dict.fromkeys(("double", "long", "long int", "unsigned long", "long unsigned int", "c10::complex<float>"), 8),
    **dict.fromkeys(("c10::complex<double>",), 16),
}
_TENSOR = re.compile(r"Tensor\(([^()]*)\)")  # execution traces: Tensor(float), GenericList[Tensor(float),…]
_MOST_DIMENSIONS = 64  # PyTorch's own limit


def kind_of(name: str) -> Kind | None:
    """The kind of the collective or NCCL kernel ``name``; None if there is none for it."""
    plain = name.lower().replace("_", "")
    return next((kind for key, kind in _KINDS.items() if key in plain), None)


def tensor_bytes(kind: Kind, elements_in: float, elements_out: float, dtype: object, where: str) -> int:
    """Bytes of the whole tensor: an all-gather's output, otherwise the input; raises `TraceError`."""
    each = _ELEMENT_BYTES.get(str(dtype).lower().removeprefix("c10::"))
    if each is None:
        raise TraceError(f"{where}: dtype {quoted(dtype)} is not an element type of NCCL's")
    if kind in _ONE_WAY:
        return int(max(elements_in, elements_out)) * each
    elements = elements_out if kind == "all_gather" else elements_in
    if kind == "all_to_all" and not elements_in:  # this rank only receives
        elements = elements_out
    return int(elements) * each


def shapes_bytes(shapes: object, types: object) -> int | None:
    """Bytes of all tensors among the inputs of these shapes and types; None if there are none or one is unknown."""
    if not isinstance(shapes, list) or not isinstance(types, list):
        return None
    total, tensors = 0, 0
    for shape, name in zip(shapes, types, strict=False):
        names = set(_TENSOR.findall(name)) or {name} if isinstance(name, str) else set()
        if names == {"TensorList"} or len(names) > 1:  # which of them is of which type is not recorded
            return None
        each = next((_CPP_TYPES[one] for one in names if one in _CPP_TYPES), None)
        if each is None:  # no tensor
            continue
        elements = _elements(shape)
        if elements is None:
            return None
        total += each * elements
        tensors += 1
    return total if tensors else None


def _elements(shape: object) -> int | None:
    """Elements of a tensor ``[2, 3]`` or of a list of tensors ``[[2, 3], [4]]``."""
    if not isinstance(shape, list):
        return None
    if shape and all(isinstance(one, list) for one in shape):
        parts = [_elements(one) for one in shape]
        return None if None in parts else sum(part for part in parts if part is not None)
    if len(shape) > _MOST_DIMENSIONS or not all(type(one) is int and 0 <= one < 1 << 60 for one in shape):
        return None
    return math.prod(shape)


def gathered_bytes(kind: Kind, size: int | None, workers: int) -> int | None:
    """Bytes of the whole tensor where ``size`` is that of one rank's input; None if unknown."""
    if kind != "all_gather" or size is None:
        return size
    return size * workers if workers else None


_MOST_RANKS = 100_000
_RANKS = re.compile(r"\[\d+(?:, ?\d+)*\]")  # a long list ends with "...": then they are not known


def ranks_in(text: object) -> tuple[int, ...]:
    """``Process Group Ranks``: "[0, 1, 2]"; empty if that is not all of them."""
    if not isinstance(text, str) or len(text) > 8 * _MOST_RANKS or not _RANKS.fullmatch(text):
        return ()
    return tuple(int(one) for one in text[1:-1].split(",") if len(one) < 12)


def sizes_of(
    steps: Sequence[Sequence[InGroup]], request: Request, path: Path, missing: str
) -> tuple[list[list[int]], list[str]]:
    """The sizes of the collectives of each step, recorded or from ``--bytes``, and the assumption that makes.

    A step that holds one of unknown size, or of another number than there are sizes for, gets an empty list.
    """
    kinds = Counter(tuple(one.kind for one in own) for own in steps if own)
    ((usual, steps_alike),) = kinds.most_common(1)
    recorded = [sizes if None not in (sizes := [one.bytes for one in own]) else [] for own in steps]
    if any(sizes and tuple(one.kind for one in own) == usual for sizes, own in zip(recorded, steps, strict=True)):
        if request.sizes:
            raise TraceError(f"{path}: --bytes is for traces without sizes, and this one has them")
        return [[size or 0 for size in sizes] for sizes in recorded], []
    if not request.sizes:
        raise TraceError(
            f"{path}: the sizes of its collectives are missing ({missing}). Give them with --bytes: one for each of the "
            f"{len(usual)} collectives of a step ({listed(map(str, usual))}, in {steps_alike} of its {len(steps)} steps), "
            f"in order (--bytes 8196000B,31502336B,…), or one total, which is split evenly."
        )
    counts = [len(own) for own in steps]
    if len(request.sizes) == 1:
        (total,) = request.sizes
        even = [[total * (i + 1) // n - total * i // n for i in range(n)] for n in counts]
        return even, [f"collective sizes are assumed: {total} per step, split evenly"]
    if len(request.sizes) not in counts:
        seen = ", ".join(str(n) for n in sorted(set(counts)))
        raise TraceError(f"{path}: --bytes has {len(request.sizes)} sizes, and its steps have {seen} collectives")
    given = [[int(size) for size in request.sizes] if n == len(request.sizes) else [] for n in counts]
    return given, ["collective sizes are not in the recording; they were given by hand"]


_MOST_NAMED = 12  # of what a file holds, in a message


def listed(names: Iterable[str], of: str = "") -> str:
    """How often each of ``names`` occurs, the most frequent first: "9 all_to_all, 2 all_reduce"."""
    counts = names if isinstance(names, Counter) else Counter(names)
    said = [f"{count} {of}{shown(name)}" for name, count in counts.most_common(_MOST_NAMED)]
    if len(counts) > len(said):
        said.append(f"{len(counts) - len(said)} others")
    return ", ".join(said)


def iterations(marks: Sequence[tuple[int, str]], end: int) -> tuple[list[tuple[int, int]], list[str]]:
    """The ranges of node numbers that are a step each, and the assumption that makes.

    ``marks`` are the numbers and names of annotations; numbers grow with time up to
    ``end``. A ``ProfilerStep`` begins a step; without them one begins with each
    ``Optimizer.step``, and without those the file is one step.
    """
    begins = sorted(number for number, name in marks if name.startswith("ProfilerStep#"))
    if begins:
        return list(pairwise([*begins, max(end, begins[-1] + 1)])), []
    begins = sorted(number for number, name in marks if name.startswith("Optimizer.step#"))
    if len(begins) > 1:
        return list(pairwise(begins)), ["steps are taken to be from one Optimizer.step to the next"]
    return [(0, end)], ["the file is taken to be one step: it has no ProfilerStep and no two Optimizer.step"]

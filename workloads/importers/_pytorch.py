"""How PyTorch names collectives and element types; shared by the importers of its traces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeVar

from workloads.importers import Request
from workloads.trace import Kind, TraceError
from workloads.units import Size

# Names as in ProcessGroupNCCL's record_param_comms (allreduce, _allgather_base, all_to_allv) and in
# NCCL's kernels (ncclDevKernel_ReduceScatter_…): any that contains one of these, underscores aside.
_KINDS: dict[str, Kind] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "send": "send_recv",
    "recv": "send_recv",
}
WITHOUT_DATA = {"wait", "barrier", "init"}

# c10::ScalarType by name; of these NCCL carries all but the complex ones, which PyTorch sends as reals
_ELEMENT_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("half", "bfloat16", "float16", "short", "int16", "uint16"), 2),
    **dict.fromkeys(("float", "float32", "int", "int32", "uint32", "complexhalf"), 4),
    **dict.fromkeys(("double", "float64", "long", "int64", "uint64", "complexfloat"), 8),
    **dict.fromkeys(("complexdouble",), 16),
}


def kind_of(name: str) -> Kind | None:
    """The kind of the collective or NCCL kernel ``name``; None if there is none for it."""
    plain = name.lower().replace("_", "")
    return next((kind for key, kind in _KINDS.items() if key in plain), None)


def tensor_bytes(kind: Kind, elements_in: float, elements_out: float, dtype: object, where: str) -> int:
    """Bytes of the whole tensor: an all-gather's output, otherwise the input; raises `TraceError`."""
    each = _ELEMENT_BYTES.get(str(dtype).lower().removeprefix("c10::"))
    if each is None:
        raise TraceError(f"{where}: dtype {str(dtype)[:40]!r} is not an element type of NCCL's")
    elements = {"all_gather": elements_out, "send_recv": max(elements_in, elements_out)}.get(kind, elements_in)
    return int(elements) * each


@dataclass(frozen=True)
class Group:
    """A process group; ``workers`` of them, 0 if unknown."""

    name: str
    workers: int = 0


NO_GROUP = Group("")


class InGroup(Protocol):
    """What `choose` chooses among: collectives, some of whose sizes may be unknown."""

    @property
    def group(self) -> Group: ...
    @property
    def bytes(self) -> int | None: ...


Some = TypeVar("Some", bound=InGroup)


def choose(collectives: Iterable[Some], wanted: str | None, path: Path) -> tuple[list[Some], list[str]]:
    """Those of the process group ``wanted`` (None: with the most bytes), and what to say about the others."""
    groups: defaultdict[Group, list[Some]] = defaultdict(list)
    for one in collectives:
        groups[one.group].append(one)
    size = {group: sum(one.bytes or 0 for one in its) for group, its in groups.items()}
    by_size = sorted(groups, key=lambda group: (size[group], len(groups[group])), reverse=True)
    if wanted is not None:
        by_size.sort(key=lambda group: group.name != wanted)
    if not by_size or wanted not in (None, by_size[0].name):
        there = ", ".join(repr(group.name) for group in by_size) or "none"
        raise TraceError(f"{path} has no collective in a process group {wanted!r}; its groups: {there}")
    others = [
        f"process group {group.name!r} ({group.workers or 'unknown number of'} ranks, {len(groups[group])} collectives, "
        f"{Size(size[group])} in all profiled steps) was left out"
        for group in by_size[1:]
    ]
    return groups[by_size[0]], others


def give_sizes(counts: Sequence[int], request: Request, path: Path, missing: str) -> tuple[list[list[int]], list[str]]:
    """Sizes from ``--bytes`` for steps of so many collectives each, and the assumption that makes.

    Steps of another number than there are sizes for get an empty list.
    """
    if not request.sizes:
        raise TraceError(
            f"{path}: the sizes of its collectives are missing ({missing}; older versions of PyTorch record none). "
            f"Give them with --bytes: one for each of the {max(counts, default=0)} collectives of a step, in order "
            f"(--bytes 8196000B,31502336B,…), or one total, which is split evenly."
        )
    if len(request.sizes) == 1:
        (total,) = request.sizes
        even = [[total * (i + 1) // n - total * i // n for i in range(n)] for n in counts]
        return even, [f"collective sizes are assumed: {total} per step, split evenly"]
    if len(request.sizes) not in counts:
        seen = ", ".join(str(n) for n in sorted(set(counts)))
        raise TraceError(f"{path}: --bytes has {len(request.sizes)} sizes, and its steps have {seen} collectives")
    given = [[int(size) for size in request.sizes] if n == len(request.sizes) else [] for n in counts]
    return given, ["collective sizes are not in the recording; they were given by hand"]


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

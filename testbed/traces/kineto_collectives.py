"""Which collectives a PyTorch profiler (Kineto) trace holds: their kinds, sizes and NCCL kernels.

They are ``record_param_comms`` events; the NCCL kernel with the same ``External id``, or
launched during one, gives its time. Older versions of PyTorch do not name the
collective there, and NCCL runs most of them by kernels of one name
(``ncclKernel_SendRecv…``): then the annotation around the kernel's launch
(``nccl:all_to_all``) names it, and ``Input Dims`` with ``Input type`` give its size.
Without NCCL kernels the annotations (``gloo:all_reduce``) are the collectives.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from testbed.traces.importing import Request
from testbed.traces.kineto_events import (
    NO_ID,
    Call,
    Collective,
    Events,
    Kernel,
    nccl_launches,
    nccl_threads,
    ranks_of,
)
from testbed.traces.process_groups import Found, Group, choose
from testbed.traces.pytorch import gathered_bytes, kind_of, listed, sizes_of
from testbed.traces.trace import TraceError

_OF_GPUS = ("nccl:", "rccl:", "xccl:")
_SEVERAL = {"nccl:coalesced", "nccl:group"}  # annotations around collectives of perhaps several kinds


def collectives_of(
    events: Events, windows: list[tuple[float, float]], request: Request, path: Path
) -> tuple[list[Collective], list[Found], list[str]]:
    """The collectives of the chosen process groups, each in a step and with its size and kernel; raises `TraceError`.

    The second list is of all groups, the third one of what that assumes, in sentences.
    """
    recorded, said = _recorded(events, request, path)
    said += [f"{count} {name} cannot be replayed and were left out" for name, count in sorted(events.skipped.items())]
    said += [
        f"{count} {name} only receive on this rank: as much is taken to be sent"
        for name, count in sorted(events.received.items())
    ]
    recorded, about_peers = _with_peers(recorded)
    said += about_peers
    beside = [one.name for one in events.annotations if not one.name.startswith(_OF_GPUS)]
    if events.nccl and beside:
        said.append(f"what the CPUs exchanged beside the GPUs was left out ({listed(beside)})")
    starts = [start for start, _ in windows]
    placed = []
    for one in recorded:
        step = bisect_right(starts, one.start) - 1
        if step >= 0 and one.start <= windows[step][1]:
            placed.append(replace(one, step=step))
    if not placed:
        raise TraceError(
            f"{path} has no collective that can be replayed within its {len(windows)} steps. {_inventory(events)}"
        )
    chosen, groups = choose(placed, request.group, path)
    chosen.sort(key=lambda one: one.kernel.start if one.kernel else one.start)
    steps = by_step(chosen, len(windows))
    sizes, assumed = sizes_of(steps, request, path, _why_no_sizes(events, chosen))
    sized = [
        replace(one, bytes=size)
        for own, given in zip(steps, sizes, strict=True)
        for one, size in zip(own, given, strict=False)
    ]
    return sized, groups, said + assumed


def _with_peers(collectives: list[Collective]) -> tuple[list[Collective], list[str]]:
    """Sends and receives whose peer is not recorded, with one: a rank in the middle of a pipeline sends back to where it receives from."""
    peers = {
        kind: list(dict.fromkeys(one.peer for one in collectives if one.kind == kind and one.peer))
        for kind in ("send", "recv")
    }
    missing = [one for one in collectives if one.kind in peers and not one.peer]
    if not missing:
        return collectives, []
    guess = {}
    for kind, other, otherwise in (("send", "recv", "next"), ("recv", "send", "previous")):
        only_there = [peer for peer in peers[other] if peer not in peers[kind]]
        guess[kind] = next(iter((*only_there, *peers[other], *peers[kind])), otherwise)
    told = ", ".join(
        f"{sum(one.kind == kind for one in missing)} {kind} {word} {guess[kind]}"
        for kind, word in (("send", "to"), ("recv", "from"))
    )
    return [replace(one, peer=guess[one.kind]) if one.kind in guess and not one.peer else one for one in collectives], [
        f"some sends and receives do not name the other rank; they are taken to be {told}"
    ]


def by_step(collectives: list[Collective], steps: int) -> list[list[Collective]]:
    """The collectives of each of this many steps, in the order given."""
    found: list[list[Collective]] = [[] for _ in range(steps)]
    for one in collectives:
        found[one.step].append(one)
    return found


def _recorded(events: Events, request: Request, path: Path) -> tuple[list[Collective], list[str]]:
    """All collectives of the file, by the best witness that there is, and what that assumes."""
    if found := _with_kernels(events):
        return found, []
    group = Group("", request.ranks or ranks_of(path))
    if events.nccl:
        return _of_kernels(events, group)
    moments = [_Moment(one.thread, one.start, one.external_id) for one in events.annotations]
    found = []
    for annotation, call in zip(events.annotations, _around(events.calls, moments), strict=True):
        if kind := annotation.kind:
            size = events.calls[call].bytes if annotation.bytes is None and call is not None else annotation.bytes
            size = gathered_bytes(kind, size, group.workers)
            found.append(Collective(kind, size, group, annotation.start, annotation.end))
        else:
            events.skipped[annotation.name] += 1
    if not found:
        return [], []
    names = listed(one.name for one in events.annotations)
    return found, [f"collectives are the annotations of their backend ({names})", *_about_sizes(found)]


def _of_kernels(events: Events, group: Group) -> tuple[list[Collective], list[str]]:
    """The collectives of NCCL's kernels; several that were launched within one annotation are one."""
    launches: list[float] = nccl_launches(events).tolist()
    moments = [
        _Moment(thread, launch, kernel.external_id)
        for thread, launch, kernel in zip(nccl_threads(events), launches, events.nccl, strict=True)
    ]
    annotated, called = _around(events.annotations, moments), _around(events.calls, moments)
    found: dict[int, Collective] = {}
    unsaid: Counter[str] = Counter()  # kernels without an annotation, by the kind in their names
    for index, (kernel, launch) in enumerate(zip(events.nccl, launches, strict=True)):
        annotation, call = annotated[index], called[index]
        inside = None if annotation is None else events.annotations[annotation]
        kind = inside.kind if inside and inside.name not in _SEVERAL else kind_of(kernel.name)
        if kind is None:
            events.skipped[inside.name if inside else kernel.name] += 1
            continue
        if inside is None:
            unsaid[kind] += 1
        key = -1 - index if annotation is None or (inside and inside.name in _SEVERAL) else annotation
        if key in found:
            found[key] = replace(found[key], kernel=_joined(found[key].kernel, kernel))
            continue
        told = [one.bytes for one in (inside, None if call is None else events.calls[call]) if one and one.bytes]
        size = gathered_bytes(kind, told[0] if told else None, group.workers)
        found[key] = Collective(kind, size, group, launch, launch, kernel=kernel)
    said = []
    if len(unsaid) < len(found):
        said.append(
            "kinds are told by the annotations around the launches of NCCL's kernels, not by these kernels' names"
        )
    if unsaid:
        said.append(
            f"{unsaid.total()} NCCL kernels were launched outside of any annotation: what they carry out is taken to be "
            f"what their names say ({listed(unsaid)})"
        )
    return list(found.values()), [*said, *_about_sizes(found.values())]


def _joined(first: Kernel | None, other: Kernel) -> Kernel:
    """From the first one's start to the last one's end."""
    return (
        other if first is None else replace(first, start=min(first.start, other.start), end=max(first.end, other.end))
    )


class _Moment(NamedTuple):
    """When and where the CPU did something that belongs to a `Call`."""

    thread: int
    time: float
    external_id: str


def _around(calls: list[Call], moments: Sequence[_Moment]) -> list[int | None]:
    """Which of ``calls`` each moment belongs to: by its ``External id``, else the innermost one around it."""
    by_id = {one.external_id: index for index, one in enumerate(calls) if one.external_id != NO_ID}
    found = [by_id.get(moment.external_id) for moment in moments]
    in_order: list[tuple[int, float, bool, int]] = [
        *((one.thread, one.start, False, index) for index, one in enumerate(calls)),
        *(
            (moments[index].thread, moments[index].time, True, index)
            for index, call in enumerate(found)
            if call is None
        ),
    ]
    open_: list[int] = []  # calls that have begun, the innermost last
    for thread, time, is_moment, index in sorted(in_order):
        while open_ and (calls[open_[-1]].thread != thread or calls[open_[-1]].end < time):
            open_.pop()
        if not is_moment:
            open_.append(index)
        elif open_:
            found[index] = open_[-1]
    return found


def _with_kernels(events: Events) -> list[Collective]:
    """The recorded collectives, each with its NCCL kernel where one is found, and those known only from kernels."""
    launched: list[float] = nccl_launches(events).tolist()
    by_id: dict[str, Kernel] = {}
    for kernel in events.nccl:
        if kernel.external_id != NO_ID:  # several of one call are on several devices
            by_id[kernel.external_id] = _joined(by_id.get(kernel.external_id), kernel)
    ids = {one.external_id for one in events.collectives} - {NO_ID}
    launches = sorted(
        (launch, index) for index, launch in enumerate(launched) if events.nccl[index].external_id not in ids
    )
    found = []
    taken: set[int] = set()
    for collective in events.collectives:
        kernel_or_none = by_id.get(collective.external_id)
        at = bisect_left(launches, (collective.start, -1))
        if kernel_or_none is None and at < len(launches) and launches[at][0] <= collective.end:
            taken.add(launches[at][1])
            kernel_or_none = events.nccl[launches[at][1]]
        found.append(replace(collective, kernel=kernel_or_none))
    alone = [
        replace(kernel.told, start=launched[index], end=max(launched[index], kernel.end), kernel=kernel)
        for index, kernel in enumerate(events.nccl)
        if kernel.told is not None and index not in taken and kernel.external_id not in ids
    ]
    if not events.collectives:  # otherwise the same is counted already
        for own, of_kernels in (
            (events.lacking, events.on_kernels.lacking),
            (events.skipped, events.on_kernels.skipped),
            (events.empty, events.on_kernels.empty),
            (events.received, events.on_kernels.received),
        ):
            own.update(of_kernels)
    return found + alone


def _about_sizes(collectives: Iterable[Collective]) -> list[str]:
    if all(one.bytes is None for one in collectives):
        return []
    said = ["collective sizes are those of 'Input Dims' and 'Input type'"]
    gathers = {one.group.workers for one in collectives if one.kind == "all_gather" and one.bytes is not None}
    return said + [f"an all-gather's size is that of its input times {workers} ranks" for workers in gathers]


def _why_no_sizes(events: Events, chosen: list[Collective]) -> str:
    gathers = [one for one in chosen if one.bytes is None and one.kind == "all_gather" and not one.group.workers]
    if gathers and any(one.bytes for one in chosen):
        return (
            f"of {len(gathers)} all-gathers each rank's part is recorded, and not of how many ranks: --ranks 8 says so, and "
            f"then --bytes is not needed"
        )
    if not events.lacking:
        return (
            "it has no record_param_comms events, and its annotations no 'Input Dims': record_shapes=True records them"
        )
    return (
        f"its record_param_comms events have no {', '.join(map(repr, sorted(events.lacking)))}, and no 'Input Dims' and "
        f"'Input type' either, which record_shapes=True records"
    )


def _inventory(events: Events) -> str:
    """The communication anywhere in the file, and why it cannot be used."""
    there = {
        "record_param_comms outside of its steps": listed(one.kind for one in events.collectives),
        "record_param_comms of no bytes": listed(events.empty),
        "of a kind that cannot be replayed": listed(events.skipped),
        "record_param_comms without a 'Collective name'": str(len(events.calls) or ""),
        "NCCL kernels": listed(one.name for one in events.nccl),
        "annotations": listed(one.name for one in events.annotations),
    }
    found = "; ".join(f"{what}: {which}" for what, which in there.items() if which)
    if not found:
        return (
            "In the whole file there is none at all: no record_param_comms event, no NCCL kernel, no annotation such as "
            "nccl:all_reduce or gloo:all_reduce. Was one worker alone profiled without torch.distributed, or CUDA left out?"
        )
    return f"In the whole file there are {found}."

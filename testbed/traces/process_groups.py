"""Process groups of a profile: which are imported, and the ranks of the whole job that they make.

A profile is of one rank. Its groups give the number of ranks, and the others are assumed to do the same. A rank that sends to
another one and receives from it has neighbours that do something else: these become roles of their own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from testbed.core.text import quoted
from testbed.core.units import Size
from testbed.traces import matching
from testbed.traces.matching import EVERY_RANK
from testbed.traces.operations import Groups, Kind, Operation, Placement, Role
from testbed.traces.trace import TraceError

_MOST_NAMED = 12  # of what a file holds, in a message
MOST_RANKS = 4096
_IN_A_SERVER = 8  # ranks of a tensor-parallel group that share one
_TENSOR_PARALLEL = ("tensor", "tp")


@dataclass(frozen=True)
class Group:
    """A process group; ``workers`` of them, 0 if unknown. ``ranks`` are empty if they are not recorded."""

    name: str
    workers: int = 0
    description: str = field(default="", compare=False)
    ranks: tuple[int, ...] = field(default=(), compare=False)

    def called(self, name: str) -> bool:
        """Whether ``name`` is its name or description."""
        return name in (self.name, self.description)


NO_GROUP = Group("")


@dataclass(frozen=True)
class Found:
    """A process group of a file, and what it carries in all steps."""

    group: Group
    kinds: tuple[tuple[str, int], ...]  # and how many of each
    bytes: int
    chosen: bool


class InGroup(Protocol):
    """The candidates for `choose`: collectives, some with unknown sizes."""

    @property
    def group(self) -> Group: ...
    @property
    def kind(self) -> Kind | None: ...
    @property
    def bytes(self) -> int | None: ...


Some = TypeVar("Some", bound=InGroup)


def choose(collectives: Iterable[Some], wanted: str | None, path: Path) -> tuple[list[Some], list[Found]]:
    """The operations of the process group ``wanted``, and all groups there are; raises `TraceError`.

    None: of all that have several ranks; where it is unknown how many they have, of the one with the most bytes.
    """
    groups: defaultdict[Group, list[Some]] = defaultdict(list)
    for one in collectives:
        groups[one.group].append(one)
    size = {group: sum(one.bytes or 0 for one in its) for group, its in groups.items()}
    by_size = sorted(groups, key=lambda group: (group.workers != 1, size[group], len(groups[group])), reverse=True)
    chosen = [group for group in by_size if wanted is None or group.called(wanted)][:1]
    if not chosen:
        there = ", ".join(_called(group) for group in by_size[:_MOST_NAMED]) or "none"
        raise TraceError(f"{path} has no collective in a process group {quoted(wanted)}; its groups: {there}")
    several = [group for group in by_size if group.workers != 1]
    if wanted is None and several and all(group.workers for group in several):
        chosen = several
    found = [
        Found(group, tuple(Counter(str(one.kind) for one in groups[group]).most_common()), size[group], group in chosen)
        for group in by_size
    ]
    return [one for group in chosen for one in groups[group]], found


def about_groups(found: Sequence[Found]) -> list[str]:
    """The omissions, in sentences."""
    said = [
        f"process group {_called(one.group)} ({_ranks(one.group.workers)}, {sum(count for _, count in one.kinds)} collectives, "
        f"{Size(one.bytes)} in all profiled steps) was left out"
        for one in found
        if not one.chosen
    ]
    if any(one.chosen and one.group.workers == 1 for one in found):
        said.append(
            "its process group had one rank: the sizes and the computing were measured, no exchange was; how many "
            "workers there are is the experiment's choice"
        )
    return said


def _called(group: Group) -> str:
    return quoted(group.name) + (f" ({quoted(group.description)})" if group.description else "")


def _ranks(workers: int) -> str:
    return f"{workers} rank{'s' * (workers != 1)}" if workers else "unknown number of ranks"


@dataclass(frozen=True)
class Job:
    """All ranks of a job; of version 1, one list of operations for any number of them."""

    operations: tuple[Operation, ...]
    groups: Groups
    roles: tuple[Role, ...] = ()
    placement: Placement | None = None
    said: tuple[str, ...] = ()  # what is assumed

    @property
    def version(self) -> int:
        return 2 if self.groups or self.roles else 1


def job_of(
    operations: Sequence[Operation], groups: Sequence[Group], world: int, rank: int | None, peers: Mapping[str, str]
) -> Job:
    """The job of which ``rank`` does ``operations``, each in one of ``groups``; ``peers`` are those of messages, by operation.

    ``world`` is the number of ranks in the profile, 0 if it lacks it.
    """
    operations = [op if op.computes or op.group else msgspec.structs.replace(op, group=EVERY_RANK) for op in operations]
    groups = [replace(group, name=group.name or EVERY_RANK) for group in groups]
    usual = {"send": "next", "recv": "previous"}  # where the other rank is not known
    peers = {op.id: peers.get(op.id) or usual[op.kind] for op in operations if op.point_to_point}
    used = [group for group in groups if any(op.group == group.name for op in operations)]
    messages = {op.group for op in operations if op.point_to_point}
    collective = {op.group for op in operations if not op.point_to_point and not op.computes}
    together = [group for group in used if group.name in collective]
    unknown = [group for group in together if group.workers < 2]
    undirected = any(op.kind == "send_recv" for op in operations)
    if undirected or unknown or not used:
        return Job(tuple(_without_directions(operations)), {}, said=tuple(_about_directions(messages, unknown, used)))
    lists, said = layout(together, world)
    if not messages:
        plain = operations if len(together) > 1 else [msgspec.structs.replace(op, group=None) for op in operations]
        inside = tuple(group.name for group in together if is_tensor_parallel(group) and len(together) > 1)
        if len(together) > 1:
            said.append("all ranks are taken to do the same as the profiled one, each in its own groups")
        said += about_servers(inside)
        return Job(tuple(plain), lists, placement=Placement(inside) if inside else None, said=tuple(said))
    if not together and rank is not None and (ring := _rotated(operations, rank, world, peers)) is not None:
        return ring
    return _with_neighbours(operations, lists, peers, said)


def _about_directions(messages: set[str | None], unknown: Sequence[Group], used: Sequence[Group]) -> Iterator[str]:
    if messages:
        yield "sends and receives are taken to go from rank 0 to rank 1: their directions, or how many ranks the groups have, are unknown"
    if unknown and len(used) > 1:
        names = ", ".join(_called(group) for group in unknown)
        yield f"the number of ranks of process group {names} is unknown, so all groups are taken to be one: --group NAME imports one of them"


def _without_directions(operations: Sequence[Operation]) -> Iterator[Operation]:
    for op in operations:
        yield msgspec.structs.replace(op, group=None, splits=None, kind="send_recv" if op.point_to_point else op.kind)


def is_tensor_parallel(group: Group) -> bool:
    words = f"{group.name} {group.description}".lower().replace("_", " ").split()
    return any(word in _TENSOR_PARALLEL for word in words) and group.workers <= _IN_A_SERVER


def about_servers(inside: Iterable[str]) -> list[str]:
    """The assumptions on tensor-parallel groups."""
    return [f"group {quoted(name)} is taken to share a server, as tensor parallelism does" for name in inside]


def layout(groups: Sequence[Group], world: int) -> tuple[Groups, list[str]]:
    """The lists of ranks of each group, for all ranks."""
    groups = sorted(groups, key=lambda group: not is_tensor_parallel(group))
    recorded = [_grid(group.ranks) if len(group.ranks) == group.workers else None for group in groups]
    sizes = prod(group.workers for group in groups)
    known = [grid for grid in recorded if grid is not None]
    count = max((stride * size for stride, size in known), default=0)
    if len(known) == len(groups) and groups:
        while any(count % (stride * size) for stride, size in known) and count <= MOST_RANKS:
            count += max(stride * size for stride, size in known)
        orthogonal = len({stride for stride, _ in known}) == len(known)
        if count <= MOST_RANKS and (orthogonal or sizes != world):
            return {group.name: strided(count, *grid) for group, grid in zip(groups, known, strict=True)}, []
    if sizes > MOST_RANKS:
        names = ", ".join(_called(group) for group in groups)
        raise TraceError(
            f"its process groups ({names}) make {sizes} ranks, and {MOST_RANKS} is the limit. Import one of them with --group NAME"
        )
    found: Groups = {}
    stride = 1
    for group in groups:
        found[group.name] = strided(sizes, stride, group.workers)
        stride *= group.workers
    said = []
    if len(groups) > 1:
        names = ", ".join(f"{_called(group)} ({_ranks(group.workers)})" for group in groups)
        said.append(
            f"the groups' ranks do not say how the groups cross: they are taken to be a grid of {sizes} ranks, with neighbours in the first of {names}"
        )
    return found, said


def _grid(ranks: Sequence[int]) -> tuple[int, int] | None:
    """Stride and number of evenly spaced ranks; None: they are not."""
    strides = {after - before for before, after in pairwise(ranks)}
    if len(strides) != 1 or (stride := strides.pop()) < 1:
        return None
    return stride, len(ranks)


def strided(count: int, stride: int, size: int) -> tuple[tuple[int, ...], ...]:
    """The ranks in groups of ``size``, each ``stride`` apart."""
    return tuple(
        tuple(first + stride * place for place in range(size))
        for block in range(0, count, stride * size)
        for first in range(block, block + stride)
    )


def _rotated(operations: Sequence[Operation], rank: int, world: int, peers: Mapping[str, str]) -> Job | None:
    """A job whose ranks all do the same with their own neighbours, as in a ring; None if they would deadlock."""
    if not all(peers[op.id].isdecimal() for op in operations if op.point_to_point):
        return None
    numbers = {name: int(peer) for name, peer in peers.items()}
    count = max(world, rank + 1, *(peer + 1 for peer in numbers.values()))
    if count > MOST_RANKS:
        return None

    def own(place: int) -> tuple[Operation, ...]:
        return tuple(
            msgspec.structs.replace(
                op, group=None, peer=(numbers[op.id] - rank + place) % count if op.point_to_point else None
            )
            for op in operations
        )

    roles = tuple(Role(f"rank {place}", (place,), own(place)) for place in range(count))
    try:
        matching.check({}, roles)
    except ValueError:
        return None
    said = f"all {count} ranks are taken to do the same as rank {rank}, each with neighbours at the same distance"
    return Job((), {}, roles, said=(said,))


def _with_neighbours(
    operations: Sequence[Operation], lists: Groups, peers: Mapping[str, str], said: Sequence[str]
) -> Job:
    """A job of the profiled rank's stage and of one stage for each of its neighbours, which does what the messages need."""
    messages = sorted((op for op in operations if op.point_to_point), key=lambda op: op.kind == "send")
    labels = list(dict.fromkeys(peers[op.id] for op in messages))  # first those that it receives from
    each = max((len(one) * len(instances) for instances in lists.values() for one in instances), default=1)
    if each * (len(labels) + 1) > MOST_RANKS:
        raise TraceError(
            f"it exchanges messages with {len(labels)} ranks, which with its process groups makes more than {MOST_RANKS}: import one group with --group NAME"
        )
    stages = [*labels[:1], "", *labels[1:]]  # the profiled one is the second
    groups: Groups = {
        name: tuple(tuple(rank + each * stage for rank in one) for stage in range(len(stages)) for one in instances)
        for name, instances in lists.items()
    }
    used = next(op.group for op in operations if op.point_to_point) or "pp"
    name = used if used not in groups else f"{used}.messages"
    groups[name] = tuple(tuple(place + each * stage for stage in range(len(stages))) for place in range(each))
    here = stages.index("")
    roles = []
    for stage, label in enumerate(stages):
        ranks = tuple(range(stage * each, (stage + 1) * each))
        own = _profiled(operations, name, peers, {label: stages.index(label) - here for label in labels})
        if label:
            own = _mirrored(operations, name, peers, label, here - stage)
        roles.append(Role(f"neighbour {label}" if label else "profiled", ranks, tuple(own)))
    listed = ", ".join(labels[:_MOST_NAMED])
    return Job(
        (),
        groups,
        tuple(roles),
        said=(
            *said,
            f"the ranks that it sends to and receives from ({listed}) are taken to compute as the profiled one does; what they exchange with others is not replayed",
        ),
    )


def _profiled(
    operations: Sequence[Operation], group: str, peers: Mapping[str, str], steps: Mapping[str, int]
) -> Iterator[Operation]:
    for op in operations:
        yield msgspec.structs.replace(op, group=group, peer=f"{steps[peers[op.id]]:+d}") if op.point_to_point else op


def _mirrored(
    operations: Sequence[Operation], group: str, peers: Mapping[str, str], label: str, step: int
) -> Iterator[Operation]:
    """The operations of a neighbour: the other end of each message, when the profiled rank is ready for it."""
    left_out = {op.id for op in operations if op.point_to_point and peers[op.id] != label}
    sent = {op.id for op in operations if op.kind == "recv"}  # by the neighbour; its computing does not wait for it
    for op in operations:
        if op.id in left_out:
            continue
        after = tuple(name for name in op.after if name not in left_out and not (op.computes and name in sent))
        if op.point_to_point:
            op = msgspec.structs.replace(
                op, kind="recv" if op.kind == "send" else "send", group=group, peer=f"{step:+d}"
            )
        yield msgspec.structs.replace(op, after=after)

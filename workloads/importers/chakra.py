"""Chakra execution traces (MLCommons): protobuf, ``.et``.

A file is a ``GlobalMetadata`` message and then ``Node`` messages, each after its length
as a varint. The messages are described here by the field numbers of Chakra's
``schema/protobuf/et_def.proto``, and only as far as they are used. Nodes form a graph;
where they have no start times, as from Chakra's converters and generators, the graph is
carried out here: one stream of computing on the CPU and one on the GPU, one of
collectives, each node as soon as what it depends on has ended. Chakra's converter also
gives the type of a collective to the CPU's call of one (``c10d::broadcast_``), without
``comm_type`` and ``comm_size``: these are computing, and what they call is a node too.
"""

from __future__ import annotations

import heapq
import io
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from testbed.core.text import quoted
from testbed.traces.importing import Profile, Request
from testbed.traces.json_stream import LONGEST, Source, brief
from testbed.traces.process_groups import NO_GROUP, Group, choose
from testbed.traces.pytorch import iterations, kind_of, listed
from testbed.traces.steps import Exchange, Step
from testbed.traces.trace import Kind, TraceError

TITLE = "Chakra execution trace, protobuf (.et)"
USES = frozenset({"group", "iteration"})

_METADATA, _COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = 1, 4, 5, 6, 7  # NodeType
_KINDS: dict[int, Kind] = {  # CollectiveCommType
    0: "all_reduce",
    2: "all_gather",
    5: "broadcast",
    6: "all_to_all",
    7: "reduce_scatter",
    8: "reduce_scatter",  # …_BLOCK
}
_BARRIER = 9
_LATEST_US = 1 << 60
_MOST_RANKS = 1 << 24


def recognises(head: bytes, path: Path) -> bool:
    if path.suffixes[-1:] == [".et"] or path.suffixes[-2:] == [".et", ".gz"]:
        return True
    start, metadata = io.BytesIO(head), message("GlobalMetadata")
    try:
        size = _varint(start, path)
        metadata.ParseFromString(start.read(size))
    except (TraceError, DecodeError, OverflowError):
        return False
    return bool(metadata.version or any(attribute.name for attribute in metadata.attr))


def read(path: Path, request: Request) -> Profile:
    nodes = _read_nodes(path)
    ranges, said = iterations([(node.id, node.name) for node in nodes.values()], max(nodes) + 1)
    collectives = [node for node in nodes.values() if node.kind]
    calls = listed(node.name for node in nodes.values() if node.calls)
    if not collectives:
        if calls:
            raise TraceError(
                f"{path} has no collective that says what it exchanges: there are only the CPU's calls of some, without "
                f"'comm_type' and 'comm_size' ({calls}). Convert the host trace together with the GPU's, linked by "
                f"chakra_trace_link, or import the host trace itself"
            )
        raise TraceError(f"{path} has no collective: no node of type COMM_COLL_NODE, COMM_SEND_NODE or COMM_RECV_NODE")
    if calls:
        said.append(
            f"the CPU's calls of collectives are computing, not collectives: they have no 'comm_type' ({calls})"
        )
    if named := listed(node.name for node in collectives if node.by_name):
        said.append(f"kinds of collectives without 'comm_type' are taken from their names ({named})")
    chosen, groups = choose(collectives, request.group, path)
    ours = {node.id for node in chosen}
    if any(node.kind == "all_gather" for node in chosen):
        said.append("comm_size of an all-gather is taken to be the size of what is gathered, not of each part")
    timed = any(node.start_us for node in nodes.values())
    if not timed:
        said.append("the trace has no start times: they follow from durations and dependencies")
    steps = []
    numbers = sorted(nodes)
    for first, last in ranges:
        part = {number: nodes[number] for number in numbers[bisect_left(numbers, first) : bisect_left(numbers, last)]}
        followers = _followers(part)
        run = _recorded(part) if timed else _carried_out(part, followers, path)
        steps.append(_step(part, followers, run, ours))
    back_to_back = not any(step.duration_s for step in steps)
    if request.iteration is not None:
        if not back_to_back:
            raise TraceError(f"{path}: --iteration is for traces without any times, and this one has some")
        steps = [_with_period(step, request.iteration / 1e9) for step in steps]
        said.append(
            f"an iteration takes {request.iteration}, or as long as its exchanges do: the trace has no computing"
        )
    elif back_to_back:
        said.append(
            "the trace has no computing: its exchanges follow each other without a pause. --iteration 50ms gives it a period"
        )
    ranks = {node.rank for node in nodes.values() if node.rank is not None}
    if len(ranks) > 1:
        raise TraceError(
            f"{path}: its sends and receives are of ranks {listed(map(str, sorted(ranks)))}; a trace is of one rank"
        )
    rank = ranks.pop() if ranks else None
    peers = [int(node.peer) for node in nodes.values() if node.peer.isdecimal()]
    return Profile(steps, "Chakra execution trace", assumptions=tuple(said), groups=tuple(groups), rank=rank,
        world=max(peers, default=-1) + 1, back_to_back=back_to_back,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Node:
    """What matters of a node; a collective has a ``kind``, a node that takes no time is only a dependency."""

    id: int
    name: str
    start_us: int
    duration_us: int
    after: tuple[int, ...]
    stream: str  # that carries it out: "cpu", "gpu", "network"
    kind: Kind | None = None
    bytes: int | None = None
    group: Group = NO_GROUP
    peer: str = ""  # of a send or receive
    rank: int | None = None  # whose node it is, where a send or receive says so
    calls: bool = False  # the CPU's call of a collective
    by_name: bool = False  # its kind is a guess


@cache
def _messages() -> dict[str, type[Message]]:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    layouts: dict[str, list[tuple[str, int, int, str]]] = {
        "AttributeProto": [
            ("name", 1, field.TYPE_STRING, ""),
            ("double_val", 3, field.TYPE_DOUBLE, ""),
            ("float_val", 5, field.TYPE_FLOAT, ""),
            ("int32_val", 7, field.TYPE_INT32, ""),
            ("int64_val", 9, field.TYPE_INT64, ""),
            ("uint32_val", 11, field.TYPE_UINT32, ""),
            ("uint64_val", 13, field.TYPE_UINT64, ""),
            ("sint32_val", 15, field.TYPE_SINT32, ""),
            ("sint64_val", 17, field.TYPE_SINT64, ""),
            ("fixed32_val", 19, field.TYPE_FIXED32, ""),
            ("fixed64_val", 21, field.TYPE_FIXED64, ""),
            ("sfixed32_val", 23, field.TYPE_SFIXED32, ""),
            ("sfixed64_val", 25, field.TYPE_SFIXED64, ""),
            ("bool_val", 27, field.TYPE_BOOL, ""),
            ("string_val", 29, field.TYPE_STRING, ""),
        ],
        "GlobalMetadata": [
            ("version", 1, field.TYPE_STRING, ""),
            ("attr", 2, field.TYPE_MESSAGE, "AttributeProto"),
        ],
        "Node": [
            ("id", 1, field.TYPE_UINT64, ""),
            ("name", 2, field.TYPE_STRING, ""),
            ("type", 3, field.TYPE_INT32, ""),  # an enumeration there; the same on the wire
            ("ctrl_deps", 4, field.TYPE_UINT64, "repeated"),
            ("data_deps", 5, field.TYPE_UINT64, "repeated"),
            ("start_time_micros", 6, field.TYPE_UINT64, ""),
            ("duration_micros", 7, field.TYPE_UINT64, ""),
            ("attr", 10, field.TYPE_MESSAGE, "AttributeProto"),
        ],
    }
    for name, layout in layouts.items():
        described = file.message_type.add(name=name)
        value = name == "AttributeProto"
        if value:
            described.oneof_decl.add(name="value")
        for own, number, kind, of in layout:
            added = described.field.add(name=own, number=number, type=kind, label=field.LABEL_OPTIONAL)
            if of:
                added.label = field.LABEL_REPEATED
            if kind == field.TYPE_MESSAGE:
                added.type_name = f".ChakraProtoMsg.{of}"
            if value and number > 1:
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}")) for name in layouts
    }


def message(name: str) -> Any:
    """An empty ``GlobalMetadata``, ``Node`` or ``AttributeProto``."""
    return _messages()[name]()


def _varint(file: io.BufferedIOBase, path: Path) -> int | None:
    """The length before a message; None at the end of the file."""
    value = 0
    for index in range(10):
        byte = file.read(1)
        if not byte:
            if index:
                break
            return None
        value |= (byte[0] & 0x7F) << (7 * index)
        if byte[0] < 0x80:
            return value
    raise TraceError(f"{path} is cut off or no Chakra trace: a message's length is not complete")


def _read_messages(path: Path) -> Iterator[Any]:
    """All messages: the metadata, then the nodes."""
    with Source(path) as source:
        file = io.BufferedReader(source)
        name, count = "GlobalMetadata", 0
        while (size := _varint(file, path)) is not None:
            where = f"{path}: message {count} ({name})"
            if size > LONGEST:
                raise TraceError(f"{where} claims {size} bytes: this is no Chakra trace, or it is damaged")
            data = file.read(size)
            if len(data) < size:
                raise TraceError(f"{where} is cut off: {len(data)} of {size} bytes are there; copy the file again")
            source.progress()
            read = message(name)
            try:
                read.ParseFromString(data)
            except DecodeError as error:
                raise TraceError(f"{where} cannot be decoded: this is no Chakra trace, or it is damaged") from error
            yield read
            name, count = "Node", count + 1


def _read_nodes(path: Path) -> dict[int, _Node]:
    messages = _read_messages(path)
    if next(messages, None) is None:
        raise TraceError(f"{path} is empty")
    nodes: dict[int, _Node] = {}
    for raw in messages:
        node = _node(raw, path)
        if node.id in nodes:
            raise TraceError(f"{path}: two nodes have the id {node.id}; a trace is of one rank")
        nodes[node.id] = node
    if not nodes:
        raise TraceError(f"{path} has metadata and no nodes")
    return nodes


def _node(raw: Any, path: Path) -> _Node:
    where = f"{path}: node {raw.id} ({quoted(raw.name)})"
    for name in ("start_time_micros", "duration_micros"):
        if getattr(raw, name) > _LATEST_US:
            raise TraceError(f"{where}: {name!r} is {getattr(raw, name)}, which is beyond reason")
    attributes = {one.name: getattr(one, one.WhichOneof("value") or "name") for one in raw.attr}
    stream = "cpu" if attributes.get("is_cpu_op") else "gpu"
    kind, size, group, peer, rank = None, None, NO_GROUP, "", None
    untyped = raw.type == _COLLECTIVE and attributes.get("comm_type") is None
    calls = bool(untyped and attributes.get("is_cpu_op") and attributes.get("comm_size") is None)
    if raw.type in (_SEND, _RECEIVE, _COLLECTIVE) and not calls:
        stream = "network"
        kind = _kind(raw, attributes, where)
        size = attributes.get("comm_size")
        if kind and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
            found = "none" if size is None else repr(size)[:40]
            raise TraceError(f"{where}: 'comm_size' has to be a number of bytes, and it is {found}")
        if not size:  # nothing travels
            kind = None
        group = Group(str(attributes.get("pg_name", "")))
        peer, rank = _ends(raw, attributes, where)
    return _Node(
        raw.id, raw.name, raw.start_time_micros, 0 if raw.type == _METADATA else raw.duration_micros,
        (*raw.ctrl_deps, *raw.data_deps), stream, kind, size if kind else None, group, peer, rank, calls, untyped and kind is not None,
    )  # fmt: skip


def _kind(raw: Any, attributes: dict[str, Any], where: str) -> Kind | None:
    if raw.type != _COLLECTIVE:
        return "send" if raw.type == _SEND else "recv"
    code = attributes.get("comm_type")
    if code is None:
        if kind := kind_of(raw.name):
            return kind
        raise TraceError(
            f"{where}: it has no attribute 'comm_type', and its name is no collective's: what is exchanged?"
        )
    if code == _BARRIER:
        return None
    if code not in _KINDS:
        raise TraceError(
            f"{where}: 'comm_type' is {brief(code)}; of Chakra's collectives {sorted(_KINDS)} can be replayed"
        )
    return _KINDS[code]


def _ends(raw: Any, attributes: dict[str, Any], where: str) -> tuple[str, int | None]:
    """The other rank of a send or receive, in text, and this one; "next" and "previous" where they are not recorded."""
    if raw.type == _COLLECTIVE:
        return "", None
    names = ("comm_dst", "comm_src") if raw.type == _SEND else ("comm_src", "comm_dst")
    other, own = (attributes.get(name) for name in names)
    for name, value in zip(names, (other, own), strict=True):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_RANKS
        ):
            raise TraceError(f"{where}: {name!r} is {brief(value)}, which is no rank")
    if other is not None and other == own:
        raise TraceError(f"{where}: rank {own} sends to itself")
    return str(other) if other is not None else "next" if raw.type == _SEND else "previous", own


def _with_period(step: Step, period_s: float) -> Step:
    """A step that computes nothing, at most once in so long."""
    exchanges = tuple(replace(one, end_s=period_s) for one in step.exchanges)
    return replace(step, duration_s=period_s, exchanges=exchanges, beside_s=period_s)


@dataclass(frozen=True)
class _Run:
    """When each node ran, in microseconds."""

    start: dict[int, int]
    end: dict[int, int]
    ready: dict[int, int]  # when all that it waits for had ended; empty: not known


def _followers(nodes: dict[int, _Node]) -> dict[int, list[int]]:
    """Which nodes wait for each."""
    followers: defaultdict[int, list[int]] = defaultdict(list)
    for node in nodes.values():
        for before in set(node.after) - {node.id}:
            followers[before].append(node.id)
    return followers


def _recorded(nodes: dict[int, _Node]) -> _Run:
    ran = [node for node in nodes.values() if node.start_us or node.duration_us or node.kind]
    return _Run(
        {node.id: node.start_us for node in ran}, {node.id: node.start_us + node.duration_us for node in ran}, {}
    )


def _carried_out(nodes: dict[int, _Node], followers: dict[int, list[int]], path: Path) -> _Run:
    """The graph on its three streams; whoever is ready first goes first, then whoever has the lower number."""
    awaited = {node.id: sum(1 for number in set(node.after) - {node.id} if number in nodes) for node in nodes.values()}
    ready = [(0, number) for number, count in awaited.items() if not count]
    heapq.heapify(ready)
    since = dict.fromkeys(nodes, 0)
    free: defaultdict[str, int] = defaultdict(int)
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    while ready:
        since_us, number = heapq.heappop(ready)
        node = nodes[number]
        takes_part = node.duration_us or node.kind
        start[number] = max(since_us, free[node.stream]) if takes_part else since_us
        end[number] = start[number] + node.duration_us
        if takes_part:
            free[node.stream] = end[number]
        for follower in followers.get(number, ()):
            since[follower] = max(since[follower], end[number])
            awaited[follower] -= 1
            if not awaited[follower]:
                heapq.heappush(ready, (since[follower], follower))
    if len(start) < len(nodes):
        stuck = min(set(nodes) - set(start))
        raise TraceError(f"{path}: node {stuck} ({quoted(nodes[stuck].name)}) waits for itself, by its dependencies")
    return _Run(start, end, since)


def _step(nodes: dict[int, _Node], followers: dict[int, list[int]], run: _Run, ours: set[int]) -> Step:
    def in_order(numbers: Iterable[int]) -> list[int]:
        return sorted(numbers, key=lambda number: (run.start[number], number))

    begin, until = min(run.start.values(), default=0), max(run.end.values(), default=0)
    chosen = in_order(number for number in run.start if number in ours)
    computing = in_order(n for n in run.start if nodes[n].duration_us and nodes[n].stream != "network")
    place = {number: at for at, number in enumerate(computing)}
    latest_end = list(accumulate((run.end[number] for number in computing), max))
    exchanges = []
    for number in chosen:
        ready, end = run.ready.get(number, run.start[number]), run.end[number]
        awaited = None
        if awaiting := in_order(_awaiting(nodes, followers, run, number)):
            at = place[awaiting[0]]
            idle_from = latest_end[at - 1] if at else begin
            awaited = max(idle_from, ready) if idle_from < end else run.start[awaiting[0]]
        node = nodes[number]
        assert node.kind is not None and node.bytes is not None
        exchanges.append(
            Exchange(
                node.kind,
                node.bytes,
                (ready - begin) / 1e6,
                (end - begin) / 1e6,
                awaited_s=None if awaited is None else (awaited - begin) / 1e6,
                group=node.group.name,
                peer=node.peer,
            )
        )
    beside_us = 0
    if chosen:
        first, last = run.start[chosen[-1]], max(run.end[number] for number in chosen)
        inside = (min(run.end[number], last) - max(run.start[number], first) for number in computing)
        beside_us = min(last - first, sum(max(0, one) for one in inside))
    return Step((until - begin) / 1e6, tuple(exchanges), beside_us / 1e6)


def _awaiting(nodes: dict[int, _Node], followers: dict[int, list[int]], run: _Run, number: int) -> list[int]:
    """The computing that waits for a collective, directly or through what takes no time."""
    open_, seen, found = [number], {number}, []
    while open_:
        for follower in followers.get(open_.pop(), ()):
            if follower in seen:
                continue
            seen.add(follower)
            if nodes[follower].duration_us and nodes[follower].stream != "network":
                if follower in run.start and run.start[follower] >= run.start[number]:
                    found.append(follower)
            else:
                open_.append(follower)
    return found

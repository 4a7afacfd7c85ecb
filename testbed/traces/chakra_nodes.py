"""The nodes of Chakra execution traces: protobuf (``.et``), the JSON that ``chakra_jsonizer`` makes of it, and STAGE's JSON.

A file is a ``GlobalMetadata`` message and then ``Node`` messages, each after its length
as a varint. The messages are described here by the field numbers of Chakra's
``schema/protobuf/et_def.proto``, and only as far as they are used.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, Message

from testbed.core.text import quoted
from testbed.traces.json_stream import LINES, LONGEST, Source, brief, head, items
from testbed.traces.process_groups import NO_GROUP, Group
from testbed.traces.pytorch import kind_of
from testbed.traces.trace import Kind, TraceError

METADATA, LOAD, STORE, _COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = range(1, 8)  # NodeType
STORAGE = (8, 9, 10)  # reading and writing files
_KINDS: dict[int, Kind] = {  # CollectiveCommType
    0: "all_reduce",
    2: "all_gather",
    5: "broadcast",
    6: "all_to_all",
    7: "reduce_scatter",
    8: "reduce_scatter",  # …_BLOCK
}
_BARRIER = 9
# Names in STAGE's JSON.
_JSON_TYPES = {"comp_node": _COMPUTE, "coll_comm_node": _COLLECTIVE, "comm_send_node": _SEND, "comm_recv_node": _RECEIVE,
               "mem_load_node": LOAD, "mem_store_node": STORE}  # fmt: skip
_NODE_TYPES = {
    name: number
    for number, name in enumerate(
        ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE",
         "STORAGE_NODE", "BATCH_NODE", "CHECKPOINT_NODE")
    )
}  # fmt: skip
_JSON_KINDS = {"ALL_REDUCE": 0, "ALL_GATHER": 2, "BROADCAST": 5, "ALL_TO_ALL": 6, "REDUCE_SCATTER": 7}
_STAGE = "symbolic_tensor_network"
_LATEST_US = 1 << 60
_MOST_RANKS = 1 << 24
_MOST_WORK = {"num_ops": 1e20, "tensor_size": 1e15}


def is_trace(start: bytes) -> bool:
    """Whether a file begins as one of these does."""
    if start.lstrip()[:1] == b"{":
        return _is_of_stages_json(start) or any(f'"{name}"'.encode() in start for name in _NODE_TYPES)
    file, metadata = io.BytesIO(start), message("GlobalMetadata")
    try:
        size = _varint(file, Path())
        metadata.ParseFromString(file.read(size))
    except (TraceError, DecodeError, OverflowError):
        return False
    return bool(metadata.version or any(attribute.name for attribute in metadata.attr))


@dataclass(frozen=True, slots=True)
class ChakraNode:
    """The fields of a node; a collective has a ``kind``, a node that takes no time is only a dependency."""

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
    rank: int | None = None  # rank of the node, if a send or receive gives it
    calls: bool = False  # the CPU's call of a collective
    by_name: bool = False  # its kind is a guess
    type: int = 0  # NodeType
    work: tuple[float | None, int | None] = (None, None)  # operations, and bytes of memory
    tag: int = 0  # of a send or receive
    some_dimensions: bool = False  # of ASTRA-sim's topology take part, not all

    @property
    def by_work(self) -> bool:
        return self.work != (None, None) and not self.duration_us


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
            ("bool_list", 28, field.TYPE_MESSAGE, "BoolList"),
            ("string_val", 29, field.TYPE_STRING, ""),
        ],
        "BoolList": [("values", 1, field.TYPE_BOOL, "repeated")],
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
            if of and not value:
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
    raise TraceError(
        f"{path} is cut off, or is not a Chakra trace: the length of a message is incomplete. Copy the file again"
    )


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


def is_of_stage(path: Path) -> bool:
    """Whether STAGE wrote it, which counts elements and not bytes."""
    metadata = next(_read_any(path))
    return any(one.name == "schema" and one.string_val == _STAGE for one in metadata.attr)


def read_nodes(path: Path) -> dict[int, ChakraNode]:
    messages = _read_any(path)
    if next(messages, None) is None:
        raise TraceError(f"{path} is empty")
    nodes: dict[int, ChakraNode] = {}
    for raw in messages:
        node = _node(raw, path)
        if node.id in nodes:
            raise TraceError(f"{path}: two nodes have the id {node.id}. Give each rank a file of its own")
        nodes[node.id] = node
    if not nodes:
        raise TraceError(f"{path} has metadata and no nodes")
    return nodes


def _read_any(path: Path) -> Iterator[Any]:
    start = head(path)
    if start.lstrip()[:1] != b"{":
        return _read_messages(path)
    return _read_stages_json(path) if _is_of_stages_json(start) else _read_json(path)


def _is_of_stages_json(start: bytes) -> bool:
    return b'"node_type"' in start and any(f'"{name}"'.encode() in start for name in _JSON_TYPES)


def _read_json(path: Path) -> Iterator[Any]:
    """As `_read_messages`, of the objects that ``chakra_jsonizer`` writes one after the other."""
    for count, item in enumerate(items(path, LINES)):
        name = "Node" if count else "GlobalMetadata"
        if count and isinstance(item.get("type"), str):
            item["type"] = _NODE_TYPES.get(item["type"], 0)
        try:
            yield json_format.ParseDict(item, message(name), ignore_unknown_fields=True)
        except (json_format.ParseError, TypeError, ValueError, AttributeError) as error:
            raise TraceError(f"{path}: object {count} ({name}) does not fit Chakra's schema: {brief(item)}") from error


def _read_stages_json(path: Path) -> Iterator[Any]:
    """As `_read_messages`, of STAGE's JSON: ``{"nodes": [{"id": 1, "node_type": "comp_node", "num_ops": …}]}``."""
    metadata = message("GlobalMetadata")
    metadata.attr.add(name="schema", string_val=_STAGE)
    yield metadata
    for count, item in enumerate(items(path, "nodes")):
        where = f"{path}: node {count} of 'nodes'"
        kind = item.get("node_type")
        if not isinstance(kind, str) or kind not in _JSON_TYPES:
            raise TraceError(f"{where}: 'node_type' is {brief(kind)}; there are {', '.join(_JSON_TYPES)}")
        raw = message("Node")
        try:
            raw.id, raw.name, raw.type = item["id"], item.get("name", ""), _JSON_TYPES[kind]
            raw.data_deps.extend(item.get("data_deps") or ())
            raw.ctrl_deps.extend(item.get("ctrl_deps") or ())
            for name in ("num_ops", "tensor_size", "comm_size", "comm_tag", "comm_src", "comm_dst"):
                if item.get(name) is not None:
                    raw.attr.add(name=name, int64_val=item[name])
            if (group := item.get("comm_group", item.get("pg_name"))) is not None:
                raw.attr.add(name="pg_name", string_val=str(group))
            if "comm_type" in item:
                code = _JSON_KINDS.get(str(item["comm_type"]))
                if code is None:
                    raise TraceError(
                        f"{where}: 'comm_type' is {brief(item['comm_type'])}; there are {', '.join(_JSON_KINDS)}"
                    )
                raw.attr.add(name="comm_type", int64_val=code)
        except KeyError as error:
            raise TraceError(f"{where} has no {error}") from error
        except (TypeError, ValueError) as error:
            raise TraceError(
                f"{where} has a field that is no number, name or list of numbers: {brief(item)}"
            ) from error
        yield raw


def _node(raw: Any, path: Path) -> ChakraNode:
    where = f"{path}: node {raw.id} ({quoted(raw.name)})"
    for name in ("start_time_micros", "duration_micros"):
        if getattr(raw, name) > _LATEST_US:
            raise TraceError(f"{where}: {name!r} is {getattr(raw, name)}, which is implausible. Check the file")
    attributes = {one.name: getattr(one, one.WhichOneof("value") or "name") for one in raw.attr}
    stream = "cpu" if attributes.get("is_cpu_op") else "gpu"
    kind, size, group, peer, rank, tag = None, None, NO_GROUP, "", None, 0
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
        named = attributes.get("pg_name", attributes.get("comm_group", ""))
        group = Group(str(named) if isinstance(named, str | int) else "")
        peer, rank = _ends(raw, attributes, where)
        tag = attributes.get("comm_tag", 0)
    dimensions = getattr(attributes.get("involved_dim"), "values", ())
    return ChakraNode(
        raw.id, raw.name, raw.start_time_micros, 0 if raw.type == METADATA else raw.duration_micros,
        (*raw.ctrl_deps, *raw.data_deps), stream, kind, size if kind else None, group, peer, rank, calls, untyped and kind is not None,
        raw.type, _work(raw.type, attributes, where), tag if isinstance(tag, int) else 0, not all(dimensions),
    )  # fmt: skip


def _work(type: int, attributes: dict[str, Any], where: str) -> tuple[float | None, int | None]:
    """Operations and bytes of memory of a node that computes or moves memory; None: none."""
    if type not in (_COMPUTE, LOAD, STORE):
        return None, None
    for name, most in _MOST_WORK.items():
        value = attributes.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise TraceError(
                f"{where}: {name!r} is {brief(value)}; it has to be a number of at least 0, and within reason"
            )
    return float(attributes.get("num_ops", 0)) or None, int(attributes.get("tensor_size", 0)) or None


def _kind(raw: Any, attributes: dict[str, Any], where: str) -> Kind | None:
    if raw.type != _COLLECTIVE:
        return "send" if raw.type == _SEND else "recv"
    code = attributes.get("comm_type")
    if code is None:
        if kind := kind_of(raw.name):
            return kind
        raise TraceError(
            f"{where}: it has no attribute 'comm_type', and its name is not that of a collective. Add the attribute"
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

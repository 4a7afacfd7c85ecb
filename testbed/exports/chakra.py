"""Chakra execution traces (MLCommons), protobuf: one rank of a job, times in whole microseconds since 1970.

The messages are those of Chakra's ``schema/protobuf/et_def.proto``, version 0.0.4. A node ``ProfilerStep#k`` of type METADATA_NODE begins
each iteration. ``comm_size`` of an all-gather or reduce-scatter is the size of the complete tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from testbed.exports.timeline import COMPUTE, ITERATION, Slice
from testbed.traces.chakra_nodes import message

_VERSION = "0.0.4"
_METADATA, _COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = 1, 4, 5, 6, 7  # NodeType
_TYPES = {ITERATION: _METADATA, COMPUTE: _COMPUTE, "send": _SEND, "recv": _RECEIVE}
_COLLECTIVES = {
    "all_reduce": 0,
    "all_gather": 2,
    "broadcast": 5,
    "all_to_all": 6,
    "reduce_scatter": 7,
}  # CollectiveCommType


def content(slices: Sequence[Slice], epoch_us: int) -> bytes:
    """The file of one rank; ``epoch_us``: the start of the run, in microseconds since 1970."""
    metadata = message("GlobalMetadata")
    metadata.version = _VERSION
    return b"".join(_framed(one) for one in (metadata, *_nodes(slices, epoch_us)))


def _nodes(slices: Sequence[Slice], epoch_us: int) -> Iterator[Any]:
    step = 0
    known: dict[str, list[int]] = {}  # of the iteration, by operation
    for number, one in enumerate(slices, 1):
        if one.kind == ITERATION:
            step, known = number, {}
        else:
            known.setdefault(one.name, []).append(number)
        node = message("Node")
        node.id, node.type = number, _TYPES.get(one.kind, _COLLECTIVE)
        node.name = f"ProfilerStep#{one.iteration}" if one.kind == ITERATION else one.name
        start, end = (epoch_us + round(at * 1e6) for at in (one.start_s, one.end_s))
        node.start_time_micros, node.duration_micros = start, end - start
        node.attr.add(name="is_cpu_op", bool_val=False)
        if one.kind != ITERATION:
            before = [other for name in one.after for other in known.get(name, ()) if other < number]
            node.data_deps.extend(before or [step])
        if one.exchanges:
            _describe(node, one)
        yield node


def _describe(node: Any, one: Slice) -> None:
    node.attr.add(name="comm_size", int64_val=one.bytes or 0)
    node.attr.add(name="pg_name", string_val=one.group.name)
    if one.peer is None:
        node.attr.add(name="comm_type", int64_val=_COLLECTIVES[one.kind])
        return
    source, target = (one.rank, one.peer) if one.kind == "send" else (one.peer, one.rank)
    node.attr.add(name="comm_src", int32_val=source)
    node.attr.add(name="comm_dst", int32_val=target)
    node.attr.add(name="comm_tag", int32_val=0)


def _framed(one: Any) -> bytes:
    """A message after its length as a varint."""
    data: bytes = one.SerializeToString(deterministic=True)
    size, prefix = len(data), bytearray()
    while size > 0x7F:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*prefix, size]) + data

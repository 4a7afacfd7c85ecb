"""PyTorch host execution traces (``torch.profiler.ExecutionTraceObserver``): JSON, schema ``1.…-chakra.…``.

Nodes are numbered in the order in which they began, on whichever thread, so a step is a
range of numbers. Recent schemas have no times: then a step's computing is given by hand
and spread in proportion to the operators between collectives. Where nodes have ``ts``
and ``dur`` (older schemas, and traces linked with a Kineto one) these are used.

Collectives are ``record_param_comms`` nodes; where there are none, as with Gloo, those
named as a backend's annotations are (``gloo:all_reduce``). Sizes that a collective does
not name are those of its inputs.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from testbed.core.text import quoted
from testbed.traces.importing import Profile, Request
from testbed.traces.json_stream import brief, head, items, number
from testbed.traces.process_groups import NO_GROUP, Group, choose
from testbed.traces.pytorch import (
    ANNOTATION,
    WITHOUT_DATA,
    gathered_bytes,
    iterations,
    kind_of,
    listed,
    shapes_bytes,
    sizes_of,
    tensor_bytes,
)
from testbed.traces.steps import Exchange, Step
from testbed.traces.trace import Kind, TraceError

TITLE = "PyTorch execution trace (host), JSON of schema 1.…-chakra.…"
USES = frozenset({"group", "sizes", "ranks", "iteration"})

_SCHEMA = re.compile(rb'"schema"\s*:\s*"([^"\\]{0,80})"')
_GROUP_SIZE = re.compile(r'"group_size":\s*(\d{1,9})')  # in the node "## process_group:init ##"
_SIZES = ("in_msg_nelems", "out_msg_nelems", "dtype")


@dataclass(frozen=True, slots=True)
class _Node:
    """A node that may begin a step, or (``kind``) is a collective; times in microseconds, None where there are none."""

    id: int
    name: str
    start: float | None
    end: float | None
    kind: Kind | None = None
    bytes: int | None = None
    group: Group = NO_GROUP


def recognises(head: bytes, path: Path) -> bool:
    return head.lstrip()[:1] == b"{" and _SCHEMA.search(head) is not None and b'"traceEvents"' not in head


def read(path: Path, request: Request) -> Profile:
    found = _SCHEMA.search(head(path))
    schema = found[1].decode(errors="replace") if found else "none"
    if not re.match(r"1\.\d+\.\d+", schema):
        raise TraceError(
            f"{path} has schema {quoted(schema)}; execution traces of schema 1.… (1.1.0-chakra.0.0.4) can be read"
        )
    nodes = _read_nodes(path, request)
    marks, operators = nodes.marks, nodes.operators
    collectives, groups = choose(nodes.collectives, request.group, path) if nodes.collectives else ([], [])
    said: list[str] = []
    last_id = max([*operators, *(one.id for one in (*marks, *collectives))], default=0)
    ranges, about_steps = iterations([(mark.id, mark.name) for mark in marks], last_id + 1)
    by_step = [[one for one in collectives if first <= one.id < last] for first, last in ranges]
    if not any(by_step):
        raise TraceError(
            f"{path} has no collective that can be replayed in its {len(ranges)} steps. {_inventory(nodes)}"
        )
    missing = "they have neither " + ", ".join(map(repr, sorted(nodes.lacking))) + " nor inputs of known size"
    sizes, assumed = sizes_of(by_step, request, path, missing)
    by_step = [
        [replace(one, bytes=size) for one, size in zip(own, given, strict=False)]
        for own, given in zip(by_step, sizes, strict=True)
    ]
    said += nodes.said
    if nodes.lacking:
        said += assumed or ["collective sizes are those of the nodes' inputs"]
    if request.iteration is not None:
        steps = [
            _spread(
                own, operators[bisect_left(operators, first) : bisect_left(operators, last)], request.iteration / 1e9
            )
            for own, (first, last) in zip(by_step, ranges, strict=True)
        ]
        said.append(
            f"{request.iteration} of computing per step was given by hand and is spread in proportion to the number of "
            f"operators between collectives"
        )
    else:
        steps = [
            _timed(own, [mark for mark in marks if first <= mark.id < last], path)
            for own, (first, last) in zip(by_step, ranges, strict=True)
        ]
        said.append("the times of collectives are those of the CPU's calls")
    said.append("nothing but the end of a step is taken to wait for its collectives: the trace does not tell")
    return Profile(
        steps,
        f"PyTorch execution trace, schema {schema}",
        assumptions=(*about_steps, *said),
        groups=tuple(groups),
        timed=request.iteration is None,
    )


@dataclass
class _Nodes:
    """The used parts of a trace."""

    marks: list[_Node] = field(default_factory=list)  # with times, or that may begin a step
    collectives: list[_Node] = field(default_factory=list)
    operators: list[int] = field(default_factory=list)  # their numbers
    lacking: set[str] = field(default_factory=set)  # what collectives do not name
    unused: Counter[str] = field(default_factory=Counter)  # collectives that cannot be replayed, and why
    said: list[str] = field(default_factory=list)  # what is assumed about them


def _read_nodes(path: Path, request: Request) -> _Nodes:
    nodes = _Nodes()
    annotations: list[tuple[_Node, dict[str, Any], str]] = []
    group_sizes: set[int] = set()
    nothing = True
    for raw in items(path, "nodes"):
        nothing = False
        name = raw.get("name")
        if not isinstance(name, str):
            raise TraceError(f"{path}: a node's 'name' is {brief(name)}, which is not text")
        where = f"{path}: the node {brief(name)} with id {brief(raw.get('id'))}"
        attributes = _attributes(raw, where)
        node = _node(raw, name, where)
        if name == "record_param_comms":
            if collective := _collective(nodes, node, attributes, request, where):
                nodes.collectives.append(collective)
            continue
        if name == "## process_group:init ##":
            group_sizes |= {int(size) for size in _GROUP_SIZE.findall(str(_inputs(attributes, "values")))}
        if ANNOTATION.match(name):
            annotations.append((node, attributes, where))
        if attributes.get("op_schema"):
            nodes.operators.append(node.id)
        if node.start is not None or "#" in name:
            nodes.marks.append(node)
    if nothing:
        raise TraceError(f"{path} has no 'nodes', or none in it: is it an execution trace of PyTorch?")
    if not nodes.collectives and not nodes.unused:
        workers = group_sizes.pop() if len(group_sizes) == 1 else 0
        for node, attributes, where in annotations:
            told = {**attributes, "collective_name": ANNOTATION.sub("", node.name), "pg_size": workers}
            if collective := _collective(nodes, node, told, request, where):
                nodes.collectives.append(collective)
        if nodes.collectives:
            names = listed(node.name for node, *_ in annotations)
            nodes.said.append(f"collectives are the annotations of their backend ({names})")
    nodes.collectives.sort(key=lambda one: one.id)
    nodes.operators.sort()
    return nodes


def _inventory(nodes: _Nodes) -> str:
    there = [
        f"outside of its steps {listed(str(one.kind) for one in nodes.collectives)}" if nodes.collectives else "",
        f"left out {listed(nodes.unused)}" if nodes.unused else "",
    ]
    found = "; ".join(one for one in there if one)
    return (
        f"In the whole file: {found}."
        if found
        else (
            "In the whole file there is none at all: no record_param_comms node with a 'collective_name', no node such as "
            "gloo:all_reduce."
        )
    )


def _attributes(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """The content of ``attrs``; before schema 1.0.3 it was next to the name."""
    attributes = raw.get("attrs", [])
    if not isinstance(attributes, list) or not all(isinstance(one, dict) and "name" in one for one in attributes):
        raise TraceError(f"{where}: 'attrs' is {brief(attributes)}, which is not a list of names and values")
    return {**raw, **{str(one["name"]): one.get("value") for one in attributes}}


def _node(raw: dict[str, Any], name: str, where: str) -> _Node:
    start = end = None
    length = next((key for key in ("dur", "inclusive_dur") if raw.get(key) is not None), None)
    if raw.get("ts") is not None and length:
        start = number(raw, "ts", where)
        end = start + number(raw, length, where)
    return _Node(int(number(raw, "id", where)), name, start, end)


def _inputs(attributes: dict[str, Any], key: str) -> object:
    """``values``, ``shapes`` or ``types`` of a node's inputs, which older schemas write side by side."""
    inputs = attributes.get("inputs")
    if isinstance(inputs, dict):
        return inputs.get(key)
    return inputs if key == "values" else attributes.get(f"input_{key}")


def _collective(nodes: _Nodes, node: _Node, attributes: dict[str, Any], request: Request, where: str) -> _Node | None:
    name = attributes.get("collective_name")
    if name is None:  # older: its name stands among the inputs
        values = _inputs(attributes, "values")
        name = next((v for v in values if isinstance(v, str) and kind_of(v)), "") if isinstance(values, list) else ""
    if not isinstance(name, str):
        raise TraceError(f"{where}: 'collective_name' is {brief(name)}, which is not text")
    kind = kind_of(name)
    if kind is None or name in WITHOUT_DATA:
        if name not in ("", *WITHOUT_DATA):
            nodes.unused[f"{name} of a kind that cannot be replayed"] += 1
        return None
    missing = [key for key in _SIZES if key not in attributes]
    nodes.lacking.update(missing)
    workers = int(number(attributes, "pg_size", where)) if "pg_size" in attributes else 0
    workers = workers or request.ranks or 0
    if missing:
        size = shapes_bytes(_inputs(attributes, "shapes"), _inputs(attributes, "types"))
        size = gathered_bytes(kind, size, workers)
    else:
        elements_in, elements_out = (number(attributes, key, where) for key in _SIZES[:2])
        size = tensor_bytes(kind, elements_in, elements_out, attributes["dtype"], where)
    if size == 0:  # nothing travels
        nodes.unused[f"{name} of no bytes"] += 1
        return None
    return replace(node, kind=kind, bytes=size, group=Group(str(attributes.get("pg_name", "")), workers))


def _exchange(node: _Node, ready_s: float, end_s: float) -> Exchange:
    assert node.kind is not None
    return Exchange(node.kind, node.bytes or 0, ready_s, end_s, group=node.group.name)


def _spread(own: list[_Node], operators: list[int], computing_s: float) -> Step:
    """A step of ``computing_s``, evenly over its operators; the collectives take no time of it."""
    exchanges = []
    for one in own:
        ready_s = computing_s * bisect_left(operators, one.id) / max(1, len(operators))
        exchanges.append(_exchange(one, ready_s, ready_s))
    return Step(computing_s, tuple(exchanges))


def _timed(own: list[_Node], marks: list[_Node], path: Path) -> Step:
    times = [(one.start, one.end) for one in (*own, *marks) if one.start is not None and one.end is not None]
    if any(one.start is None for one in own) or not times:
        raise TraceError(
            f"{path}: its nodes have no 'ts' and 'dur' (execution traces of schema 1.0.3 and later have none). Say how "
            f"long a step computes with --iteration 222ms; it is spread over the operators."
        )
    begin, end = min(start for start, _ in times), max(end for _, end in times)
    exchanges = [
        _exchange(one, (one.start - begin) / 1e6, (one.end - begin) / 1e6)
        for one in sorted(own, key=lambda one: one.start or 0)
        if one.start is not None and one.end is not None
    ]
    return Step((end - begin) / 1e6, tuple(exchanges))

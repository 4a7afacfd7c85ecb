"""Chakra execution traces (MLCommons): protobuf, ``.et``.

Nodes (`testbed.traces.chakra_nodes`) form a graph; where they have no start times, as from Chakra's converters and generators, the graph is
run here: one stream of computing on the CPU and one on the GPU, one of
collectives, each node as soon as what it depends on has ended. Chakra's converter also
gives the type of a collective to the CPU's call of one (``c10d::broadcast_``), without
``comm_type`` and ``comm_size``: these are computing, and what they call is a node too.

Nodes may have work and no time (``num_ops``, ``tensor_size``), as STAGE (astra-sim/symbolic_tensor_graph) writes them, or only
exchange something, as ASTRA-sim's micro-benchmarks and custom collectives do. Then the graphs of all ranks are matched
(`testbed.traces.rank_graphs`), and work stays work. STAGE's JSON form holds the same nodes.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from testbed.core.text import quoted
from testbed.traces import rank_graphs
from testbed.traces.chakra_nodes import (
    LOAD,
    METADATA,
    STORAGE,
    STORE,
    ChakraNode,
    is_of_stage,
    is_trace,
    message,
    read_nodes,
)
from testbed.traces.importing import OPTIONS, JobProfile, Profile, Request
from testbed.traces.process_groups import Group, about_groups, choose, job_of
from testbed.traces.pytorch import iterations, listed
from testbed.traces.rank_files import ProcessGroups, groups_beside, rank_of, read_groups
from testbed.traces.steps import Exchange, Step
from testbed.traces.trace import TraceError

__all__ = ["message"]  # of `testbed.traces.chakra_nodes`

TITLE = "Chakra execution trace, protobuf (.et) or JSON"
USES = frozenset({"group", "iteration", "group_file", "ranks", "element_size"})
_MEASURED_BY = "Chakra execution trace"
_OF_GRAPHS = ("group_file", "ranks", "element_size")  # fields of a request


def recognises(head: bytes, path: Path) -> bool:
    if path.suffixes[-1:] == [".et"] or path.suffixes[-2:] == [".et", ".gz"]:
        return True
    return is_trace(head)


def read(path: Path, request: Request) -> Profile:
    return _profile(path, read_nodes(path), request)


def read_ranks(paths: list[Path], request: Request) -> list[Profile] | JobProfile:
    """The steps of each file; or all ranks together, where none of the files has start times and all are one step."""
    read: list[Profile | dict[int, ChakraNode]] = []
    for path in paths:
        nodes = read_nodes(path)
        read.append(nodes if _is_graph(nodes, request, alone=len(paths) == 1) else _profile(path, nodes, request))
    graphs = [one for one in read if isinstance(one, dict)]
    if len(graphs) < len(paths):
        if given := [OPTIONS[field] for field in _OF_GRAPHS if getattr(request, field) is not None]:
            raise TraceError(
                f"{paths[0]}: {given[0]} is for traces of work or of exchanges alone, and this one has times"
            )
        return [
            _profile(path, one, request) if isinstance(one, dict) else one
            for path, one in zip(paths, read, strict=True)
        ]
    if request.element_size is not None:
        graphs = [_in_bytes(nodes, request.element_size) for nodes in graphs]
    if request.iteration is not None:
        raise TraceError(f"{paths[0]}: --iteration is for a trace that has neither work nor times, of one rank")
    return _one_rank(paths[0], graphs[0], request) if len(paths) == 1 else _all_ranks(paths, graphs, request)


def _profile(path: Path, nodes: dict[int, ChakraNode], request: Request) -> Profile:
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
    return Profile(steps, _MEASURED_BY, assumptions=tuple(said), groups=tuple(groups), rank=rank,
        world=max(peers, default=-1) + 1, timed=timed, back_to_back=back_to_back,
    )  # fmt: skip


def _is_graph(nodes: dict[int, ChakraNode], request: Request, *, alone: bool) -> bool:
    """Whether it is one step of work or of exchanges alone, or, of several ranks, one without start times."""
    if any(node.start_us for node in nodes.values()):
        return False
    if any(node.name.startswith(("ProfilerStep#", "Optimizer.step#")) for node in nodes.values()):
        return False
    computing = [node for node in nodes.values() if node.stream != "network" and node.type != METADATA]
    if any(node.by_work for node in computing):
        return True
    streams = {node.stream for node in computing if node.duration_us}
    if alone:
        return not streams and (request.ranks is not None or request.group_file is not None)
    return not any(node.calls or node.by_name for node in nodes.values()) and len(streams) < 2


def _graph(nodes: dict[int, ChakraNode], path: Path, part: bool) -> dict[int, rank_graphs.Node]:
    """``part``: the size of an all-gather is that of each rank's part, as ASTRA-sim has it."""
    found = {}
    for number, node in nodes.items():
        if node.kind is not None:
            if node.some_dimensions:
                raise TraceError(
                    f"{path}: node {number} ({quoted(node.name)}) takes place in some dimensions of ASTRA-sim's topology ('involved_dim'), and a trace does "
                    f"not say which ranks these join. Write its process group (pg_name) into the trace"
                )
            peer = int(node.peer) if node.peer.isdecimal() else -1
            found[number] = rank_graphs.Node(
                node.name, node.after, node.kind, size=node.bytes or 0, of_each=part and node.kind == "all_gather",
                group=node.group.name, peer=peer, tag=node.tag,
            )  # fmt: skip
        elif node.by_work and node.stream != "network":
            flops, memory = node.work
            found[number] = rank_graphs.Node(node.name, node.after, "compute", flops=flops, memory_bytes=memory)
        elif node.duration_us and node.stream != "network":
            found[number] = rank_graphs.Node(node.name, node.after, "compute", duration_ns=1000 * node.duration_us)
        else:
            found[number] = rank_graphs.Node(node.name, node.after)
    return found


def _in_bytes(nodes: dict[int, ChakraNode], element: int) -> dict[int, ChakraNode]:
    """The same, where sizes are numbers of elements."""
    return {
        number: replace(
            node,
            bytes=None if node.bytes is None else node.bytes * element,
            work=(node.work[0], None if node.work[1] is None else node.work[1] * element),
        )
        for number, node in nodes.items()
    }


def _about_nodes(path: Path, graphs: Iterable[dict[int, ChakraNode]], request: Request) -> Iterator[str]:
    if request.element_size is not None:
        yield f"comm_size and tensor_size are taken to be numbers of elements of {request.element_size}"
    elif is_of_stage(path):
        yield (
            "warning: STAGE writes numbers of elements, which are taken to be bytes, as ASTRA-sim does. --element-size 2B says that an element has 16 bits"
        )
    nodes = [node for graph in graphs for node in graph.values()]
    if any(node.by_work for node in nodes):
        yield (
            "num_ops and tensor_size are taken to be floating-point operations and bytes of memory, as ASTRA-sim's roofline has them: --device or --peak "
            "turns them into time at the run"
        )
    if any(node.type in (LOAD, STORE) for node in nodes):
        yield "memory loads and stores are taken to go to the device's own memory"
    if any(node.kind and node.duration_us for node in nodes):
        yield "the durations of exchanges in the files are not used: how long they take follows from their bytes"
    if lost := listed(node.name for node in nodes if node.type in STORAGE):
        yield f"reading and writing files ({lost}) is left out"


def _all_ranks(paths: list[Path], graphs: list[dict[int, ChakraNode]], request: Request) -> JobProfile:
    """Files of one rank each, by the numbers in their names."""
    numbers = [rank_of(path) for path in paths]
    said = []
    if None in numbers or len(set(numbers)) < len(numbers):
        numbers = list(range(len(paths)))
        said.append(
            "files are taken to be of ranks 0, 1, … in the order given: their names do not end in numbers (trace.0.et)"
        )
    ranked = sorted(zip((number or 0 for number in numbers), paths, graphs, strict=True), key=lambda one: one[0])
    for place, (number, path, nodes) in enumerate(ranked):
        if number != place:
            raise TraceError(
                f"{path}: it is of rank {number}, and there is no file of rank {place}. Give the files of all ranks (ranks are 0, 1, 2, …), or that of one"
            )
        told = {node.rank for node in nodes.values() if node.rank is not None} - {number}
        if told:
            raise TraceError(
                f"{path}: its name says rank {number}, and its sends and receives are of rank {listed(map(str, sorted(told)))}"
            )
    if request.ranks is not None and request.ranks != len(paths):
        raise TraceError(
            f"{paths[0]}: --ranks {request.ranks} does not fit the {len(paths)} files, which are of one rank each"
        )
    file, named = _process_groups(paths[0], graphs, request)
    job, found = rank_graphs.job_of_ranks(
        [_graph(nodes, path, part=True) for _, path, nodes in ranked], [path for _, path, _ in ranked], named
    )
    if any(node.kind == "all_gather" for nodes in graphs for node in nodes.values()):
        said.append("comm_size of an all-gather is taken to be one rank's part, as ASTRA-sim has it")
    if file is not None:
        said.append(f"process groups have the ranks that {quoted(file.name)} lists")
    said += _about_nodes(paths[0], graphs, request)
    return JobProfile(job, f"{_MEASURED_BY}, {len(paths)} ranks", groups=found, rank=0, assumptions=tuple(said))


def _process_groups(
    path: Path, graphs: Iterable[dict[int, ChakraNode]], request: Request
) -> tuple[Path | None, ProcessGroups]:
    """A file's ranks of groups: the named one, or the one next to traces that name groups."""
    file = request.group_file
    names = {node.group.name for nodes in graphs for node in nodes.values() if node.kind and node.group.name}
    if file is None and names:
        file = groups_beside(path)
    return (file, read_groups(file)) if file is not None else (None, {})


def _one_rank(path: Path, nodes: dict[int, ChakraNode], request: Request) -> JobProfile:
    """A file of one rank, whose work the others are assumed to share."""
    rank = rank_of(path)
    file, named = _process_groups(path, [nodes], request)
    collectives = [node for node in nodes.values() if node.kind]
    if not collectives:
        raise TraceError(f"{path} has no collective: no node of type COMM_COLL_NODE, COMM_SEND_NODE or COMM_RECV_NODE")
    known = {}
    for name in {node.group.name for node in collectives}:
        ranks = _members(named.get(name, ()), rank)
        workers = len(ranks) or request.ranks or 0
        known[name] = Group(name, workers, ranks=ranks)
    sized = [
        replace(node, group=known[node.group.name], bytes=_whole(node, known[node.group.name])) for node in collectives
    ]
    chosen, groups = choose(sized, request.group, path)
    kept = {node.id: node for node in chosen}
    part = {
        number: kept.get(number, replace(node, kind=None, bytes=None) if node.kind else node)
        for number, node in nodes.items()
    }
    operations = rank_graphs.in_order(_graph(part, path, part=False), path)
    if any(op.point_to_point for op in operations):
        raise TraceError(
            f"{path}: it exchanges messages with other ranks, which do something else. Give the files of all ranks"
        )
    world = max((rank + 1 for lists in named.values() for one in lists for rank in one), default=0)
    job = job_of(operations, [one.group for one in groups if one.chosen], world, rank, {})
    said = [*_about_nodes(path, [nodes], request), *about_groups(groups)]
    if any(node.kind == "all_gather" for node in chosen):
        whole = all(node.group.workers for node in chosen if node.kind == "all_gather")
        said.append(
            "comm_size of an all-gather is taken to be one rank's part, as ASTRA-sim has it"
            if whole
            else "comm_size of an all-gather is taken to be the size of what is gathered, as how many ranks there are is unknown: --ranks says it"
        )
    if file is not None:
        said.append(f"process groups have the ranks that {quoted(file.name)} lists")
    return JobProfile(job, _MEASURED_BY, groups=tuple(groups), rank=rank, assumptions=tuple(said))


def _members(lists: tuple[tuple[int, ...], ...], rank: int | None) -> tuple[int, ...]:
    """The ranks of the group that this rank is in; of the first one if it is unknown which rank this is."""
    return next((one for one in lists if rank is None or rank in one), ())


def _whole(node: ChakraNode, group: Group) -> int:
    """The bytes of a tensor, where ASTRA-sim has those of each rank's part of an all-gather."""
    return (node.bytes or 0) * (max(1, group.workers) if node.kind == "all_gather" else 1)


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


def _followers(nodes: dict[int, ChakraNode]) -> dict[int, list[int]]:
    """Which nodes wait for each."""
    followers: defaultdict[int, list[int]] = defaultdict(list)
    for node in nodes.values():
        for before in set(node.after) - {node.id}:
            followers[before].append(node.id)
    return followers


def _recorded(nodes: dict[int, ChakraNode]) -> _Run:
    ran = [node for node in nodes.values() if node.start_us or node.duration_us or node.kind]
    return _Run(
        {node.id: node.start_us for node in ran}, {node.id: node.start_us + node.duration_us for node in ran}, {}
    )


def _carried_out(nodes: dict[int, ChakraNode], followers: dict[int, list[int]], path: Path) -> _Run:
    """The graph on its three streams; the first ready node goes first, then the node with the lower number."""
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


def _step(nodes: dict[int, ChakraNode], followers: dict[int, list[int]], run: _Run, ours: set[int]) -> Step:
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


def _awaiting(nodes: dict[int, ChakraNode], followers: dict[int, list[int]], run: _Run, number: int) -> list[int]:
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

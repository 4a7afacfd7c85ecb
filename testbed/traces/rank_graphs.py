"""Graphs of what each rank does, without times, become a job: groups, roles, and operations in an order that can happen.

The k-th collective of a process group is the same one on all of its members, and the k-th send from one rank to another with a tag
belongs to the k-th receive there, in the order of the files (`testbed.traces.matching`). Nodes are put into the order in which they begin on
nominal devices: of all that is ready there, what comes first in its file goes first.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from testbed.core.text import quoted, shown
from testbed.core.units import Duration, Size
from testbed.traces import ordering
from testbed.traces.matching import EVERY_RANK, MOST_STEPS
from testbed.traces.operations import Groups, Kind, Operation, Role
from testbed.traces.process_groups import Found, Group, Job
from testbed.traces.rank_files import ProcessGroups
from testbed.traces.trace import TraceError

_MOST_NAMED = 6
_NOMINAL_FLOPS, _NOMINAL_MEMORY, _NOMINAL_NETWORK = 100e12, 1e12, 12.5e9  # a second: by these nodes are ordered
_MOST_WAITS = 5_000_000  # pairs of operations that wait for each other, of all ranks


@dataclass(frozen=True, slots=True)
class Node:
    """The operation of a rank at one place of its graph; without a ``kind`` it only orders others."""

    name: str  # in messages
    after: tuple[int, ...] = ()  # numbers of nodes of the same rank
    kind: Kind | None = None
    duration_ns: int = 0  # of a compute, by time
    flops: float | None = None  # or by work
    memory_bytes: int | None = None
    size: int = 0  # bytes
    of_each: bool = False  # whether the size is that of each member's part
    group: str = ""  # "": all ranks
    peer: int = -1  # of a message
    tag: int = 0


Graph = Mapping[int, Node]  # by number, in the order of the file
Instance = tuple[str, tuple[int, ...]]  # a process group of the files, and its ranks
_Key = tuple[int, int]  # rank and number


@dataclass(frozen=True)
class _Exchange:
    """Nodes that are one exchange: of the members of a group, or of a sender and its receiver."""

    instance: Instance | None
    keys: tuple[_Key, ...]


def job_of_ranks(graphs: Sequence[Graph], files: Sequence[Path], named: ProcessGroups) -> tuple[Job, tuple[Found, ...]]:
    """The job of all ranks, and its process groups; raises `TraceError` if the ranks do not fit each other.

    ``named`` are the groups that a file lists. A group that it lacks has the ranks whose graphs name it.
    """
    return _Ranks(graphs, files, named).job()


def in_order(graph: Graph, file: Path) -> list[Operation]:
    """The operations of one rank; its peers and the other members of its groups are unknown."""
    found = _Ranks([graph], [file], {}, alone=True)
    return found.operations(0, found.order()[0], {})


class _Streams:
    """Simulated execution, on each stream one after the other: of the ready operations, the first in the file."""

    def __init__(self) -> None:
        self.ready: defaultdict[object, list[tuple[int, _Key, float]]] = defaultdict(list)
        self.busy: set[object] = set()
        self.ends: list[tuple[float, int, _Key, object]] = []
        self.begun: list[_Key] = []

    def add(self, stream: object, priority: int, head: _Key, seconds: float) -> None:
        heapq.heappush(self.ready[stream], (priority, head, seconds))

    def begin(self, streams: Iterable[object], now: float) -> None:
        """Go on where a stream is free."""
        for stream in streams:
            if stream not in self.busy and self.ready[stream]:
                _, head, seconds = heapq.heappop(self.ready[stream])
                self.busy.add(stream)
                self.begun.append(head)
                heapq.heappush(self.ends, (now + seconds, len(self.begun), head, stream))

    def end(self) -> tuple[float, _Key, object]:
        now, _, head, stream = heapq.heappop(self.ends)
        self.busy.discard(stream)
        return now, head, stream


class _Ranks:
    def __init__(
        self, graphs: Sequence[Graph], files: Sequence[Path], named: ProcessGroups, alone: bool = False
    ) -> None:
        total = sum(map(len, graphs))
        if total > MOST_STEPS:
            raise TraceError(
                f"{files[0]}: its ranks have {total:,} nodes together, but the limit of one iteration is {MOST_STEPS:,}. "
                f"Generate fewer layers or micro-batches"
            )
        self.graphs, self.files, self.named, self.alone = graphs, files, named, alone
        self.place = [{number: at for at, number in enumerate(graph)} for graph in graphs]
        self.members = {} if alone else self._members()
        self.exchanges = [] if alone else [*self._collectives(), *self._messages()]
        self.waits = [self._waits(graph, file) for graph, file in zip(graphs, files, strict=True)]

    def where(self, rank: int, number: int) -> str:
        return f"{self.files[rank]}: node {number} ({quoted(self.graphs[rank][number].name)})"

    def _members(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """The ranks of the group that a rank means by a name."""
        count = len(self.graphs)
        users: defaultdict[str, list[int]] = defaultdict(list)
        for rank, graph in enumerate(self.graphs):
            for name in {node.group for node in graph.values() if _is_collective(node)}:
                users[name].append(rank)
        found: dict[tuple[str, int], tuple[int, ...]] = {}
        for name, ranks in users.items():
            lists = self.named.get(name, (tuple(ranks),) if name else (tuple(range(count)),))
            for rank in ranks:
                own = next((one for one in lists if rank in one), None)
                if own is None:
                    raise TraceError(
                        f"{self.files[rank]}: process group {quoted(name)} has the ranks {_listed(lists[0])}, and rank {rank} uses it. "
                        f"Is the process-group file that of these traces?"
                    )
                if max(own) >= count:
                    raise TraceError(
                        f"{self.files[rank]}: process group {quoted(name)} has rank {max(own)}, and there are files of ranks 0 to {count - 1}. "
                        f"Give the files of all ranks, or that of one"
                    )
                found[name, rank] = own
        return found

    def _collectives(self) -> Iterator[_Exchange]:
        sequences: dict[Instance, dict[int, list[int]]] = {}
        for rank, graph in enumerate(self.graphs):
            for number, node in graph.items():
                if _is_collective(node):
                    instance = node.group, self.members[node.group, rank]
                    sequences.setdefault(instance, {}).setdefault(rank, []).append(number)
        for instance, own in sequences.items():
            name, members = instance
            for count, numbers in enumerate(zip_longest(*(own.get(rank, []) for rank in members))):
                keys = tuple(
                    (rank, number) for rank, number in zip(members, numbers, strict=True) if number is not None
                )
                first = self.graphs[keys[0][0]][keys[0][1]]
                if len(keys) < len(members):
                    missing = next(rank for rank, number in zip(members, numbers, strict=True) if number is None)
                    raise TraceError(
                        f"{self.where(*keys[0])}: it is collective {count} of process group {quoted(name)}, and rank {missing} has only {count} of them. "
                        f"All ranks of a group must execute the same ones"
                    )
                for rank, number in keys[1:]:
                    other = self.graphs[rank][number]
                    if (other.kind, other.size, other.of_each) != (first.kind, first.size, first.of_each):
                        raise TraceError(
                            f"{self.where(rank, number)}: collective {count} of process group {quoted(name)} is {other.kind} of {other.size} bytes here and "
                            f"{first.kind} of {first.size} bytes on rank {keys[0][0]}. All ranks of a group must execute the same ones in the same order"
                        )
                yield _Exchange(instance, keys)

    def _messages(self) -> Iterator[_Exchange]:
        sends: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        receives: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        for rank, graph in enumerate(self.graphs):
            for number, node in graph.items():
                if node.kind not in ("send", "recv"):
                    continue
                if not 0 <= node.peer < len(self.graphs) or node.peer == rank:
                    raise TraceError(
                        f"{self.where(rank, number)}: rank {rank} has no peer {node.peer}: there are files of ranks 0 to {len(self.graphs) - 1}. "
                        f"Give the files of all ranks"
                    )
                if node.kind == "send":
                    sends[rank, node.peer, node.tag].append(number)
                else:
                    receives[node.peer, rank, node.tag].append(number)
        for source, target, tag in dict.fromkeys((*sends, *receives)):
            key = source, target, tag
            for sent, received in zip_longest(sends[key], receives[key]):
                if sent is None or received is None:
                    lone = (target, received) if sent is None else (source, sent)
                    other = "send" if sent is None else "receive"
                    raise TraceError(
                        f"{self.where(*lone)}: the {other} that belongs to it is missing: rank {source} sends {len(sends[key])} messages with tag {tag} to "
                        f"rank {target}, which receives {len(receives[key])}"
                    )
                sizes = self.graphs[source][sent].size, self.graphs[target][received].size
                if sizes[0] != sizes[1]:
                    raise TraceError(
                        f"{self.where(source, sent)}: it sends {sizes[0]} bytes to rank {target}, whose receive (node {received}) has {sizes[1]}. "
                        f"Messages from one rank to another with one tag are matched in their order"
                    )
                yield _Exchange(None, ((source, sent), (target, received)))

    def _waits(self, graph: Graph, file: Path) -> dict[int, tuple[int, ...]]:
        """The predecessors of each node. A receive has none: its followers wait for them instead, as data may come in earlier."""
        handed: dict[int, tuple[int, ...]] = {}
        found: dict[int, tuple[int, ...]] = {}
        total = 0
        for number in _topological(graph, file):
            before: dict[int, None] = {}
            for one in graph[number].after:
                if one in graph and one != number:
                    before[one] = None
                    before.update(dict.fromkeys(handed.get(one, ())))
            total += len(before)
            if total > _MOST_WAITS:
                raise TraceError(f"{file}: its nodes have too many dependencies ({_MOST_WAITS:,} are the most)")
            found[number] = tuple(before)
            if graph[number].kind == "recv":
                handed[number], found[number] = found[number], ()
        return found

    def order(self) -> list[list[int]]:
        """The nodes of each rank as they would begin on nominal devices; raises `TraceError` if some can never run."""
        joined = {key: at for at, one in enumerate(self.exchanges) for key in one.keys}
        vertices: dict[_Key, tuple[_Key, ...]] = {}
        for rank, graph in enumerate(self.graphs):
            for number in graph:
                key = rank, number
                vertices[key] = self.exchanges[joined[key]].keys if key in joined else (key,)
        heads = {keys[0]: keys for keys in vertices.values()}
        followers: defaultdict[_Key, list[_Key]] = defaultdict(list)
        awaited: Counter[_Key] = Counter()
        for key, keys in vertices.items():
            for number in self.waits[key[0]][key[1]]:
                followers[vertices[key[0], number][0]].append(keys[0])
                awaited[keys[0]] += 1
        streams = _Streams()

        def release(heads_: Iterable[_Key]) -> list[object]:
            """Start these, and the operations that wait for those that take no time; returns streams with more to do."""
            open_ = deque(heads_)
            grown: dict[object, None] = {}
            while open_:
                head = open_.popleft()
                stream, seconds = self._nominal(heads[head])
                if stream is not None:
                    streams.add(stream, self._priority(heads[head]), head, seconds)
                    grown[stream] = None
                    continue
                streams.begun.append(head)
                open_.extend(unlocked(head))
            return list(grown)

        def unlocked(head: _Key) -> Iterator[_Key]:
            for follower in followers.get(head, ()):
                awaited[follower] -= 1
                if not awaited[follower]:
                    yield follower

        streams.begin(release([head for head in heads if not awaited[head]]), 0.0)
        while streams.ends:
            now, head, stream = streams.end()
            streams.begin([stream, *release(unlocked(head))], now)
        if len(streams.begun) < len(heads):
            stuck = min(head for head in heads if awaited[head] > 0)
            raise TraceError(
                f"{self.where(*stuck)}: it waits for itself, by the dependencies of its ranks and the order of their exchanges"
            )
        found: list[list[int]] = [[] for _ in self.graphs]
        for head in streams.begun:
            for rank, number in heads[head]:
                found[rank].append(number)
        return found

    def _priority(self, keys: Iterable[_Key]) -> int:
        return min(self.place[rank][number] for rank, number in keys)

    def _nominal(self, keys: Sequence[_Key]) -> tuple[object, float]:
        """The stream of a node, which runs its nodes in order, and the time on nominal devices. None: it has no stream."""
        rank, number = keys[0]
        node = self.graphs[rank][number]
        if node.kind is None:
            return None, 0.0
        if node.kind == "compute":
            work = max((node.flops or 0) / _NOMINAL_FLOPS, (node.memory_bytes or 0) / _NOMINAL_MEMORY)
            return rank, work or node.duration_ns / 1e9
        if node.kind in ("send", "recv"):
            return (node.kind, rank, node.peer), node.size / _NOMINAL_NETWORK
        return (node.group, min(keys)[0]), node.size / _NOMINAL_NETWORK

    def operations(self, rank: int, order: Sequence[int], names: Mapping[Instance, str]) -> list[Operation]:
        """The operations of a rank, each after those that it waits for and that do not go before it anyway."""
        graph = self.graphs[rank]
        ids: dict[int, str] = {}
        streams: dict[int, str] = {}
        place: dict[int, int] = {}
        behind: dict[int, tuple[int, ...]] = {}  # operations that a node stands for: itself, or those that it waits for
        found: list[Operation] = []
        counts: Counter[str] = Counter()
        waits = 0
        for number in order:
            node = graph[number]
            stream = "" if node.kind is None else self._stream(node)
            latest: dict[str, int] = {}
            for one in self.waits[rank][number]:
                for other in behind[one]:
                    own = streams[other]
                    if own not in latest or place[latest[own]] < place[other]:
                        latest[own] = other
            if node.kind is None or self._lonely(rank, node):
                behind[number] = tuple(latest.values())
                waits += len(latest)
                if waits > _MOST_WAITS:
                    raise TraceError(
                        f"{self.files[rank]}: its nodes have too many dependencies ({_MOST_WAITS:,} are the most)"
                    )
                continue
            latest.pop(stream, None)
            counts[node.kind] += 1
            ids[number], streams[number], place[number] = f"{node.kind}{counts[node.kind]}", stream, len(found)
            behind[number] = (number,)
            after = tuple(ids[one] for one in sorted(latest.values(), key=lambda one: place[one]))
            found.append(self._operation(rank, node, ids[number], after, names))
        return found

    def _stream(self, node: Node) -> str:
        if node.kind == "compute":
            return "compute"
        return f"{node.kind} {node.peer}" if node.kind in ("send", "recv") else f"group {node.group}"

    def _lonely(self, rank: int, node: Node) -> bool:
        return not self.alone and _is_collective(node) and len(self.members[node.group, rank]) == 1

    def _operation(
        self, rank: int, node: Node, name: str, after: tuple[str, ...], names: Mapping[Instance, str]
    ) -> Operation:
        assert node.kind is not None
        members = self.members.get((node.group, rank), ()) if _is_collective(node) else ()
        size = node.size * len(members) if node.of_each and members else node.size
        if max(size, node.memory_bytes or 0) > Size.limit or node.duration_ns > Duration.limit:
            raise TraceError(
                f"{self.files[rank]}: node {quoted(node.name)}: its {node.kind} is implausible. Check the file"
            )
        if node.kind == "compute":
            timed = node.flops is None and node.memory_bytes is None
            return Operation(
                id=name,
                kind="compute",
                duration=Duration(node.duration_ns) if timed else None,
                flops=node.flops,
                memory_bytes=None if node.memory_bytes is None else Size(node.memory_bytes),
                after=after,
            )
        if node.kind in ("send", "recv"):
            peer = node.peer if self.alone else f"{node.peer - rank:+d}"
            return Operation(id=name, kind=node.kind, bytes=Size(node.size), peer=peer, tag=node.tag, after=after)
        group = (
            node.group or None if self.alone else names[node.group, members] if len(set(names.values())) > 1 else None
        )
        return Operation(id=name, kind=node.kind, bytes=Size(size), group=group, after=after)

    def job(self) -> tuple[Job, tuple[Found, ...]]:
        orders = self.order()
        names, said = self._names()
        lists: dict[str, list[tuple[int, ...]]] = {}
        for (_, members), name in names.items():
            lists.setdefault(name, []).append(members)
        roles: dict[tuple[Operation, ...], list[int]] = {}
        for rank, order in enumerate(orders):
            operations = tuple(self.operations(rank, order, names))
            if not operations:
                raise TraceError(
                    f"{self.files[rank]}: rank {rank} neither computes nor exchanges anything. Remove its file"
                )
            roles.setdefault(operations, []).append(rank)
        groups: Groups = {name: tuple(sorted(instances)) for name, instances in lists.items()}
        if not groups and len(self.graphs) == 1:
            raise TraceError(
                f"{self.files[0]}: it is the only rank, and exchanges nothing with others. Give the files of all ranks"
            )
        found = tuple(self._found(name, instances, names) for name, instances in groups.items())
        if len(roles) == 1 and groups and _all_ranks(groups) == len(self.graphs):
            return Job(next(iter(roles)), groups, said=tuple(said)), found
        made = tuple(Role(_role_name(ranks), tuple(ranks), operations) for operations, ranks in roles.items())
        return Job((), groups, made, said=tuple(said)), found

    def _names(self) -> tuple[dict[Instance, str], list[str]]:
        """A name for each process group with several ranks: groups of the same shape share one if no rank is in two of them."""
        carried: dict[Instance, tuple[tuple[Kind | None, int], ...]] = {}
        for one in self.exchanges:
            if one.instance is not None and len(one.instance[1]) > 1:
                node = self.graphs[one.keys[0][0]][one.keys[0][1]]
                carried[one.instance] = (*carried.get(one.instance, ()), (node.kind, node.size))
        together: list[tuple[list[Instance], set[int]]] = []
        for instance in sorted(carried, key=lambda one: _natural(one[0])):
            name, members = instance
            alike = [
                (instances, ranks)
                for instances, ranks in together
                if _shape(instances[0][1]) == _shape(members) and ranks.isdisjoint(members)
            ]
            alike.sort(key=lambda one: (one[0][0][0] != name, carried[one[0][0]] != carried[instance]))
            if alike:
                alike[0][0].append(instance)
                alike[0][1].update(members)
            else:
                together.append(([instance], set(members)))
        names: dict[Instance, str] = {}
        said = []
        for instances, _ in together:
            own = list(dict.fromkeys(name for name, _ in instances))
            label = own[0] or EVERY_RANK
            while label in names.values():
                label += "'"
            names.update(dict.fromkeys(instances, label))
            if len(own) > 1:
                said.append(
                    f"process groups {_listed(own)} of the files have the same shape and no rank in common: they are the lists of group {quoted(label)}"
                )
        return names, said

    def _found(self, name: str, instances: Sequence[tuple[int, ...]], names: Mapping[Instance, str]) -> Found:
        kinds: Counter[str] = Counter()
        size = 0
        for one in self.exchanges:
            if one.instance is not None and names.get(one.instance) == name:
                node = self.graphs[one.keys[0][0]][one.keys[0][1]]
                kinds[str(node.kind)] += 1
                size += node.size * (len(one.instance[1]) if node.of_each else 1)
        lists = f"{len(instances)} lists of ranks" if len(instances) > 1 else ""
        group = Group(name, len(instances[0]), description=lists, ranks=instances[0])
        return Found(group, tuple(kinds.most_common()), size, chosen=True)


def _topological(graph: Graph, file: Path) -> list[int]:
    numbers = list(graph)
    places = {number: place for place, number in enumerate(numbers)}
    waits = [{places[one] for one in node.after if one in graph and one != number} for number, node in graph.items()]
    found = [numbers[place] for place in ordering.in_order(waits)]
    if len(found) < len(graph):
        stuck = min(set(graph) - set(found))
        raise TraceError(f"{file}: node {stuck} ({quoted(graph[stuck].name)}) waits for itself, by its dependencies")
    return found


def _is_collective(node: Node) -> bool:
    return node.kind not in (None, "compute", "send", "recv")


def _shape(members: Sequence[int]) -> tuple[int, ...]:
    return tuple(rank - members[0] for rank in members)


def _all_ranks(groups: Groups) -> int:
    return len({rank for instances in groups.values() for one in instances for rank in one})


def _natural(name: str) -> tuple[int, int, str]:
    return (0, int(name), "") if name.isdecimal() and len(name) < 10 else (1, 0, name)


def _role_name(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return f"ranks {_listed(ranks)}"


def _listed(some: Iterable[object]) -> str:
    texts = [shown(str(one), 40) for one in some]
    return ", ".join(texts[:_MOST_NAMED]) + (", …" if len(texts) > _MOST_NAMED else "")

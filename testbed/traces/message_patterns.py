"""A job given as single messages and computes of its ranks: which messages are a collective, and the trace that all of them make.

Recognised is what can be nothing else, among three ranks or more:

- a ring: each rank passes on to the next one what has come from the one before, in n − 1 rounds (an all-gather, or a reduce-scatter if it
  computes in between) or 2(n − 1) rounds (an all-reduce), all messages of one size;
- an all-to-all: each rank sends one message of the same size to each other one, none of them waiting for another.

Nothing outside may wait for a part of it, or be waited for by a part of it alone. What a ring computes between its rounds is computed after
it, which takes as long in all. Everything else stays a send and a receive.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from testbed.core.units import Duration, Size
from testbed.traces import matching
from testbed.traces.operations import Groups, Kind, Operation, Role
from testbed.traces.ordering import in_order
from testbed.traces.process_groups import Found, Group, Job
from testbed.traces.trace import TraceError

FEWEST = 3  # ranks of a pattern: two that answer each other may be anything
MOST_DEPENDENCIES = 4_000_000
MOST_PASSED_ON = 2_000_000  # replacements of receives, counted each time they are visited
_RATE_BPS = 10**10  # by which operations of a rank are put in order
_MOST_NAMED = 5
Compute, Send, Recv = "compute", "send", "recv"

# A node of a job: a task by number and rank, a collective by its place, or what a rank computes between the rounds of one.
_TASK, _WHOLE, _REST = range(3)
_Node = tuple[int, int, int]


@dataclass(slots=True)
class Task:
    """A compute, or one end of a message."""

    rank: int
    kind: Literal["compute", "send", "recv"]
    amount: int  # nanoseconds, or bytes
    peer: int = -1
    tag: int = 0
    stream: int = 0  # computes of one stream run one after the other
    line: int = 0  # of the file
    after: set[int] = field(default_factory=set)  # tasks that have ended before it begins
    started: set[int] = field(default_factory=set)  # tasks that have begun before it begins

    @property
    def computes(self) -> bool:
        return self.kind == Compute

    def __str__(self) -> str:
        return f"{self.kind} in line {self.line} (rank {self.rank})"


@dataclass(frozen=True)
class Collective:
    """Tasks that are one collective."""

    kind: Kind
    members: tuple[int, ...]  # in the order of the ring
    bytes: int
    parts: Mapping[int, frozenset[int]]  # by rank: its sends, receives, and what it computes in between


@dataclass(frozen=True)
class Recognised:
    """A job, and its process groups."""

    job: Job
    groups: tuple[Found, ...]
    serial: float = 0.0  # relative increase if computes of a rank run one after the other, not in parallel streams


def recognise(tasks: Sequence[Task], ranks: int) -> Recognised:
    """The job that these tasks of ``ranks`` ranks are; raises `TraceError`."""
    graph = _Graph(tasks, ranks)
    found = _collectives(graph)
    problem: Exception | None = None
    for collectives, posted in ((found, False), (found, True), ((), True)):
        try:
            made = _Job(graph, collectives, posted).made()
            matching.check(made.job.groups, made.job.roles)
        except ValueError as error:
            problem = error
        else:
            return made
    raise TraceError(str(problem)) from problem


class _Graph:
    """Tasks without those that take no time: what waited for these waits for what they waited for."""

    def __init__(self, tasks: Sequence[Task], ranks: int) -> None:
        self.tasks, self.ranks = tasks, ranks
        self.partner = _matched(tasks)
        self.kept = [not self._passes(number) for number in range(len(tasks))]
        self.order = self._sorted()
        self.after = self._waits()
        self.dependents: list[list[int]] = [[] for _ in tasks]
        for number, waits in enumerate(self.after):
            if self.kept[number]:
                for one in waits:
                    self.dependents[one].append(number)

    def _passes(self, number: int) -> bool:
        task = self.tasks[number]
        return task.amount == 0 if task.computes else task.peer == task.rank

    def waits(self, number: int) -> set[int]:
        """The predecessors of a task; for a message to its own rank also the send."""
        task = self.tasks[number]
        if task.kind == Recv and task.peer == task.rank:
            return task.after | {self.partner[number]}
        return task.after

    def _sorted(self) -> list[int]:
        """All of them, each behind those it waits for; raises `TraceError`."""
        order = in_order([self.waits(number) | task.started for number, task in enumerate(self.tasks)])
        if len(order) < len(self.tasks):
            stuck = [str(self.tasks[number]) for number in sorted(set(range(len(self.tasks))) - set(order))]
            raise TraceError(
                f"operations wait for each other in a circle: {_listed(stuck)} are among them or wait for them. Remove a dependency"
            )
        return order

    def _waits(self) -> list[set[int]]:
        found: list[set[int]] = [set()] * len(self.tasks)
        count = 0
        for number in self.order:
            named, started = self.waits(number), self.tasks[number].started
            sources = [found[one] for one in (*(one for one in named if not self.kept[one]), *started) if found[one]]
            own = {one for one in named if self.kept[one]}
            found[number] = sources[0] if len(sources) == 1 and not own else own.union(*sources)
            count += len(found[number])
            if count > MOST_DEPENDENCIES:
                raise TraceError(
                    f"its operations have more than {MOST_DEPENDENCIES:,} dependencies. A trace is one iteration: write fewer iterations or ranks"
                )
        return found


def _matched(tasks: Sequence[Task]) -> dict[int, int]:
    """The other end of each message: the k-th send to a rank belongs to its k-th receive with that tag; raises `TraceError`."""
    ends: dict[tuple[int, int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for number, task in enumerate(tasks):
        if task.kind == Send:
            ends[task.rank, task.peer, task.tag][0].append(number)
        elif task.kind == Recv:
            ends[task.peer, task.rank, task.tag][1].append(number)
    found: dict[int, int] = {}
    for (source, target, tag), (sends, receives) in ends.items():
        if len(sends) != len(receives):
            raise TraceError(
                f"rank {source} sends {len(sends)} messages with tag {tag} to rank {target}, which receives {len(receives)} of them. "
                f"Each send needs a receive"
            )
        for send, receive in zip(sends, receives, strict=True):
            found[send], found[receive] = receive, send
    return found


def _collectives(graph: _Graph) -> tuple[Collective, ...]:
    rings = [one for one in _rings(graph) if _closed(graph, one)]
    taken = {number for one in rings for part in one.parts.values() for number in part}
    return (*rings, *(one for one in _all_to_alls(graph, taken) if _closed(graph, one)))


def _closed(graph: _Graph, one: Collective) -> bool:
    """Whether what is outside begins after all of it, and ends before any of it begins."""
    return all(_closed_at(graph, one.kind, inside) for inside in one.parts.values())


def _closed_at(graph: _Graph, kind: Kind, inside: frozenset[int]) -> bool:
    """The same of one rank's part."""
    sends, receives = ({number for number in inside if graph.tasks[number].kind == end} for end in (Send, Recv))
    first = {number for number in sends if graph.after[number].isdisjoint(inside)}
    before = set[int]().union(*(graph.after[number] for number in first)) - inside
    if not all(graph.after[number] - inside <= before for number in inside):
        return False
    fed = {each for number in inside for each in graph.after[number]}
    last = receives - fed
    outside = {other for number in inside for other in graph.dependents[number]} - inside
    for other in outside:
        seen = graph.after[other] & inside
        if not (last <= seen or (kind == "all_to_all" and sends == seen)):
            return False
    return bool(last)


# Rings: each message but the first of a chain is sent when the one before it has come.

Chain = list[int]  # of messages, each by the number of its send


@dataclass(frozen=True)
class _Links:
    """Which send passes on what a receive has brought."""

    sent_by: Mapping[int, int]  # by receive
    computed: Mapping[int, tuple[int, ...]]  # by receive: what is computed in between


def _links(graph: _Graph) -> _Links:
    tasks = graph.tasks
    followers: list[list[int]] = [[] for _ in tasks]
    for number in range(len(tasks)):
        for one in graph.waits(number):
            followers[one].append(number)

    def joins(number: int) -> bool:
        return not graph.kept[number] and (len(graph.waits(number)) > 1 or len(followers[number]) > 1)

    @cache
    def passes_to(number: int) -> list[int]:
        return [one for one in followers[number] if not joins(one)]

    def feeding(number: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Receives of which this is computed or sent, and the computes in between."""
        open_ends: list[tuple[int, tuple[int, ...]]] = [(number, ())]
        while open_ends:
            at, path = open_ends.pop()
            for one in graph.waits(at):
                if tasks[one].kind == Recv and graph.kept[one]:
                    yield one, path
                elif tasks[one].computes and not joins(one) and passes_to(one) == [at] and len(path) < 8:
                    open_ends.append((one, (one, *path) if graph.kept[one] else path))

    sent_by: dict[int, list[int]] = defaultdict(list)
    computed: dict[int, tuple[int, ...]] = {}
    for number, task in enumerate(tasks):
        if task.kind == Send and graph.kept[number]:
            fed = [(one, path) for one, path in feeding(number) if tasks[graph.partner[one]].amount == task.amount]
            if len({one for one, _ in fed}) == 1:
                sent_by[fed[0][0]].append(number)
                computed[fed[0][0]] = tuple(sorted({each for _, path in fed for each in path}))
    return _Links({one: sends[0] for one, sends in sent_by.items() if len(sends) == 1}, computed)


def _rings(graph: _Graph) -> Iterator[Collective]:
    links, tasks = _links(graph), graph.tasks
    passed_on = set(links.sent_by.values())
    rings: dict[tuple[tuple[int, ...], int, int], dict[int, list[Chain]]] = defaultdict(lambda: defaultdict(list))
    for number, task in enumerate(tasks):
        if task.kind != Send or not graph.kept[number] or number in passed_on:
            continue
        chain = [number]
        while (following := links.sent_by.get(graph.partner[chain[-1]])) is not None:
            chain.append(following)
        if (cycle := _cycle(graph, chain)) is not None:
            rings[cycle, task.amount, len(chain)][task.rank].append(chain)
    for (cycle, _, _), chains in rings.items():
        counts = {len(chains[rank]) for rank in cycle}
        if len(counts) == 1:
            for together in zip(*(chains[rank] for rank in cycle), strict=True):
                yield from _of_chains(graph, links, cycle, together)


def _cycle(graph: _Graph, chain: Chain) -> tuple[int, ...] | None:
    """The ranks of the ring that a chain of messages goes around, from the least on; None: it is none."""
    tasks = graph.tasks
    visited = [tasks[number].rank for number in chain] + [tasks[chain[-1]].peer]
    size = next((place for place, rank in enumerate(visited) if place and rank == visited[0]), len(visited))
    ring = visited[:size]
    if size < FEWEST or len(set(ring)) < size or len(chain) % (size - 1):
        return None
    if any(rank != ring[place % size] for place, rank in enumerate(visited)):
        return None
    least = ring.index(min(ring))
    return tuple(ring[least:] + ring[:least])


def _of_chains(graph: _Graph, links: _Links, cycle: tuple[int, ...], chains: Sequence[Chain]) -> Iterator[Collective]:
    """The collectives of one ring; its chains begin at each of its ranks."""
    turn, rounds = len(cycle) - 1, len(chains[0])
    received = [[graph.partner[number] for number in chain] for chain in chains]
    busy = {
        place for place in range(rounds - 1) if any(links.computed[chain[place]] for chain in received)
    }  # rounds after which something is computed
    begin = 0
    while begin < rounds:
        between = {place - begin for place in busy if begin <= place < begin + 2 * turn - 1}
        end = begin + 2 * turn
        if end > rounds or between == {turn - 1}:
            end = begin + turn
        kind: Kind = "all_reduce" if end - begin > turn else "all_gather"
        if kind == "all_gather" and turn > 1 and {place - begin for place in busy} >= set(range(turn - 1)):
            kind = "reduce_scatter"
        parts: dict[int, set[int]] = defaultdict(set)
        for chain, arrived in zip(chains, received, strict=True):
            for place in range(begin, end):
                parts[graph.tasks[chain[place]].rank].add(chain[place])
                target = graph.tasks[arrived[place]].rank
                parts[target].add(arrived[place])
                if place + 1 < end:
                    parts[target].update(links.computed[arrived[place]])
        size = graph.tasks[chains[0][0]].amount * len(cycle)
        yield Collective(kind, cycle, size, {rank: frozenset(own) for rank, own in parts.items()})
        begin = end


def _all_to_alls(graph: _Graph, taken: Collection[int]) -> Iterator[Collective]:
    tasks = graph.tasks
    turns = Counter[tuple[int, frozenset[int], int, int]]()
    batches: dict[tuple[int, frozenset[int], int, int], list[int]] = defaultdict(list)
    for number, task in enumerate(tasks):
        if task.kind == Send and graph.kept[number] and number not in taken:
            after = frozenset(graph.after[number])
            turns[task.peer, after, task.rank, task.amount] += 1
            batches[task.rank, after, task.amount, turns[task.peer, after, task.rank, task.amount]].append(number)
    alike: dict[tuple[tuple[int, ...], int], dict[int, list[list[int]]]] = defaultdict(lambda: defaultdict(list))
    for (rank, _, amount, _), sends in batches.items():
        members = tuple(sorted({rank, *(tasks[number].peer for number in sends)}))
        if len(members) == len(sends) + 1 >= FEWEST:
            alike[members, amount][rank].append(sends)
    for (members, amount), own in alike.items():
        if len({len(own[rank]) for rank in members}) > 1:
            continue
        for together in zip(*(own[rank] for rank in members), strict=True):
            parts: dict[int, set[int]] = {rank: set(batch) for rank, batch in zip(members, together, strict=True)}
            for number in (one for batch in together for one in batch):
                parts[tasks[number].peer].add(graph.partner[number])
            if all(graph.after[one].isdisjoint(inside) for inside in parts.values() for one in inside):
                size = amount * len(members)
                yield Collective("all_to_all", members, size, {rank: frozenset(one) for rank, one in parts.items()})


class _Job:
    """The trace of a graph whose collectives are given.

    ``posted``: receives wait for nothing; what follows one waits for that in its place. So no send waits for a receive that is not yet posted.
    """

    def __init__(self, graph: _Graph, collectives: Sequence[Collective], posted: bool) -> None:
        self.graph, self.collectives, self.posted = graph, collectives, posted
        self.inside = {
            number: place for place, one in enumerate(collectives) for part in one.parts.values() for number in part
        }
        self.names = _group_names(collectives)
        self.passed_on = 0  # dependencies that operations have instead of receives
        # What each rank computes between the rounds of a ring: nanoseconds by its place and rank.
        self.rests = {
            (place, rank): total
            for place, one in enumerate(collectives)
            for rank, part in one.parts.items()
            if (total := sum(graph.tasks[number].amount for number in part if graph.tasks[number].computes))
        }

    def made(self) -> Recognised:
        lists: list[list[_Node]] = [[] for _ in range(self.graph.ranks)]
        order, end_ns = self._in_order(lambda task: task.stream)
        for node in order:
            what, number, rank = node
            for each in self.collectives[number].members if what == _WHOLE else (rank,):
                lists[each].append(node)
        tags, groups = self._tags(lists), self._groups()
        sent = self._sent(lists)
        roles: dict[tuple[Operation, ...], list[int]] = {}
        for rank, own in enumerate(lists):
            roles.setdefault(self._operations(rank, own, tags, sent), []).append(rank)
        named = tuple(
            Role(f"rank {ranks[0]}" + f" and {len(ranks) - 1} more" * (len(ranks) > 1), tuple(ranks), operations)
            for operations, ranks in roles.items()
        )
        streams = {(task.rank, task.stream) for task in self.graph.tasks if task.computes and task.amount}
        several = len({rank for rank, _ in streams}) < len(streams)
        serial = self._in_order(lambda _task: 0)[1] / end_ns - 1 if several else 0.0
        return Recognised(Job((), groups, named), self._found(groups), serial)

    def _waits(self, number: int) -> set[int]:
        """The tasks that a task waits for, where receives may be posted at once."""
        after = self.graph.after[number]
        if not self.posted:
            return after
        found, open_ends = set[int](), [number] if self.graph.tasks[number].kind != Recv else []
        while open_ends:
            for one in self.graph.after[open_ends.pop()]:
                if one not in found:
                    found.add(one)
                    if self.graph.tasks[one].kind == Recv and one not in self.inside:
                        open_ends.append(one)
        self.passed_on += len(found) - len(after)
        if self.passed_on > MOST_PASSED_ON:
            raise TraceError(
                "its receives wait for each other in long chains, and in another order than the sends. "
                f"That makes more than {MOST_PASSED_ON:,} dependencies. Write fewer iterations, or remove dependencies of receives"
            )
        return found

    def _begin(self, number: int) -> _Node:
        """The node that a task is a part of."""
        place = self.inside.get(number)
        return (_TASK, number, self.graph.tasks[number].rank) if place is None else (_WHOLE, place, 0)

    def _end(self, number: int) -> _Node:
        """The node with which a task has ended for its rank."""
        place, rank = self.inside.get(number), self.graph.tasks[number].rank
        return (_REST, place, rank) if place is not None and (place, rank) in self.rests else self._begin(number)

    def _before(self, parts: Iterable[int]) -> set[_Node]:
        """The nodes that a task waits for, or a collective by its parts in one rank."""
        return {
            self._end(one) for number in parts for one in self._waits(number) if self._begin(one) != self._begin(number)
        }

    def _in_order(self, stream_of: Callable[[Task], int]) -> tuple[list[_Node], float]:
        """All nodes by when they can begin if links carry `_RATE_BPS`, and when the last ends; raises `ValueError` if they wait for each other."""
        tasks = self.graph.tasks
        waits: dict[_Node, set[_Node]] = {(_REST, place, rank): {(_WHOLE, place, 0)} for place, rank in self.rests}
        for number, kept in enumerate(self.graph.kept):
            if kept:
                node = self._begin(number)
                own = waits.setdefault(node, set())
                own |= self._before((number,))
                if tasks[number].kind == Recv and node[0] == _TASK:
                    own.add(self._begin(self.graph.partner[number]))
        followers: dict[_Node, list[_Node]] = defaultdict(list)
        for node, own in waits.items():
            for one in own:
                followers[one].append(node)
        missing = {node: len(own) for node, own in waits.items()}
        ready_ns = dict.fromkeys(waits, 0.0)
        free_ns: dict[tuple[int, int], float] = {}
        queue = [(0.0, node) for node, count in missing.items() if not count]
        heapq.heapify(queue)
        order, last_ns = [], 0.0
        while queue:
            begin, node = heapq.heappop(queue)
            order.append(node)
            what, number, rank = node
            if what == _TASK and tasks[number].computes:
                stream = rank, stream_of(tasks[number])
                end = free_ns[stream] = max(begin, free_ns.get(stream, 0.0)) + tasks[number].amount
            else:
                end = begin + self._takes_ns(node)
            last_ns = max(last_ns, end)
            for one in followers[node]:
                ready_ns[one] = max(ready_ns[one], end)
                missing[one] -= 1
                if not missing[one]:
                    heapq.heappush(queue, (ready_ns[one], one))
        if len(order) < len(waits):
            stuck = [str(tasks[number]) for (what, number, _), count in missing.items() if count and what == _TASK]
            raise ValueError(f"a deadlock. These wait for each other, or for some that do: {_listed(stuck)}")
        return order, last_ns

    def _takes_ns(self, node: _Node) -> float:
        what, number, rank = node
        if what == _REST:
            return self.rests[number, rank]
        if what == _WHOLE:
            return 2 * self.collectives[number].bytes * 8e9 / _RATE_BPS
        task = self.graph.tasks[number]
        return task.amount * 8e9 / _RATE_BPS if task.kind == Send else 0.0

    def _tags(self, lists: Sequence[Sequence[_Node]]) -> dict[int, int]:
        """By send: tags that distinguish messages of two ranks that are not received in the order of the sends."""
        tasks, partner = self.graph.tasks, self.graph.partner
        sends: dict[tuple[int, int], list[int]] = defaultdict(list)
        receives: dict[tuple[int, int], list[int]] = defaultdict(list)
        for own in lists:
            for what, number, rank in own:
                if what == _TASK and tasks[number].kind == Send:
                    sends[rank, tasks[number].peer].append(number)
                elif what == _TASK and tasks[number].kind == Recv:
                    receives[tasks[number].peer, rank].append(partner[number])
        return {
            number: place
            for pair, own_sends in sends.items()
            if own_sends != receives[pair]
            for place, number in enumerate(own_sends)
        }

    def _groups(self) -> Groups:
        found: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        for members, name in self.names.items():
            found[name].append(members)
        return {name: tuple(instances) for name, instances in found.items()}

    def _sent(self, lists: Sequence[Sequence[_Node]]) -> dict[int, int]:
        """By send: the how-manieth it is of its rank."""
        return {
            number: place for own in lists for place, (what, number, _) in enumerate(own)
            if what == _TASK and self.graph.tasks[number].kind == Send
        }  # fmt: skip

    def _latest(self, waits: Iterable[_Node], places: Mapping[_Node, int], sent: Mapping[int, int]) -> list[_Node]:
        """Of what follows each other on a rank (computes, collectives of a group, messages from one rank to another) the last one."""
        last: dict[Hashable, tuple[int, _Node]] = {}
        for node in waits:
            what, number, _ = node
            task = self.graph.tasks[number] if what == _TASK else None
            stream: Hashable
            place = places[node]
            if what == _WHOLE:
                stream = self.names[self.collectives[number].members]
            elif task is None or task.computes:
                stream = Compute
            else:
                stream = task.kind, task.peer
                if task.kind == Recv:  # in the order in which they are sent
                    place = sent[self.graph.partner[number]]
            last[stream] = max(last.get(stream, (-1, node)), (place, node))
        return sorted((node for _, node in last.values()), key=places.__getitem__)

    def _operations(
        self, rank: int, own: Sequence[_Node], tags: Mapping[int, int], sent: Mapping[int, int]
    ) -> tuple[Operation, ...]:
        """The operations of a rank, named so that ranks which do the same have equal ones."""
        counts = Counter[str]()
        ids: dict[_Node, str] = {}
        places = {node: place for place, node in enumerate(own)}
        for node in own:
            kind = self._kind(node)
            counts[kind] += 1
            ids[node] = f"{kind}{counts[kind]}"
        found = []
        for node in own:
            what, number, _ = node
            if what == _REST:
                waits: set[_Node] = {(_WHOLE, number, 0)}
            else:
                waits = self._before((number,) if what == _TASK else self.collectives[number].parts[rank])
            after = tuple(ids[one] for one in self._latest(waits, places, sent))
            task = self.graph.tasks[number] if what == _TASK else None
            if what == _WHOLE:
                one = self.collectives[number]
                group = self.names[one.members]
                op = Operation(id=ids[node], kind=one.kind, bytes=Size(one.bytes), group=group, after=after)
            elif task is None or task.computes:
                length = self.rests[number, rank] if task is None else task.amount
                op = Operation(id=ids[node], kind="compute", duration=Duration(length), after=after)
            else:
                send = number if task.kind == Send else self.graph.partner[number]
                size = Size(max(1, self.graph.tasks[send].amount))
                op = Operation(
                    id=ids[node],
                    kind=task.kind,
                    bytes=size,
                    peer=f"{task.peer - rank:+d}",
                    tag=tags.get(send, 0),
                    after=after,
                )
            found.append(op)
        return tuple(found) or (Operation(id="idle", kind="compute", duration=Duration(0)),)

    def _kind(self, node: _Node) -> str:
        what, number, _ = node
        if what == _REST:
            return "rest"
        return self.collectives[number].kind if what == _WHOLE else self.graph.tasks[number].kind

    def _found(self, groups: Groups) -> tuple[Found, ...]:
        kinds: dict[str, Counter[str]] = defaultdict(Counter)
        sizes = Counter[str]()
        for one in self.collectives:
            name = self.names[one.members]
            kinds[name][one.kind] += 1
            sizes[name] += one.bytes
        return tuple(
            Found(Group(name, len(lists[0]), ranks=lists[0]), tuple(kinds[name].most_common()), sizes[name], True)
            for name, lists in groups.items()
        )


def _group_names(collectives: Iterable[Collective]) -> dict[tuple[int, ...], str]:
    """A name for each ring or set of ranks; those of one size that have no rank in common share it."""
    taken: list[tuple[int, set[int]]] = []  # size and ranks of each name
    found: dict[tuple[int, ...], str] = {}
    for members in sorted({one.members for one in collectives}):
        free = [size == len(members) and ranks.isdisjoint(members) for size, ranks in taken]
        if True not in free:
            taken.append((len(members), set()))
            free.append(True)
        place = free.index(True)
        taken[place][1].update(members)
        found[members] = f"group{place + 1}"
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (
        f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    )

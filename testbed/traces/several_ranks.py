"""Profiles of several ranks of one job, together: which ranks exchange what, and which ranks do the same.

The k-th collective of a process group is the same one on all of its members, and the k-th send from one rank to another is the k-th receive
there. So clocks of ranks need not agree: the times of a rank are from its own profile alone. Ranks that differ become roles. A rank
without a profile does what the profiled one does that has the same place in the groups of messages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest
from statistics import median

import msgspec

from testbed.core.text import quoted, shown
from testbed.core.units import Size
from testbed.traces.collectives import parts
from testbed.traces.median_iteration import Iteration, iteration_of, spread
from testbed.traces.moments import Moments
from testbed.traces.operations import Groups, Operation, Placement, Role
from testbed.traces.process_groups import MOST_RANKS, Group, Job, about_servers, is_tensor_parallel, layout
from testbed.traces.steps import Exchange, Step, connection
from testbed.traces.trace import TraceError

_APART = 0.05  # part of the computing by which ranks differ,
_SPREADS = 3  # and so many times the spread from step to step
_UNNAMED = ("", "undefined")
_NEIGHBOURS = {"next": 1, "previous": -1}
Line = tuple[int, ...]  # the ranks of one process group, in order


@dataclass(frozen=True)
class Ranked:
    """The profile of one rank."""

    rank: int
    steps: Sequence[Step]
    groups: Sequence[Group]  # of its exchanges
    world: int = 0  # its number of ranks; 0: unknown


@dataclass(frozen=True)
class Several:
    """A job by the profiles of several ranks, and what its roles do."""

    job: Job
    iterations: tuple[Iteration, ...]

    @property
    def workers(self) -> dict[str, int]:
        """How many ranks are in each group that crosses the network."""
        inside = self.job.placement.inside if self.job.placement else ()
        return {name: max(map(len, lines)) for name, lines in self.job.groups.items() if name not in inside}

    @property
    def step_s(self) -> float:
        """How long an iteration took, as a median."""
        return median(one.duration_s for one in self.iterations)


def together(profiles: Sequence[Ranked]) -> Several | None:
    """The job of these profiles; None if it is one group whose ranks do the same. Raises `TraceError`."""
    if len({one.rank for one in profiles}) < 2 or any(group.workers == 1 for one in profiles for group in one.groups):
        return None
    return _Together(profiles).result()


@dataclass(frozen=True)
class _Rank:
    """The operations of one rank, with the process groups' names of the trace."""

    rank: int
    steps: tuple[tuple[Step, ...], ...]  # by file

    @cached_property
    def iteration(self) -> Iteration:
        return iteration_of(self.steps)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        return self.iteration.exchanges

    @cached_property
    def order(self) -> list[int]:
        """The exchanges, one connection after the other."""
        return sorted(range(len(self.exchanges)), key=lambda number: connection(self.exchanges[number]))

    @cached_property
    def what(self) -> list[tuple[object, ...]]:
        own = [self.exchanges[number] for number in self.order]
        return [(connection(one), one.kind, one.bytes, one.splits) for one in own]

    @property
    def moments(self) -> Moments:
        return self.iteration.moments

    def same_as(self, other: _Rank) -> bool:
        """Whether both exchange and compute the same."""
        if self.what != other.what:
            return False
        noise = max(spread(self.iteration.computing), spread(other.iteration.computing))
        near = max(_APART, _SPREADS * noise) * max(self.moments.all, other.moments.all)
        pairs = [(self.moments.all, other.moments.all)]
        for own, its in zip(self.order, other.order, strict=True):
            pairs.append((self.moments.ready[own], other.moments.ready[its]))
            first, second = self.moments.needed[own], other.moments.needed[its]
            sends = self.exchanges[own].kind == "send"  # hardly anything waits for it
            if not sends and (first is not None or second is not None):  # None: by the end
                pairs.append((_or(first, self.moments.ended), _or(second, other.moments.ended)))
        return all(abs(own - its) <= near for own, its in pairs)

    def changed(self, change: Callable[[Exchange], Exchange]) -> _Rank:
        """The same with all exchanges changed."""
        return _Rank(
            self.rank,
            tuple(
                tuple(replace(step, exchanges=tuple(map(change, step.exchanges))) for step in steps)
                for steps in self.steps
            ),
        )


def _or(moment: float | None, otherwise: float) -> float:
    return otherwise if moment is None else moment


class _Together:
    def __init__(self, profiles: Sequence[Ranked]) -> None:
        self.names, self.instances, self.kinds = _unified(profiles)
        steps: defaultdict[int, list[tuple[Step, ...]]] = defaultdict(list)
        for one in profiles:
            steps[one.rank].append(tuple(one.steps))
        self.ranks = {
            rank: _Rank(rank, tuple(steps[rank])).changed(partial(self._renamed, rank)) for rank in sorted(steps)
        }
        last = max(*self.ranks, *(rank for lines in self.instances.values() for line in lines for rank in line))
        self.world = max(last + 1, *(one.world for one in profiles))
        if self.world > MOST_RANKS:
            raise TraceError(
                f"the profiles are of a job of {self.world} ranks, but the limit is {MOST_RANKS}. Profile fewer ranks"
            )
        self.said: list[str] = []

    def _renamed(self, rank: int, one: Exchange) -> Exchange:
        return replace(one, group=self.names[rank, one.group])

    def result(self) -> Several | None:
        groups = self._lists()
        if len(groups) < 2 and not any(_message(one) for own in self.ranks.values() for one in own.exchanges):
            alike = next(iter(self.ranks.values()))
            if all(own.same_as(alike) for own in self.ranks.values()):
                return None
        self._find_peers(groups)
        clusters = self._clusters()
        members = self._members(clusters, groups)
        pooled = [iteration_of([files for own in cluster for files in own.steps]) for cluster in clusters]
        operations = [list(_operations(one)) for one in pooled]
        _same_sizes(operations, members, groups)
        roles = tuple(
            Role(_listed(own), tuple(own), tuple(its)) for own, its in sorted(zip(members, operations, strict=True), key=lambda one: one[0])
        )  # fmt: skip
        inside = tuple(name for name in groups if len(groups) > 1 and is_tensor_parallel(self.kinds[name]))
        said = [
            *self.said,
            f"profiles of {len(self.ranks)} of {self.world} ranks: matched by process group and sequence number, whatever their clocks",
        ]
        if len(roles) > 1:
            said.append(f"ranks that differ are roles: {'; '.join(role.name for role in roles)}")
        said += about_servers(inside)
        said += dict.fromkeys(text for one in pooled for text in one.said)
        job = Job(
            roles[0].operations if len(roles) == 1 else (),
            groups,
            roles if len(roles) > 1 else (),
            Placement(inside) if inside else None,
            tuple(said),
        )
        return Several(job, tuple(pooled))

    def _lists(self) -> Groups:
        """The lists of ranks of each group, of all ranks."""
        used = [
            name
            for name in self.instances
            if any(one.group == name for own in self.ranks.values() for one in own.exchanges)
        ]
        found: Groups = {}
        for name in used:
            lines, kind = self.instances[name], self.kinds[name]
            if not lines and kind.workers in ((0, self.world) if len(used) == 1 else (self.world,)):
                lines = {tuple(range(self.world))}
            if all(any(rank in line for line in lines) for rank in self.ranks if self._uses(rank, name)) and (
                len(self.ranks) == self.world or sum(map(len, lines)) == self.world
            ):
                found[name] = tuple(sorted(lines))
        if len(found) == len(used):
            return found
        if unknown := [name for name in used if not self.kinds[name].workers]:
            raise TraceError(
                f"the number of ranks of process group {quoted(unknown[0])} is unknown, so {len(self.ranks)} ranks cannot be matched: import one of them"
            )
        grid, said = layout([replace(self.kinds[name], name=name) for name in used], self.world)
        self.said += said
        for name, lines in self.instances.items():
            if name in grid and not lines <= set(grid[name]):
                raise TraceError(
                    f"process group {quoted(name)}: its ranks {_some(lines)} are no part of a grid of {self.world} ranks. Give the profiles of all ranks"
                )
        if sum(map(len, grid[used[0]])) != self.world:
            raise TraceError(
                f"the process groups make {sum(map(len, grid[used[0]]))} ranks, and the profiles say {self.world}. Give the profiles of all ranks"
            )
        return {name: grid[name] for name in used}

    def _uses(self, rank: int, name: str) -> bool:
        return any(one.group == name for one in self.ranks[rank].exchanges)

    def _find_peers(self, groups: Groups) -> None:
        """Whether peers are places in the group or ranks: the reading on which sends and receives agree; then as steps along the group."""
        wrong = ""
        for local in (True, False):
            steps = {
                (rank, one.group, one.peer): _step(one.peer, _line(groups[one.group], rank), rank, local)
                for rank, own in self.ranks.items()
                for one in own.exchanges
                if _message(one)
            }
            if (unknown := next((key for key, step in steps.items() if not step), None)) is not None:
                wrong = wrong or (
                    f"rank {unknown[0]}: with which rank of process group {quoted(unknown[1])} it exchanges messages is not recorded. "
                    "Import one rank alone"
                )
                continue
            wrong = self._unmatched(steps, groups)
            if not wrong:
                self.ranks = {rank: own.changed(partial(_with_step, steps, rank)) for rank, own in self.ranks.items()}
                return
        raise TraceError(wrong)

    def _unmatched(self, steps: Mapping[tuple[int, str, str], int], groups: Groups) -> str:
        """The error in messages between profiled ranks; empty: none."""
        sent, received = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for rank, own in self.ranks.items():
            for one in filter(_message, own.exchanges):
                line = _line(groups[one.group], rank)
                other = line[line.index(rank) + steps[rank, one.group, one.peer]]
                if other in self.ranks and one.kind == "send":
                    sent[rank, other] += 1
                elif other in self.ranks:
                    received[other, rank] += 1
        for source, target in sent | received:
            if sent[source, target] != received[source, target]:
                return (
                    f"rank {source} sends {sent[source, target]} messages to rank {target} in an iteration, and rank {target} receives "
                    f"{received[source, target]} from it. Profile the same steps on both, or import one rank alone"
                )
        return ""

    def _clusters(self) -> list[list[_Rank]]:
        """Ranks that do the same."""
        found: list[list[_Rank]] = []
        for own in self.ranks.values():
            same = next((one for one in found if own.same_as(one[0])), None)
            if same is None:
                found.append([own])
            else:
                same.append(own)
        return found

    def _members(self, clusters: Sequence[Sequence[_Rank]], groups: Groups) -> list[list[int]]:
        """The ranks of each cluster, those without a profile among them."""
        members = [[own.rank for own in cluster] for cluster in clusters]
        lines = [
            name
            for name in groups
            if any(_message(one) and one.group == name for own in self.ranks.values() for one in own.exchanges)
        ]

        def place(rank: int) -> tuple[int, ...]:
            return tuple(
                _line(groups[name], rank).index(rank) for name in lines if any(rank in line for line in groups[name])
            )

        missing = [rank for rank in range(self.world) if rank not in self.ranks]
        by_place = [{place(rank) for rank in own} for own in members]
        for rank in missing:
            candidates = [number for number, places in enumerate(by_place) if place(rank) in places]
            if len(candidates) != 1:
                raise TraceError(
                    f"there are profiles of ranks {shown(', '.join(map(str, self.ranks)), 60)}, which differ, and none of rank {rank}. "
                    f"What it does is unknown: give the profiles of all {self.world} ranks, or of one"
                )
            members[candidates[0]].append(rank)
        if missing:
            self.said.append(
                f"{len(missing)} ranks without a profile are taken to do what the profiled ones at the same place do"
            )
        return [sorted(own) for own in members]


def _operations(one: Iteration) -> Iterator[Operation]:
    exchanges = iter(one.exchanges)
    for op in one.operations:
        if op.computes:
            yield op
        else:
            yield msgspec.structs.replace(op, group=(exchange := next(exchanges)).group, peer=exchange.peer or None)


def _message(one: Exchange) -> bool:
    return one.kind in ("send", "recv")


def _step(peer: str, line: Line, rank: int, local: bool) -> int:
    """How far the other rank of a message is along the group's list; 0: that is not known."""
    here = line.index(rank)
    place = here + _NEIGHBOURS.get(peer, 0)
    if peer.isdecimal():
        place = int(peer) if local else line.index(int(peer)) if int(peer) in line else here
    return place - here if 0 <= place < len(line) else 0


def _with_step(steps: Mapping[tuple[int, str, str], int], rank: int, one: Exchange) -> Exchange:
    return replace(one, peer=f"{steps[rank, one.group, one.peer]:+d}") if _message(one) else one


def _line(lines: Sequence[Line], rank: int) -> Line:
    return next((line for line in lines if rank in line), (rank,))


def _listed(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {shown(', '.join(map(str, ranks)), 60)}"


def _some(lines: set[Line]) -> str:
    return shown("; ".join(", ".join(map(str, line)) for line in sorted(lines)), 80)


def _unified(profiles: Sequence[Ranked]) -> tuple[dict[tuple[int, str], str], dict[str, set[Line]], dict[str, Group]]:
    """The trace's name of each rank's process groups, the recorded ranks under each, and one group of each.

    PyTorch numbers process groups: those of one purpose have different names on different ranks. They have one description, or follow each
    other at the same place in the order of use.
    """
    names: dict[tuple[int, str], str] = {}
    instances: dict[str, set[Line]] = {}
    kinds: dict[str, Group] = {}
    for one in sorted(profiles, key=lambda one: one.rank):
        known = {group.name: group for group in one.groups}
        for name in dict.fromkeys(exchange.group for step in one.steps for exchange in step.exchanges):
            if (one.rank, name) in names:
                continue
            group = known.get(name, Group(name))
            line = group.ranks if len(group.ranks) == group.workers else ()
            taken = {label for (rank, _), label in names.items() if rank == one.rank}
            label = _label(group, line, instances, kinds, taken)
            names[one.rank, name] = label
            kinds.setdefault(label, group)
            instances.setdefault(label, set()).update({line} - {()})
    return names, instances, kinds


def _label(
    group: Group, line: Line, instances: Mapping[str, set[Line]], kinds: Mapping[str, Group], taken: set[str]
) -> str:
    described = "" if group.description in _UNNAMED else group.description
    for label in dict.fromkeys((described, group.name, *instances)):
        if label not in instances or label in taken or kinds[label].workers != group.workers:
            continue
        other = kinds[label]
        if described != ("" if other.description in _UNNAMED else other.description):
            continue
        if not line and group.name != other.name:
            continue
        if line in instances[label] or not any(set(line) & set(known) for known in instances[label]):
            return label
    wanted = described or group.name or "dp"
    return wanted if wanted not in instances else f"{wanted}.{group.name}"


def _same_sizes(roles: Sequence[list[Operation]], members: Sequence[Sequence[int]], groups: Groups) -> None:
    """Give the operations of ranks that are one exchange the same size, in place: the median over its ranks; raises `TraceError`."""
    role_of = {rank: number for number, own in enumerate(members) for rank in own}
    joined: dict[tuple[int, int], tuple[int, int]] = {}

    def root(one: tuple[int, int]) -> tuple[int, int]:
        while one in joined:
            one = joined[one]
        return one

    def join(own: Sequence[tuple[int, int]]) -> None:
        for one in own[1:]:
            first, other = root(own[0]), root(one)
            if first != other:
                joined[other] = first

    places: dict[tuple[int, str, str], list[tuple[int, int]]] = {}  # of a role: by kind and group or peer
    for number, operations in enumerate(roles):
        for place, op in enumerate(operations):
            if not op.computes:
                what = f"{op.kind} {op.peer}" if op.point_to_point else ""
                places.setdefault((number, op.group or "", what), []).append((number, place))
    for name, lines in groups.items():
        for line in lines:
            everyone = [places.get((role_of[rank], name, ""), []) for rank in line]
            for number, own in enumerate(zip_longest(*everyone)):
                ops = [None if one is None else roles[one[0]][one[1]] for one in own]
                kinds = {"nothing" if op is None else op.kind for op in ops}
                if len(kinds) > 1:
                    raise TraceError(
                        f"process group {quoted(name)} of ranks {shown(', '.join(map(str, line)), 60)}: its collective {number} is "
                        f"{' and '.join(sorted(kinds))} on different ranks. Profile the same steps on all ranks"
                    )
                if kinds == {"all_to_all"}:
                    if len({op.size for op in ops if op is not None}) > 1:
                        for (role, place), each in zip(own, ops, strict=True):
                            if each is not None and each.splits is None:
                                even = tuple(map(Size, parts(len(line), each.size)))
                                roles[role][place] = msgspec.structs.replace(each, splits=even)
                    continue
                join(own)
            for here, rank in enumerate(line):
                for there, other in enumerate(line):
                    sent = places.get((role_of[rank], name, f"send {there - here:+d}"), [])
                    received = places.get((role_of[other], name, f"recv {here - there:+d}"), [])
                    for pair in zip(sent, received, strict=False):
                        join(pair)
    sizes: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    everything = [one for own in places.values() for one in own]
    for one in everything:
        sizes[root(one)].append(roles[one[0]][one[1]].size)
    for one in everything:
        if len(set(sizes[root(one)])) > 1:
            same = Size(int(median(sizes[root(one)])))
            roles[one[0]][one[1]] = msgspec.structs.replace(roles[one[0]][one[1]], bytes=same)

"""The ranks of a trace together: which operations of different ranks are one exchange, and what waits for what.

The k-th collective of a process group is the same one on all of its members. The k-th send from one rank to another with a tag
belongs to the k-th receive there with that tag. What can never end is found here: an exchange that a rank lacks, a deadlock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, zip_longest

from testbed.core.text import quoted, shown
from testbed.traces.collectives import parts
from testbed.traces.operations import WITH_SPLITS, Groups, Operation, Role
from testbed.traces.ordering import in_order
from testbed.traces.pipelining import EARLIER

MOST_STEPS = 2_000_000  # operations of all ranks together
SETTLED = 8  # iterations until ranks have reached their steady pace
EVERY_RANK = "dp"  # the group of a trace that names none


@dataclass(frozen=True)
class Exchange:
    """A collective among the members of a group, or a message from one rank to another."""

    group: str  # "": of a message that names none
    members: tuple[int, ...]  # in the group's order; of a message: sender, receiver
    operations: tuple[Operation, ...]  # by member

    @property
    def first(self) -> Operation:
        return self.operations[0]

    @property
    def message(self) -> bool:
        """Whether it goes from one rank to another."""
        return self.first.point_to_point


@dataclass(frozen=True)
class Step:
    """An event that happens once in an iteration: a compute of one rank, or an exchange of its members."""

    operations: tuple[Operation, ...]  # by rank
    ranks: tuple[int, ...]
    exchange: int | None  # which, by its number
    after: tuple[tuple[int, ...], ...]  # steps that each rank waits for
    earlier: tuple[
        tuple[int, ...], ...
    ] = ()  # of the iteration before; empty: none of its ranks goes on before that has ended


@dataclass(frozen=True)
class Matched:
    """One iteration of all ranks."""

    exchanges: tuple[Exchange, ...]
    steps: tuple[Step, ...]  # each behind those that it waits for
    overlapping: frozenset[int] = frozenset()  # ranks that begin an iteration before the last one has ended


def ranks_of(groups: Groups, roles: Sequence[Role]) -> int | None:
    """The number of ranks; None if there is no information. Raises `ValueError` unless they are 0, 1, 2, …"""
    named = {rank for instances in groups.values() for one in instances for rank in one}
    named |= {rank for role in roles for rank in role.ranks}
    if not named:
        return None
    missing = next((rank for rank in range(len(named)) if rank not in named), None)
    if missing is not None:
        raise ValueError(
            f"ranks: {missing} is in no group or role, and {max(named)} is. Ranks are 0, 1, 2, … without holes"
        )
    return len(named)


def check(groups: Groups, roles: Sequence[Role]) -> None:
    """Raises `ValueError` if these are no iteration that can end."""
    for name, instances in groups.items():
        _check_group(name, instances)
    count = ranks_of(groups, roles)
    if count is None:
        if stray := next((op for role in roles for op in role.operations if op.point_to_point or op.splits), None):
            what = "has a peer" if stray.point_to_point else "has splits"
            raise ValueError(
                f"operation {quoted(stray.id)} {what}, and nothing says which ranks there are. Add groups or roles"
            )
        for role in roles:
            _check_after(role)
            if other := next((op.group for op in role.operations if op.group not in (None, EVERY_RANK)), None):
                raise ValueError(f"group: {quoted(other)} is not in groups. Add its lists of ranks there")
        return
    seen: dict[int, str] = {}
    for role in roles:
        for rank in role.ranks:
            if rank in seen:
                raise ValueError(
                    f"roles: rank {rank} is in {quoted(seen[rank])} and in {quoted(role.name)}. A rank has one role"
                )
            seen[rank] = role.name
    missing = next((rank for rank in range(count) if rank not in seen), None)
    if missing is not None:
        raise ValueError(f"roles: rank {missing} is in no role. Each rank of a group needs its operations")
    for role in roles:
        _check_after(role)
    match(groups, roles)


def _check_group(name: str, instances: tuple[tuple[int, ...], ...]) -> None:
    seen: set[int] = set()
    if not instances or not all(instances):
        raise ValueError(f"groups: {quoted(name)} is empty. Write lists of ranks, such as [[0, 1], [2, 3]]")
    for one in instances:
        for rank in one:
            if rank < 0:
                raise ValueError(f"groups: {quoted(name)} has rank {rank}. Ranks begin with 0")
            if rank in seen:
                raise ValueError(f"groups: {quoted(name)} has rank {rank} twice. A rank is in one list of a group")
            seen.add(rank)


def _check_after(role: Role) -> None:
    known = {op.id for op in role.operations}
    for op in role.operations:
        if stray := next((name for name in op.after if name.removesuffix(EARLIER) not in known), None):
            raise ValueError(
                f"operation {quoted(op.id)} of role {quoted(role.name)}: after names {quoted(stray)}, which this role lacks. "
                f"It waits for operations of its own role alone"
            )
    try:
        TopologicalSorter({op.id: _within(op) for op in role.operations}).prepare()
    except CycleError as error:
        raise ValueError(
            f"after: operations of role {quoted(role.name)} wait for each other in a cycle: {_listed(error.args[1])}. Remove one of these"
        ) from error


def _within(op: Operation) -> list[str]:
    """The events of its own iteration that it waits for."""
    return [name for name in op.after if not name.endswith(EARLIER)]


def _listed(cycle: Sequence[str], most: int = 8) -> str:
    names = [shown(one, 60) for one in cycle]
    return " → ".join(names if len(names) <= most else [*names[: most - 1], "…", names[-1]])


def match(groups: Groups, roles: Sequence[Role]) -> Matched:
    """Which operations are one exchange, and in which order all can happen; raises `ValueError`."""
    return _Matching(groups, roles).result()


class _Matching:
    def __init__(self, groups: Groups, roles: Sequence[Role]) -> None:
        count = ranks_of(groups, roles) or 0
        self.groups = groups or {EVERY_RANK: (tuple(range(count)),)}
        self.of_rank = {rank: role for role in roles for rank in role.ranks}
        total = sum(len(role.ranks) * len(role.operations) for role in roles)
        if total > MOST_STEPS:
            raise ValueError(
                f"its ranks have {total:,} operations together, and {MOST_STEPS:,} is the most of one iteration"
            )
        self.instance = {
            (name, rank): one for name, instances in self.groups.items() for one in instances for rank in one
        }
        self.place = {
            (name, rank): place
            for name, instances in self.groups.items()
            for one in instances
            for place, rank in enumerate(one)
        }
        self.exchanges: list[Exchange] = []
        self.at: dict[
            int, dict[str, tuple[int, int]]
        ] = {}  # by rank and id: number of the exchange, place among its members
        self.order: dict[int, dict[str, str]] = {}  # by rank and id: what goes before it where both use one connection

    def result(self) -> Matched:
        self._collectives()
        self._messages()
        overlapping = frozenset(
            rank
            for rank, role in self.of_rank.items()
            if any(op.computes for op in role.operations)
            and any(name.endswith(EARLIER) for op in role.operations for name in op.after)
        )
        return Matched(tuple(self.exchanges), self._steps(overlapping), overlapping)

    def _group(self, op: Operation) -> str:
        if op.group is not None:
            if op.group not in self.groups:
                raise ValueError(
                    f"operation {quoted(op.id)}: {quoted(op.group)} is not in groups. There are {', '.join(map(quoted, self.groups))}"
                )
            return op.group
        if op.point_to_point:
            return ""
        if len(self.groups) > 1:
            raise ValueError(
                f"operation {quoted(op.id)} has no group, and there are {', '.join(map(quoted, self.groups))}. Name one of them"
            )
        return next(iter(self.groups))

    def _instance(self, op: Operation, name: str, rank: int) -> tuple[int, ...]:
        found = self.instance.get((name, rank))
        if found is None:
            raise ValueError(
                f"operation {quoted(op.id)}: rank {rank} carries it out, and no list of group {quoted(name)} has this rank"
            )
        return found

    def _collectives(self) -> None:
        sequences: dict[tuple[str, int], dict[int, list[Operation]]] = {}  # by group and its first member
        for rank, role in sorted(self.of_rank.items()):
            for op in role.operations:
                if op.computes or op.point_to_point:
                    continue
                name = self._group(op)
                members = self._instance(op, name, rank)
                if op.splits is not None and len(op.splits) != len(members):
                    raise ValueError(
                        f"operation {quoted(op.id)}: splits has {len(op.splits)} entries, and group {quoted(name)} has {len(members)} members. "
                        f"Give one entry for each member"
                    )
                sequences.setdefault((name, members[0]), {}).setdefault(rank, []).append(op)
        for (name, first), own in sequences.items():
            members = self.instance[name, first]
            for number, together in enumerate(zip_longest(*(own.get(rank, []) for rank in members))):
                _check_alike(name, members, number, together)
                self._add(Exchange(name, members, tuple(together)))
            for rank in members:
                follows = self.order.setdefault(rank, {})
                follows.update((op.id, before.id) for before, op in pairwise(own[rank]))

    def _add(self, exchange: Exchange) -> None:
        for place, (rank, op) in enumerate(zip(exchange.members, exchange.operations, strict=True)):
            self.at.setdefault(rank, {})[op.id] = len(self.exchanges), place
        self.exchanges.append(exchange)

    def _peer(self, op: Operation, rank: int) -> int:
        assert op.peer is not None
        if isinstance(op.peer, int):
            peer = op.peer
        else:
            line = self._instance(op, op.group, rank) if op.group is not None else range(len(self.of_rank))
            place = (rank if op.group is None else self.place[op.group, rank]) + int(op.peer)
            peer = line[place] if 0 <= place < len(line) else -1
        if peer not in self.of_rank or peer == rank:
            raise ValueError(
                f"operation {quoted(op.id)}: rank {rank} has no peer {op.peer!r}. There are ranks 0 to {len(self.of_rank) - 1}"
            )
        return peer

    def _messages(self) -> None:
        sends: dict[tuple[int, int], list[Operation]] = {}
        receives: dict[tuple[int, int, int], deque[Operation]] = {}
        for rank, role in sorted(self.of_rank.items()):
            for op in role.operations:
                if not op.point_to_point:
                    continue
                self._group(op)
                peer = self._peer(op, rank)
                if op.kind == "send":
                    sends.setdefault((rank, peer), []).append(op)
                else:
                    receives.setdefault((peer, rank, op.tag), deque()).append(op)
        for (source, target), ops in sends.items():
            before: tuple[Operation, Operation] | None = None
            for op in ops:
                waiting = receives.get((source, target, op.tag))
                if not waiting:
                    raise ValueError(
                        f"send {quoted(op.id)} of rank {source}: rank {target} has no receive from it with tag {op.tag} left. Add one, or remove the send"
                    )
                other = waiting.popleft()
                if other.size != op.size or other.group != op.group:
                    raise ValueError(
                        f"send {quoted(op.id)} of rank {source} has {op.size} bytes of group {op.group!r}, and receive {quoted(other.id)} of rank {target} "
                        f"{other.size} of group {other.group!r}. Make them alike"
                    )
                self._add(Exchange(op.group or "", (source, target), (op, other)))
                if before is not None:
                    self.order.setdefault(source, {})[op.id] = before[0].id
                    self.order.setdefault(target, {})[other.id] = before[1].id
                before = op, other
        if stray := next(((key, ops[0]) for key, ops in receives.items() if ops), None):
            (source, target, tag), op = stray
            raise ValueError(
                f"recv {quoted(op.id)} of rank {target}: rank {source} has no send to it with tag {tag} left. Add one, or remove the receive"
            )

    def _steps(self, overlapping: frozenset[int]) -> tuple[Step, ...]:
        """A message is one step of both ranks: its receive must be there before its send can be over, however little is buffered."""
        made = [(one.operations, one.members) for one in self.exchanges]  # steps of exchanges come first
        after: list[list[list[int]]] = [[[] for _ in one.members] for one in self.exchanges]
        earlier: dict[tuple[int, int], set[int]] = {}  # by step and rank
        for rank, role in sorted(self.of_rank.items()):
            at, order = self.at.get(rank, {}), self.order.get(rank, {})
            numbers = {name: number for name, (number, _) in at.items()}
            for number, op in enumerate((op for op in role.operations if op.computes), len(made)):
                numbers[op.id] = number
                made.append(((op,), (rank,)))
            computed: int | None = None
            if rank in overlapping:
                for number, waits in self._before(role, numbers, order):
                    earlier.setdefault((number, rank), set()).update(waits)
            for op in role.operations:
                waits = [numbers[name] for name in _within(op)]
                if op.computes:
                    waits += [] if computed is None else [computed]
                    computed = numbers[op.id]
                    after.append([waits])
                else:
                    waits += [numbers[order[op.id]]] if op.id in order else []
                    number, place = at[op.id]
                    after[number][place] = waits
        before = [{one for own in waits for one in own} for waits in after]
        order_of_all = in_order(before)
        if len(order_of_all) < len(before):
            raise self._deadlock(made, before)
        place_of = {number: at for at, number in enumerate(order_of_all)}
        return tuple(
            Step(
                *made[number],
                number if number < len(self.exchanges) else None,
                tuple(tuple(sorted({place_of[one] for one in own})) for own in after[number]),
                tuple(
                    tuple(sorted(place_of[one] for one in earlier.get((number, rank), ()))) for rank in made[number][1]
                )
                if overlapping
                else (),
            )
            for number in order_of_all
        )

    @staticmethod
    def _before(role: Role, numbers: Mapping[str, int], order: Mapping[str, str]) -> Iterator[tuple[int, list[int]]]:
        """The operations of the iteration before that a rank's operations wait for: named ones, and the last one of their stream."""
        for op in role.operations:
            if named := [numbers[name.removesuffix(EARLIER)] for name in op.after if name.endswith(EARLIER)]:
                yield numbers[op.id], named
        computes = [op.id for op in role.operations if op.computes]
        yield numbers[computes[0]], [numbers[computes[-1]]]
        follows = {before: name for name, before in order.items()}
        for first in (op.id for op in role.operations if not op.computes and op.id not in order):
            last = first
            while last in follows:
                last = follows[last]
            yield numbers[first], [numbers[last]]

    def _deadlock(
        self, made: Sequence[tuple[tuple[Operation, ...], tuple[int, ...]]], before: Sequence[set[int]]
    ) -> ValueError:
        try:
            TopologicalSorter(dict(enumerate(before))).prepare()
        except CycleError as error:
            cycle = [f"{made[number][0][0].id} (rank {made[number][1][0]})" for number in error.args[1]]
            return ValueError(
                f"operations: a deadlock. These wait for each other: {_listed(cycle)}. Change their order, or what they wait for"
            )
        raise AssertionError("without a cycle there is an order")


def _check_alike(name: str, members: tuple[int, ...], number: int, together: Sequence[Operation | None]) -> None:
    """Raises `ValueError` unless members do the same."""
    first = next(op for op in together if op is not None)
    for rank, op in zip(members, together, strict=True):
        if op is not first and (problem := _differs(first, op, number, rank)):
            where = f"group {quoted(name)} of ranks {shown(', '.join(map(str, members)), 60)}"
            raise ValueError(f"{where}: {problem}")


def _differs(first: Operation, op: Operation | None, number: int, rank: int) -> str | None:
    if op is None:
        return f"rank {rank} has only {number} collectives, and others go on with {quoted(first.id)}. All members need the same ones"
    uneven = op.kind == "all_to_all" and (op.splits is not None or first.splits is not None)
    alike = op.kind == first.kind and op.algorithm == first.algorithm
    if alike and (uneven or (op.size, op.splits) == (first.size, first.splits)):
        return None
    return (
        f"collective {number} is {quoted(first.id)} ({first.kind}, {first.size} bytes) for one member and {quoted(op.id)} "
        f"({op.kind}, {op.size} bytes) for rank {rank}. Members carry out the same collectives in the same order"
    )


def wrong(op: Operation, version: int) -> str | None:
    """The error in the fields of version 2 of one operation."""
    if version == 1:
        used = [name for name in ("flops", "memory_bytes", "group", "splits", "peer") if getattr(op, name) is not None]
        used += ["tag"] * bool(op.tag) + [op.kind] * op.point_to_point
        return f"{used[0]} needs version 2" if used else None
    if op.ranks is not None:
        return "ranks are of version 1. Write roles"
    if op.kind == "send_recv":
        return "send_recv is of version 1. Write a send and a recv with their peers"
    if op.splits is not None:
        if op.kind not in WITH_SPLITS:
            return f"splits are for {', '.join(WITH_SPLITS)}, not for {op.kind}"
        if op.bytes is not None and op.bytes != sum(op.splits):
            return f"splits come to {sum(op.splits)} bytes, and bytes is {int(op.bytes)}. Leave out bytes, or make them equal"
        if op.kind != "all_to_all" and not sum(op.splits):
            return "splits are all 0: nothing is exchanged"
    if op.point_to_point != (op.peer is not None):
        return f"{op.kind} needs a peer" if op.point_to_point else f"{op.kind} has no peer"
    if isinstance(op.peer, str) and not _is_step(op.peer):
        return f"peer {quoted(op.peer)} is neither a rank nor steps such as '+1' or '-1'"
    if op.tag and not op.point_to_point:
        return f"{op.kind} has no tag"
    if op.group is not None and op.computes:
        return "a compute has no group"
    if (op.algorithm is not None or op.importance is not None) and (op.point_to_point or op.splits is not None):
        return "a message, or a collective of uneven parts, has no algorithm or importance of its own"
    return None


def _is_step(text: str) -> bool:
    return len(text) in range(2, 8) and text[0] in "+-" and text[1:].isascii() and text[1:].isdigit() and int(text) != 0


# Start and end of a step for each of its ranks, in seconds.
Times = list[list[tuple[float, float]]]


def times(
    matched: Matched,
    exchange_s: Sequence[float],
    buffered_s: float = 0.0,
    begins: Mapping[int, float] | None = None,
    before: Times | None = None,
) -> Times:
    """When every step begins and ends, in isolation, if exchanges take so long and hold each other up by their order alone.

    ``buffered_s``: so much of a message its sender need not wait for. It travels before its receiver asks for it. ``begins``: when each
    rank begins its iteration; None: all of them at 0. ``before``: the iteration before, for ranks that begin one before that has ended.
    """
    found: Times = []
    places = [{rank: place for place, rank in enumerate(step.ranks)} for step in matched.steps]
    for step in matched.steps:
        ready = [
            max((found[one][places[one][rank]][1] for one in own), default=0.0 if begins is None else begins[rank])
            for rank, own in zip(step.ranks, step.after, strict=True)
        ]
        if before is not None and step.earlier:
            ready = [
                max((at, *(before[one][places[one][rank]][1] for one in own)))
                for at, rank, own in zip(ready, step.ranks, step.earlier, strict=True)
            ]
        if step.exchange is None:
            found.append([(ready[0], ready[0] + (step.operations[0].duration or 0) / 1e9)])
        elif step.operations[0].point_to_point:
            takes = exchange_s[step.exchange]
            sent = ready[0] + max(0.0, takes - buffered_s)
            came = max(ready[1], ready[0] + takes)
            found.append([(ready[0], sent), (min(came, max(ready)), came)])
        else:
            begun = max(ready)
            found.append([(begun, begun + exchange_s[step.exchange])] * len(ready))
    return found


def period_s(matched: Matched, exchange_s: Sequence[float], buffered_s: float = 0.0) -> float:
    """The least mean time between iterations where each rank goes on with the next one when it has ended its own.

    Ranks that wait for each other reach the same pace: of them the one whose last iteration was shortest bounds it from below. Of ranks that
    begin an iteration before the last one has ended, it is the mean of the later half.
    """
    ranks = sorted({rank for step in matched.steps for rank in step.ranks})
    joined = {rank: rank for rank in ranks}  # the least of the ranks that exchange something with it, directly or not
    for one in matched.exchanges:
        least = {joined[rank] for rank in one.members}
        joined = {rank: min(least) if other in least else other for rank, other in joined.items()}
    begins, lasted = dict.fromkeys(ranks, 0.0), dict.fromkeys(ranks, 0.0)
    found: Times | None = None
    paces: list[dict[int, float]] = []  # when ranks that overlap begin to compute, iteration by iteration
    for _ in range(SETTLED):
        ends = dict(begins)
        found = times(matched, exchange_s, buffered_s, begins, found)
        paces.append({})
        for step, own in zip(matched.steps, found, strict=True):
            for rank, (start, end) in zip(step.ranks, own, strict=True):
                ends[rank] = max(ends[rank], end)
                if step.exchange is None:
                    paces[-1].setdefault(rank, start)
        lasted = {rank: ends[rank] - begins[rank] for rank in ranks}
        begins = {rank: 0.0 if rank in matched.overlapping else ends[rank] for rank in ranks}
    half = SETTLED // 2
    lasted |= {rank: (paces[-1][rank] - paces[half - 1][rank]) / half for rank in matched.overlapping}
    return max(
        (min(lasted[rank] for rank in ranks if joined[rank] == part) for part in set(joined.values())), default=0.0
    )


def ends_s(found: Times) -> float:
    """When the last step ends."""
    return max((end for own in found for _, end in own), default=0.0)


def rows(exchange: Exchange) -> tuple[tuple[int, ...], ...]:
    """Uneven parts: what each member sends to each; or, one row, each member's part. Empty: parts are equal."""
    if exchange.message or all(op.splits is None for op in exchange.operations):
        return ()
    if exchange.first.kind != "all_to_all":
        return (tuple(map(int, exchange.first.splits or ())),)
    count = len(exchange.members)
    return tuple(
        tuple(map(int, op.splits)) if op.splits is not None else tuple(parts(count, op.size))
        for op in exchange.operations
    )

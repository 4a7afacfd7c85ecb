"""A trace whose ranks differ, or have several groups, in a plan: which exchanges cross the network, and over which connections."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from testbed import registry
from testbed.core.errors import RequestError
from testbed.core.runs.plan import Connections
from testbed.core.runs.plan import Operation as Numeric
from testbed.core.text import quoted
from testbed.replay import uneven
from testbed.traces import collectives, matching
from testbed.traces import trace as traces
from testbed.traces.matching import Exchange
from testbed.traces.trace import Operation, Trace
from testbed.transports import Flow

MESSAGES = "messages"  # from rank to rank; shared by all groups
NOTHING = Connections("", ())  # connections of a job with all ranks on one server


def name_of(one: Exchange) -> str:
    """The group, or the messages, whose connections it uses."""
    return MESSAGES if one.message else one.group


def servers(trace: Trace) -> tuple[int, ...]:
    """The server of each rank, by number: ranks of a group that stays inside share one."""
    server = list(range(trace.ranks or 0))
    for name in trace.placement.inside if trace.placement else ():
        for members in trace.groups[name]:
            joined = {server[rank] for rank in members}
            server = [min(joined) if one in joined else one for one in server]
    numbers = {one: number for number, one in enumerate(dict.fromkeys(server))}
    return tuple(numbers[one] for one in server)


@dataclass(frozen=True)
class Grouped:
    """A trace with its exchanges."""

    trace: Trace
    collective: str | None  # algorithm for operations of its kind
    channels: int
    given: tuple[int, ...] | None = None  # server of each rank, from a job scheduler; None: as the trace sets it

    @cached_property
    def servers(self) -> tuple[int, ...]:
        return servers(self.trace) if self.given is None else self.given

    @cached_property
    def crossing(self) -> tuple[Exchange, ...]:
        """Exchanges that cross the network; raises `RequestError`."""
        found = []
        for one in self.trace.matched.exchanges:
            count = len({self.servers[rank] for rank in one.members})
            if 1 < count < len(one.members) and self.given is None:
                raise RequestError(
                    f"trace {quoted(self.trace.name)}: some ranks of group {quoted(one.group)} share a server and others do not "
                    f"({', '.join(map(str, one.members))}). Put the whole group inside a server, or place each of its ranks on another one",
                    where="placement",
                )
            if count > 1:
                found.append(one)
        return tuple(found)

    def algorithm(self, one: Exchange) -> str:
        """The algorithm; empty for a message, and for uneven parts."""
        return "" if one.message or matching.rows(one) else traces.algorithm(one.first, self.collective)

    def rounds(self, one: Exchange) -> list[dict[Flow, int]]:
        """Payload on each flow in each round, over all channels; between ranks of one server, too, if others take part."""
        members = one.members
        return [
            {(members[a], members[b]): size for (a, b), size in flows.items() if size} for flows in self._local(one)
        ]

    @cached_property
    def _together(self) -> dict[int, list[dict[Flow, int]]]:
        """By exchange, what travels with it: ranks of a server that exchange inside it do the same at the same time, over one NIC."""
        coupled = any(
            len({self.servers[rank] for rank in one.members}) == 1 < len(one.members)
            for one in self.trace.matched.exchanges
        )
        by_place: dict[Hashable, list[dict[Flow, int]]] = {}
        found: dict[int, list[dict[Flow, int]]] = {}
        for one in self.crossing:
            where: Hashable = tuple(self.servers[rank] for rank in one.members) if coupled else one.members
            rounds = by_place.setdefault((where, one.group, tuple(op.id for op in one.operations)), [])
            for number, flows in enumerate(self.rounds(one)):
                if number == len(rounds):
                    rounds.append({})
                rounds[number] |= flows
            found[id(one)] = rounds
        return found

    def together(self, one: Exchange) -> list[dict[Flow, int]]:
        """`rounds`, with those of exchanges that always go on at the same time between the same servers."""
        return self._together[id(one)]

    def _local(self, one: Exchange) -> list[dict[Flow, int]]:
        kind = uneven.MESSAGE if one.message else one.first.kind
        if len(one.members) < 2:
            return []
        if not self.algorithm(one):
            return uneven.rounds(kind, len(one.members), one.first.size, matching.rows(one))
        return traces.rounds(one.first, len(one.members), self.collective, self.channels)

    def inside_s(self, one: Exchange, intra_bps: float) -> float:
        """Return the duration of an exchange inside a server at ``intra_bps``, in seconds: that of its busiest rank."""
        return 0.0 if math.isinf(intra_bps) else traces.rounds_s(self._local(one), intra_bps)

    def exchange_s(self, crossing_s: Callable[[Exchange], float], intra_bps: float) -> list[float]:
        """Return the duration of every exchange in seconds; ``crossing_s`` gives it for those that cross the network."""
        over = set(map(id, self.crossing))
        return [
            crossing_s(one) if id(one) in over else self.inside_s(one, intra_bps)
            for one in self.trace.matched.exchanges
        ]

    @cached_property
    def groups(self) -> tuple[Connections, ...]:
        """Connections of each group, and of messages."""
        found: dict[str, dict[Flow, None]] = {}
        for one in self.crossing:
            flows = found.setdefault(name_of(one), {})
            flows |= dict.fromkeys(flow for each in self.rounds(one) for flow in each)
        made = tuple(Connections(name, tuple(flows)) for name, flows in found.items() if flows)
        return made or ((NOTHING,) if self.given is not None else ())

    def operations(self, intra_bps: float) -> tuple[Numeric, ...]:
        """The operations of all ranks: ranks that do the same appear once, one role after the other."""
        matched = self.trace.matched
        numbers = {
            (rank, op.id): number
            for number, one in enumerate(matched.exchanges)
            for rank, op in zip(one.members, one.operations, strict=True)
        }
        sets = {one.name: number for number, one in enumerate(self.groups)}
        names = list(dict.fromkeys(map(name_of, matched.exchanges)))
        over = set(map(id, self.crossing))

        def numeric(op: Operation, ranks: Sequence[int], number: int) -> Numeric:
            one = matched.exchanges[number]
            crosses = id(one) in over
            name, algorithm = name_of(one), self.algorithm(one)
            if registry.is_file_name(algorithm):
                algorithm = str(Path(algorithm).resolve())
            importance = (op.importance,) if isinstance(op.importance, float) else op.importance or ()
            return Numeric(
                op.id, op.kind, tuple(op.after), tuple(ranks), bytes=one.first.size, algorithm=algorithm, layer=op.layer or 0,
                importance=importance, members=one.members, exchange=number,
                group=sets[name] if crosses else -1 - names.index(name), rows=matching.rows(one),
                inside_ns=None if crosses else round(self.inside_s(one, intra_bps) * 1e9),
            )  # fmt: skip

        def made() -> Iterator[Numeric]:
            for role in self.trace.all_roles:
                for op in role.operations:
                    if op.computes:
                        yield Numeric(op.id, op.kind, tuple(op.after), role.ranks, duration_ns=int(op.duration or 0))
                        continue
                    by_exchange: dict[int, list[int]] = {}
                    for rank in role.ranks:
                        by_exchange.setdefault(numbers[rank, op.id], []).append(rank)
                    for number, ranks in by_exchange.items():
                        yield numeric(op, ranks, number)

        return tuple(made())

    @cached_property
    def connections(self) -> int:
        return self.channels * sum(len(one.flows) for one in self.groups)

    def waits(self, one: Exchange) -> collectives.Waits:
        """Return which members of the exchange wait for each other before they continue."""
        return collectives.waits(name) if (name := self.algorithm(one)) else "all"

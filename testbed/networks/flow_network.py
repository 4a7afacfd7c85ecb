"""A topology as numbered one-way links and paths between servers, for models of flows.

A topology file suffices: its nodes, its links and their `rate`. A network of thousands of servers takes seconds to build.
"""

from __future__ import annotations

import itertools
from collections import deque

import numpy as np
import numpy.typing as npt

from testbed.core.errors import within
from testbed.core.units import Rate
from testbed.networks.routed import Hop, RoutedTopo

Floats = npt.NDArray[np.float64]


class FlowNetwork:
    """Servers by number, in the topology's order, and its links in both directions by number.

    ``rate_bps``: rate of every link that sets no `rate` itself, including hosts' links (bit/s).
    """

    def __init__(self, topo: RoutedTopo, rate_bps: float) -> None:
        servers = getattr(topo, "servers", None)
        self.servers: list[str] = list(servers()) if servers else [n for n in topo.nodes() if not topo.isRouter(n)]
        behind = {host for hosts in (servers().values() if servers else ()) for host in hosts}
        self._numbers: dict[Hop, int] = {}
        self._routers: dict[str, list[str]] = {node: [] for node in topo.nodes() if topo.isRouter(node)}
        self._uplinks: dict[str, list[str]] = {server: [] for server in self.servers}
        rates: list[float] = []
        for a, b, info in topo.links(withInfo=True):
            if a in behind or b in behind:
                continue  # inside a server
            with within(f"topo: link {a}-{b}"):
                rate = _rate_bps(info.get("rate"), rate_bps)
            for here, there in ((a, b), (b, a)):
                self._numbers[here, there] = len(rates)
                rates.append(rate)
                if here in self._uplinks:
                    self._uplinks[here].append(there)
                if here in self._routers and there in self._routers:
                    self._routers[here].append(there)
        self.capacity: Floats = np.array(rates)  # bit/s, by link
        self._hops: dict[str, dict[str, int]] = {}

    @property
    def longest(self) -> int:
        """Return an upper bound of the links on a shortest path between servers: twice the largest distance from one
        router, plus both ends."""
        routers = self._hops_to(next(iter(self._routers)))
        return 2 * max(routers.values()) + 2

    def path(self, source: int, target: int, choice: int = 0) -> list[int]:
        """The links of one of the shortest paths from a server to another. ``choice``, any number, selects among equal ones."""
        start, end = self.servers[source], self.servers[target]
        # A server with one uplink is behind that router, so that its distances are the router's.
        nodes = [start] if len(self._uplinks[start]) > 1 else [start, self._uplinks[start][0]]
        last = end if len(self._uplinks[end]) > 1 else self._uplinks[end][0]
        hops = self._hops_to(last)
        while nodes[-1] != last:
            left = hops[nodes[-1]] - 1
            nearer = [near for near in self._routers[nodes[-1]] if hops[near] == left]
            choice, chosen = divmod(choice, len(nearer))
            nodes.append(nearer[chosen])
        if last != end:
            nodes.append(end)
        return [self._numbers[hop] for hop in itertools.pairwise(nodes)]

    def _hops_to(self, target: str) -> dict[str, int]:
        """How many links each router is from ``target`` (breadth first)."""
        if target not in self._hops:
            hops, queue = {target: 0}, deque([target])
            while queue:
                node = queue.popleft()
                for near in self._routers[node]:
                    if near not in hops:
                        hops[near] = hops[node] + 1
                        queue.append(near)
            self._hops[target] = hops
        return self._hops[target]


def _rate_bps(text: str | None, rate_bps: float) -> float:
    """A link's own rate: a share of the experiment's (``"50%"``) or a rate (``"10gbit"``)."""
    if text is None:
        return rate_bps
    return float(text[:-1]) / 100 * rate_bps if text.endswith("%") else float(Rate.parse(text))

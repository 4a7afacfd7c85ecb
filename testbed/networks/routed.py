"""A Mininet `Topo` of hosts and routers that addresses and routes itself.

Every link is a separate subnet (``10.x.y.0/30``) and every router gets exact static
routes to all of them along the shortest paths, towards hosts along all that are equally
short (ECMP), so that a topology file needs only its nodes and links.
Works in stock Mininet too, without Open vSwitch: routers are plain nodes that forward.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache
from ipaddress import IPv4Address
from typing import Any

from mininet.topo import Topo

from testbed.core.errors import RequestError
from testbed.core.text import quoted

NOWHERE = 1 << 30  # links away
Hop = tuple[str, str]  # a link in one direction
Neighbours = dict[str, list[str]]
Routes = list[tuple[str, tuple[str, ...]]]  # a subnet, and the addresses of the next hops


class TooManyError(RequestError):
    """A network with more hosts or links than it may have (`at_most`)."""


@dataclass(frozen=True)
class _Most:
    hosts: int
    links: int


_most: ContextVar[_Most | None] = ContextVar("most", default=None)
_nics: ContextVar[int] = ContextVar("nics", default=1)


@contextmanager
def with_nics(count: int) -> Iterator[None]:
    """Networks made inside have so many interfaces in every host: ``h1`` is a server of hosts ``h1n1``, ``h1n2``, …, each with a separate link."""
    token = _nics.set(count)
    try:
        yield
    finally:
        _nics.reset(token)


@contextmanager
def at_most(hosts: int, links: int) -> Iterator[None]:
    """Networks made inside raise `TooManyError` as soon as their size exceeds this."""
    token = _most.set(_Most(hosts, links))
    try:
        yield
    finally:
        _most.reset(token)


class _Later(Sequence[tuple[str, tuple[str, ...]]]):
    """A router's routes, worked out as soon as anybody looks: for ten thousand hosts they are millions, and a model needs none."""

    def __init__(self, topo: RoutedTopo, router: str) -> None:
        self._topo, self._router = topo, router

    def __getitem__(self, number: Any) -> Any:
        return self._topo.all_routes[self._router][number]

    def __len__(self) -> int:
        return len(self._topo.all_routes[self._router])


def router(name: str, **params: Any) -> Any:
    """The node class that Mininet uses for a router; imported on use, because planning alone needs no node."""
    from testbed.networks.router import Router

    return Router(name, **params)


class RoutedTopo(Topo):  # type: ignore[misc]
    """Subclasses add nodes and links in `wire`; addresses and routes follow."""

    first_subnet = int(IPv4Address("10.0.0.0"))

    def build(self, *args: Any, **kwargs: Any) -> None:
        self.arguments = args or tuple(kwargs.values())
        self._addresses: dict[Hop, str] = {}
        self._hosts = 0
        self.nics = _nics.get()
        self.aliases: dict[str, str] = {}  # further addresses of hosts, which routers have routes to
        self.nic_hosts: dict[str, tuple[str, ...]] = {}  # of each server, by rail; empty: a host has one interface
        if (counts := self.counts(*args, **kwargs)) is not None:
            hosts, links = counts
            self._allow(hosts * self.nics, links + hosts * (self.nics - 1))
        self.wire(*args, **kwargs)
        self._route()

    def wire(self, *args: Any, **kwargs: Any) -> None:
        """Add the hosts (`addHost`), routers (`router`) and links (`link`)."""
        raise NotImplementedError

    @classmethod
    def counts(cls, *args: Any, **kwargs: Any) -> tuple[int, int] | None:
        """The number of hosts and links of a network with these arguments (of `wire`), computed; None: only building it shows them."""
        return None

    @classmethod
    def for_servers(cls, gpus: Sequence[int]) -> RoutedTopo:
        """Return a network for servers with these numbers of GPUs.

        Raises `NotImplementedError` if the class cannot be sized.
        """
        raise NotImplementedError(f"{cls.__name__} has no size of its own: give it arguments, as in NAME,4,4")

    def addHost(self, name: str, **opts: Any) -> str:
        if opts.get("cls") is router:
            return str(super().addHost(name, **opts))
        self._hosts += self.nics
        self._allow(self._hosts, 0)
        if self.nics == 1:
            return str(super().addHost(name, **opts))
        self.nic_hosts[name] = tuple(
            str(super(RoutedTopo, self).addHost(f"{name}n{rail}", **opts)) for rail in range(1, self.nics + 1)
        )
        return name

    def nic(self, server: str, rank: int) -> str:
        """Return the host that represents the NIC of a server's rank: rank r uses NIC r mod n."""
        own = self.nic_hosts.get(server, (server,))
        return own[rank % len(own)]

    def _allow(self, hosts: int, links: int) -> None:
        most = _most.get()
        for count, limit, what in ((hosts, most.hosts, "hosts"), (links, most.links, "links")) if most else ():
            if count > limit:
                raise TooManyError(f"{count:,} {what}, and {limit:,} is the most")

    def router(self, name: str) -> str:
        return str(self.addHost(name, cls=router))

    def link(self, a: str, b: str, *, bottleneck: bool = False, **settings: Any) -> None:
        """Join ``a`` and ``b``; a ``bottleneck`` is shaped to the experiment's rate and buffer.

        ``settings`` override the experiment's for this link, with units: ``rate`` (or a fraction of the experiment's:
        ``"50%"``), ``buffer`` and ``ecn`` of a bottleneck; ``delay``, ``jitter``, ``loss`` and ``corrupt`` of any other
        link (at its routers' ends: a host does not delay what it sends). A server with several NICs has such a link for
        each.
        """
        for first in self.nic_hosts.get(a, (a,)):
            for second in self.nic_hosts.get(b, (b,)):
                self._join(first, second, bottleneck=bottleneck, **settings)

    def _join(self, a: str, b: str, *, bottleneck: bool, **settings: Any) -> None:
        for name in (a, b):
            if name not in self.g.node:
                raise RequestError(f"there is no router or host {quoted(name)}. Add it before its links.")
        if (a, b) in self._addresses:
            raise ValueError(f"there are two links between {a} and {b}; one with the rate of both does the same")
        base = self.first_subnet + 4 * (len(self._addresses) // 2)
        self._allow(0, len(self._addresses) // 2 + 1)
        first, second = str(IPv4Address(base + 1)), str(IPv4Address(base + 2))
        self._addresses[a, b], self._addresses[b, a] = first, second
        self.addLink(a, b, params1={"ip": f"{first}/30"}, params2={"ip": f"{second}/30"},
                     bottleneck=bottleneck, **settings)  # fmt: skip

    def routes(self, failed: Collection[tuple[str, str]] = ()) -> dict[str, Routes]:
        """Return for each router the shortest paths to every remote subnet, without the ``failed`` links."""
        neighbours = self._neighbours(failed)
        routers = {node for node in self.nodes() if self.isRouter(node)}
        result: dict[str, Routes] = {router: [] for router in routers}
        paths: dict[
            tuple[str, ...], list[tuple[str, tuple[str, ...]]]
        ] = {}  # all hosts of a router are behind the same
        for a, b in self.links():
            if b not in neighbours.get(a, []):
                continue
            prefix = str(IPv4Address(int(IPv4Address(self._addresses[a, b])) & ~3)) + "/30"
            ends = tuple(node for node in (a, b) if node in routers)
            if ends not in paths:
                paths[ends] = list(self._next_hops_to(ends, neighbours, routers))
            for router, next_hops in paths[ends]:
                result[router].append((prefix, next_hops))
        return result

    def _next_hops_to(
        self, ends: tuple[str, ...], neighbours: Neighbours, routers: Collection[str]
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Each router that is not in a subnet itself, and its next hops to there; ``ends``: the routers that are."""
        hops = _hops_to(ends, neighbours, routers)
        for router in hops:
            nearer = [near for near in neighbours[router] if hops.get(near) == hops[router] - 1]
            if nearer:
                # Only pings end between two routers, so one path there is enough.
                yield router, tuple(self._addresses[near, router] for near in nearer[: 1 if len(ends) > 1 else None])

    @cached_property
    def all_routes(self) -> dict[str, Routes]:
        """`routes` with every link there, worked out once."""
        return self.routes()

    def _route(self) -> None:
        neighbours = self._neighbours()
        for node, near in neighbours.items():
            # Otherwise Mininet assigns an arbitrary address to a node's first interface.
            self.nodeInfo(node)["ip"] = f"{self._addresses[node, near[0]]}/30"
            if not self.isRouter(node):
                if len(near) != 1:
                    raise ValueError(f"host {node} has {len(near)} links, not one")
                self.nodeInfo(node)["defaultRoute"] = f"via {self._addresses[near[0], node]}"
            else:
                self.nodeInfo(node)["routes"] = _Later(self, node)

    def _neighbours(self, failed: Collection[tuple[str, str]] = ()) -> Neighbours:
        neighbours: Neighbours = {}
        for a, b in self._addresses:
            if (a, b) not in failed and (b, a) not in failed:
                neighbours.setdefault(a, []).append(b)
        return neighbours

    def isRouter(self, node: str) -> bool:
        return self.nodeInfo(node).get("cls") is router


@lru_cache(maxsize=16)
def _neighbours(topo: Topo) -> Neighbours:
    """Pairs of linked nodes (a topology does not change after construction)."""
    neighbours: Neighbours = {}
    for a, b in topo.links():
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    return neighbours


def _hops_to(targets: Iterable[str], neighbours: Neighbours, among: Collection[str]) -> dict[str, int]:
    """How many links each node of ``among`` is from the nearest target (breadth first); those that reach one."""
    hops = dict.fromkeys(targets, 0)
    queue = deque(hops)
    while queue:
        node = queue.popleft()
        for near in neighbours.get(node, []):
            if near in among and near not in hops:
                hops[near] = hops[node] + 1
                queue.append(near)
    return hops


@lru_cache(maxsize=16)
def _between(topo: Topo) -> frozenset[str]:
    """The nodes that a path can lead through: those of more than one link."""
    return frozenset(node for node, near in _neighbours(topo).items() if len(near) > 1)


@lru_cache(maxsize=1 << 12)
def _hops(topo: Topo, target: str) -> Mapping[str, int]:
    """How many links each node that a path can lead through is from ``target``."""
    return _hops_to([target], _neighbours(topo), _between(topo))


def _hops_from(topo: Topo, node: str, target: str) -> int:
    """Return the number of links from ``node`` to ``target``; `NOWHERE` if there is no path, or ``node`` forwards
    nothing."""
    if node == target:
        return 0
    near = _neighbours(topo).get(target, [])
    if len(near) == 1 and near[0] in _between(topo):  # all that are behind the same router are as far
        return NOWHERE if node not in _between(topo) else _hops(topo, near[0]).get(node, NOWHERE) + 1
    return _hops(topo, target).get(node, NOWHERE)


@lru_cache(maxsize=1 << 14)
def stages(topo: Topo, source: str, target: str) -> tuple[tuple[Hop, ...], ...]:
    """Hop by hop, every link that a packet from ``source`` to ``target`` may cross, over all shortest paths.

    A stage of one link is crossed for certain; of several, one is: which one, the kernel's
    hash selects which (`testbed.linux.paths` computes it).
    """
    if source == target:
        return ()
    neighbours = _neighbours(topo)
    here = [source]
    far = 1 + min((_hops_from(topo, near, target) for near in neighbours[source]), default=NOWHERE)
    if far >= NOWHERE:
        raise ValueError(f"no path from {source} to {target}")
    result = []
    for left in range(far, 0, -1):
        result.append(tuple((a, b) for a in here for b in neighbours[a] if _hops_from(topo, b, target) == left - 1))
        here = list(dict.fromkeys(b for _, b in result[-1]))
    return tuple(result)


def path(topo: Topo, source: str, target: str) -> list[str]:
    """The nodes a packet from ``source`` to ``target`` crosses, both included: the first of the shortest paths."""
    nodes = [source]
    for stage in stages(topo, source, target):
        nodes.append(next(b for a, b in stage if a == nodes[-1]))
    return nodes


def has_choice(topo: Topo) -> bool:
    """Return True if a router has several shortest paths to a host."""
    neighbours, between = _neighbours(topo), _between(topo)
    ends = dict.fromkeys(near[0] for near in neighbours.values() if len(near) == 1 and near[0] in between)
    return any(
        sum(hops.get(near) == far - 1 for near in neighbours[node]) > 1
        for hops in (_hops(topo, end) for end in ends)
        for node, far in hops.items()
    )

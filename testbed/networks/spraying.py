"""Give each host one IP address per path, so that a sender can spray packets over all paths.

With S spines, each host has S addresses in addition to its primary one. A leaf forwards packets for the p-th
address over the p-th spine. The sender selects a path per packet by destination address, from one socket.
Packets to the primary address are still hashed per flow (ECMP).

`hashed`: any number of addresses without per-path routes. Routers hash the addresses, as they would hash
random source ports.

Multi-stage networks (fat tree): a path is one choice per stage. Its number encodes these choices in a
mixed-radix system.

`turns`: spraying for TCP, which knows only one address per peer. TCP increments the IP identification field
for each packet of a connection; routers select the path by the low bits of that field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from testbed.networks.routed import RoutedTopo, Routes

_FIRST = int(IPv4Address("10.128.0.0"))  # above all links (`testbed.networks.routed`)
_APART = 1 << 16  # addresses of a path
MOST = 64  # paths


def paths(topo: RoutedTopo) -> int:
    """Return the number of paths across the network, at most `MOST`; 1: no router has a choice."""
    count = 1
    for choices in _choices(topo).values():
        count *= choices
    return min(count, MOST)


def address(topo: RoutedTopo, host: str, path: int) -> str:
    """The address of ``host``, by ``path`` (from 0 on)."""
    return str(IPv4Address(_FIRST + path * _APART + 1 + _hosts(topo).index(host)))


def routes(topo: RoutedTopo, count: int) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return for each router the next hop to each of ``count`` addresses of every host, one address per path."""
    levels, choices = _levels(topo), _choices(topo)
    divisor, below = {}, 1
    for level, width in sorted(choices.items()):
        divisor[level] = below
        below *= width
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for router in levels:
        to = _vias(topo, router)
        found[router] = {
            address(topo, host, path): (vias[path // divisor[levels[router]] % len(vias)],)
            for host, vias in to.items()
            for path in range(count)
        }
    return found


def to_addresses(
    topo: RoutedTopo, addresses: Mapping[str, str], routes: Mapping[str, Routes]
) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return for each router the next hops to further ``addresses`` of hosts, given its ``routes``."""
    return {
        router: {addresses[host]: vias for host, vias in _vias(topo, router, dict(routes[router])).items() if host in addresses}
        for router in _levels(topo)
    }  # fmt: skip


def hashed(topo: RoutedTopo, count: int) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return for each router the next hops to each of ``count`` addresses of every host, among which it selects by a
    hash."""
    return {
        router: {
            address(topo, host, number): vias for host, vias in _vias(topo, router).items() for number in range(count)
        }
        for router in _levels(topo)
    }


@dataclass(frozen=True)
class Turns:
    """The packet spraying of one router."""

    below: tuple[str, ...]  # nodes from which packets arrive
    bit: int  # lowest bit of the packet's number that selects the path here
    ways: tuple[dict[str, str], ...]  # next hop by prefix, for 2, 4, 8, … paths


def turns(topo: RoutedTopo) -> dict[str, Turns]:
    """The choices of each router; raises `ValueError` where their number is not a power of two."""
    levels, near, found = _levels(topo), _neighbours(topo), {}
    bits, bit = {}, 0
    for level, width in sorted(_choices(topo).items()):
        if width & (width - 1):
            raise ValueError(f"routers choose among {width} paths, and only 2, 4, 8, … can be told apart by bits")
        bits[level], bit = bit, bit + width.bit_length() - 1
    for router, level in levels.items():
        routes: Mapping[str, tuple[str, ...]] = dict(topo.nodeInfo(router).get("routes", ()))
        several = {prefix: vias for prefix, vias in routes.items() if len(vias) > 1}
        if several:
            (width,) = {len(vias) for vias in several.values()}
            below = tuple(node for node in near[router] if levels.get(node, 0) < level)
            paths = tuple({prefix: vias[way] for prefix, vias in several.items()} for way in range(width))
            found[router] = Turns(below, bits[level], paths)
    return found


def _hosts(topo: RoutedTopo) -> list[str]:
    return [node for node in topo.hosts() if not topo.isRouter(node)]


def _vias(
    topo: RoutedTopo, router: str, routes: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, tuple[str, ...]]:
    """The next hops to each host: as its routes have it, or the host itself where it is next door."""
    to = dict(topo.nodeInfo(router).get("routes", ())) if routes is None else routes
    found = {}
    for host in _hosts(topo):
        own = str(topo.nodeInfo(host)["ip"]).partition("/")[0]
        subnet = f"{IPv4Address(int(IPv4Address(own)) & ~3)}/30"
        found[host] = to.get(subnet, (own,))
    return found


def _levels(topo: RoutedTopo) -> dict[str, int]:
    """The distance of each router from the nearest host, in links."""
    near = _neighbours(topo)
    levels = dict.fromkeys(_hosts(topo), 0)
    queue = list(levels)
    for node in queue:
        for other in near.get(node, ()):
            if other not in levels:
                levels[other] = levels[node] + 1
                queue.append(other)
    return {node: level for node, level in levels.items() if level}


def _neighbours(topo: RoutedTopo) -> dict[str, list[str]]:
    near: dict[str, list[str]] = {}
    for a, b in topo.links():
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    return near


def _choices(topo: RoutedTopo) -> dict[int, int]:
    """At each level among how many next hops a router chooses, at most."""
    found: dict[int, int] = {}
    for router, level in _levels(topo).items():
        widest = max((len(vias) for vias in _vias(topo, router).values()), default=1)
        found[level] = max(found.get(level, 1), widest)
    return found

"""A Mininet `Topo` of hosts and routers that addresses and routes itself.

Every link is a subnet of its own (``10.x.y.0/30``) and every node gets exact static
routes along the shortest paths, so that a topology file needs to say nothing but its
nodes and links. Works in stock Mininet too, without Open vSwitch: routers are plain
nodes that forward.
"""

from __future__ import annotations

from collections import deque
from ipaddress import IPv4Address
from typing import Any

from mininet.node import Node
from mininet.topo import Topo

_FIRST_SUBNET = int(IPv4Address("10.0.0.0"))


class Router(Node):  # type: ignore[misc]
    """A node that forwards, with the static routes it is given (``routes=[(prefix, via), ...]``)."""

    def config(self, routes: Any = (), **params: Any) -> dict[str, Any]:
        result: dict[str, Any] = super().config(**params)
        self.cmd("sysctl -w net.ipv4.ip_forward=1")
        for prefix, via in routes:
            self.cmd("ip route add", prefix, "via", via)
        return result


class RoutedTopo(Topo):  # type: ignore[misc]
    """Subclasses add nodes and links in `wire`; addresses and routes follow."""

    def build(self, *args: Any, **kwargs: Any) -> None:
        self.arguments = args or tuple(kwargs.values())
        self._addresses: dict[tuple[str, str], str] = {}
        self.wire(*args, **kwargs)
        self._route()

    def wire(self, *args: Any, **kwargs: Any) -> None:
        """Add the hosts (`addHost`), routers (`router`) and links (`link`)."""
        raise NotImplementedError

    def router(self, name: str) -> str:
        return str(self.addHost(name, cls=Router))

    def link(self, a: str, b: str, *, bottleneck: bool = False, **settings: str) -> None:
        """Join ``a`` and ``b``; a ``bottleneck`` is shaped to the experiment's rate and buffer.

        What the experiment says for all links, ``settings`` say for this one, with units:
        ``rate``, ``buffer`` and ``ecn`` of a bottleneck; ``delay``, ``jitter`` and ``loss``
        of any other link (at its routers' ends: a host that sends delays nothing).
        """
        base = _FIRST_SUBNET + 4 * (len(self._addresses) // 2)
        first, second = str(IPv4Address(base + 1)), str(IPv4Address(base + 2))
        self._addresses[a, b], self._addresses[b, a] = first, second
        self.addLink(a, b, params1={"ip": f"{first}/30"}, params2={"ip": f"{second}/30"},
                     bottleneck=bottleneck, **settings)  # fmt: skip

    def _route(self) -> None:
        neighbours: dict[str, list[str]] = {}
        for a, b in self._addresses:
            neighbours.setdefault(a, []).append(b)
        for node, near in neighbours.items():
            if not self.isRouter(node):
                if len(near) != 1:
                    raise ValueError(f"host {node} has {len(near)} links, not one")
                self.nodeInfo(node)["ip"] = f"{self._addresses[node, near[0]]}/30"
                self.nodeInfo(node)["defaultRoute"] = f"via {self._addresses[near[0], node]}"
            else:  # or Mininet gives its first interface an address of its own choice
                self.nodeInfo(node)["ip"] = f"{self._addresses[node, near[0]]}/30"
        for host in neighbours:
            if self.isRouter(host):
                continue
            gateway = neighbours[host][0]
            prefix = str(IPv4Address(int(IPv4Address(self._addresses[host, gateway])) & ~3)) + "/30"
            for router, towards in _shortest_paths_to(gateway, neighbours).items():
                via = self._addresses[towards, router]
                self.nodeInfo(router).setdefault("routes", []).append((prefix, via))

    def isRouter(self, node: str) -> bool:
        return self.nodeInfo(node).get("cls") is Router


def _shortest_paths_to(target: str, neighbours: dict[str, list[str]]) -> dict[str, str]:
    """The next hop towards ``target`` from each router that reaches it (breadth first)."""
    towards: dict[str, str] = {}
    queue = deque([target])
    while queue:
        node = queue.popleft()
        for near in neighbours[node]:
            if near != target and near not in towards and len(neighbours[near]) > 1:
                towards[near] = node
                queue.append(near)
    return towards


def path(topo: Topo, source: str, target: str) -> list[str]:
    """The nodes a packet from ``source`` to ``target`` crosses, both included (a shortest path)."""
    neighbours: dict[str, list[str]] = {}
    for a, b in topo.links():
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    previous: dict[str, str] = {source: source}
    queue = deque([source])
    while queue and target not in previous:
        node = queue.popleft()
        for near in neighbours.get(node, []):
            if near not in previous:
                previous[near] = node
                queue.append(near)
    if target not in previous:
        raise ValueError(f"no path from {source} to {target}")
    nodes = [target]
    while nodes[-1] != source:
        nodes.append(previous[nodes[-1]])
    return nodes[::-1]

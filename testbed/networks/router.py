"""A router as stock Mininet runs it."""

from __future__ import annotations

from typing import Any

from mininet.node import Node


class Router(Node):  # type: ignore[misc]
    """A node that forwards, with the static routes it is given (``routes=[(prefix, next hops), ...]``)."""

    def config(self, routes: Any = (), **params: Any) -> dict[str, Any]:
        result: dict[str, Any] = super().config(**params)
        self.cmd("sysctl -w net.ipv4.ip_forward=1")
        for prefix, next_hops in routes:
            self.cmd("ip route add", prefix, *(word for via in next_hops for word in ("nexthop", "via", via)))
        return result

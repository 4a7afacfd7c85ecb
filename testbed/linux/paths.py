"""The path of a flow among equally short ones (ECMP), as reported by the kernel.

Every router hashes addresses, protocol and ports (``fib_multipath_hash_policy=3``), as switches do. Policy 1 is documented
equally, but uses the random hash of the packet's socket (``l4_hash``, `fib_multipath_hash` in net/ipv4/route.c).
TCP draws another hash at every timeout. Each router has a separate seed, derived from the run's seed. With equal seeds,
consecutive routers make the same choice, and some paths stay unused. Ports are fixed (`testbed.replay.worker`). A seed therefore
gives the same paths to every congestion control, and to an isolated job.
"""

from __future__ import annotations

import socket
import struct

from testbed.core.errors import TestbedError
from testbed.core.netlink_attributes import attribute, attributes
from testbed.linux.network import Host, Network, link_name
from testbed.linux.rtnetlink import (
    RTA_DPORT,
    RTA_DST,
    RTA_IIF,
    RTA_IP_PROTO,
    RTA_OIF,
    RTA_SPORT,
    RTA_SRC,
    RTM_GETROUTE,
    RTMSG,
    Socket,
)
from testbed.transports import Connection

MOST_HOPS = 64


def taken(network: Network, flow: Connection, protocol: int = socket.IPPROTO_TCP) -> list[str]:
    """Return the links that packets of ``flow`` cross, in order: ``["l1-s2", …]``.

    Each node on the path reports its route for a packet with these addresses and ports. Routers must forward; otherwise
    they report none. Raises `TestbedError` for a loop.
    """
    nodes = {end.IP(): end.node for end in network.ends()}
    here, target, arrived = nodes[flow.saddr], nodes[flow.daddr], None
    links: list[str] = []
    while here is not target:
        if len(links) == MOST_HOPS:
            raise TestbedError(f"the route from {flow.saddr} to {flow.daddr} is a loop: {' '.join(links[:8])} …")
        index = _next(here, flow, protocol, arrived)
        out = next(end for end in here.intfList() if end.index == index)
        links.append(link_name(out))
        there = out.link.intf2 if out is out.link.intf1 else out.link.intf1
        here, arrived = there.node, there.index
    return links


def _next(here: Host, flow: Connection, protocol: int, arrived: int | None) -> int:
    """The index of the interface by which ``here`` sends what came in by interface ``arrived`` (None: its own)."""
    question = (
        RTMSG.pack(socket.AF_INET, 32, 32, 0, 0, 0, 0, 0, 0)
        + attribute(RTA_DST, socket.inet_aton(flow.daddr))
        + attribute(RTA_SRC, socket.inet_aton(flow.saddr))
        + attribute(RTA_IP_PROTO, bytes([protocol]))
        + attribute(RTA_SPORT, flow.sport.to_bytes(2, "big"))
        + attribute(RTA_DPORT, flow.dport.to_bytes(2, "big"))
    )
    if arrived is not None:
        question += attribute(RTA_IIF, struct.pack("=I", arrived))
    with Socket(here.namespace) as route:
        (answer,) = route.ask(RTM_GETROUTE, 0, question)
    return int.from_bytes(attributes(answer[RTMSG.size :])[RTA_OIF], "little")

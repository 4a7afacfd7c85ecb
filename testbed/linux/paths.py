"""Which links a flow takes where several paths are equally short (ECMP), told by the kernel itself.

Every router hashes addresses, protocol and ports (``fib_multipath_hash_policy=3``), as
switches do. Not with policy 1, whose name says the same: between namespaces a packet
brings along the hash its socket drew at random (``l4_hash``, `fib_multipath_hash` in
net/ipv4/route.c), and TCP draws another one at every timeout. Each router has a seed of
its own, from the run's: with the same one everywhere, routers one after the other
choose alike, and paths stay unused. Ports are fixed (`workloads.worker`), so that a seed
gives the same paths to every congestion control and to a job alone.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyroute2.netlink.rtnl.rtmsg import rtmsg

from core.errors import TestbedError
from testbed.linux.network import Host, Network, link_name
from testbed.linux.settings import Setting, Sysctl

HASH = "net.ipv4.fib_multipath_hash"
FIVE_TUPLE = 0x01 | 0x02 | 0x04 | 0x10 | 0x20  # source and destination IP, protocol, source and destination port
MOST_HOPS = 64

if rtmsg.nla_map[-1][0] == "RTA_EXPIRES":  # what pyroute2 (as of 0.9.7) lacks after it; the place is the number
    rtmsg.nla_map = (
        *rtmsg.nla_map,
        *[("RTA_PAD", "hex"), ("RTA_UID", "uint32"), ("RTA_TTL_PROPAGATE", "uint8")],
        *[("RTA_IP_PROTO", "uint8"), ("RTA_SPORT", "be16"), ("RTA_DPORT", "be16")],
    )


def seeded() -> bool:
    """Whether the kernel lets us seed its hash (Linux 6.11); else paths change from boot to boot."""
    return Path("/proc/sys", f"{HASH}_seed".replace(".", "/")).exists()


def settings(network: Network, seed: int) -> list[Setting]:
    """How every router chooses among equal paths; ``seed`` is the run's."""
    wanted: list[Setting] = []
    for host in network.hosts:
        if any(len(next_hops) > 1 for _, next_hops in host.params.get("routes", ())):
            wanted += [Sysctl(host.name, f"{HASH}_policy", "3"), Sysctl(host.name, f"{HASH}_fields", str(FIVE_TUPLE))]
            if seeded():
                wanted.append(Sysctl(host.name, f"{HASH}_seed", str(_seed(seed, host.name))))
    return wanted


def _seed(seed: int, router: str) -> int:
    """32 bits, not 0 (which means none)."""
    return int(hashlib.sha256(f"ecmp {seed} {router}".encode()).hexdigest()[:8], 16) or 1


def taken(network: Network, flow: Mapping[str, Any], protocol: int = socket.IPPROTO_TCP) -> list[str]:
    """The links that packets of ``flow`` (``saddr``, ``sport``, ``daddr``, ``dport``) cross, in order: ``["l1-s2", …]``.

    Each node on the way is asked for its route, as a packet with these addresses and
    ports would find it there; routers must forward (else they have no answer).
    """
    nodes = {end.IP(): end.node for end in network.ends()}
    here, target, arrived = nodes[flow["saddr"]], nodes[flow["daddr"]], None
    links: list[str] = []
    while here is not target:
        if len(links) == MOST_HOPS:
            raise TestbedError(f"the way from {flow['saddr']} to {flow['daddr']} never ends: {' '.join(links[:8])} …")
        index = _next(here, flow, protocol, arrived)
        out = next(end for end in here.intfList() if end.index == index)
        links.append(link_name(out))
        there = out.link.intf2 if out is out.link.intf1 else out.link.intf1
        here, arrived = there.node, there.index
    return links


def _next(here: Host, flow: Mapping[str, Any], protocol: int, arrived: int | None) -> int:
    """The index of the interface by which ``here`` sends what came in by interface ``arrived`` (None: its own)."""
    came = {} if arrived is None else {"iif": arrived}
    (route,) = here.ip.route(
        "get", dst=flow["daddr"], src=flow["saddr"], ip_proto=protocol, sport=flow["sport"], dport=flow["dport"], **came
    )  # fmt: skip
    return int(route.get_attr("RTA_OIF"))


def back(flow: Mapping[str, Any]) -> dict[str, Any]:
    """The same connection the other way, as its ACKs go."""
    return {"saddr": flow["daddr"], "sport": flow["dport"], "daddr": flow["saddr"], "dport": flow["sport"]}

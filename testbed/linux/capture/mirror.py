"""A device that gets a copy of each packet before it enters the queue of an interface: a filter at clsact that mirrors (``mirred``)."""

from __future__ import annotations

import errno

from pyroute2.netlink.exceptions import NetlinkError

from testbed.core.errors import MachineError
from testbed.core.netlink_attributes import attribute
from testbed.linux.network import VethIntf
from testbed.linux.queues.classify import ETH_P_ALL, u32
from testbed.linux.queues.turns import (
    CLSACT,
    CLSACT_PARENT,
    EGRESS,
    MIRRED,
    TCA_ACT_KIND,
    TCA_ACT_OPTIONS,
    TCA_MIRRED_PARMS,
    TCA_U32_ACT,
)
from testbed.linux.rtnetlink import Socket, Tc

GO_ON, EGRESS_MIRROR = (
    -1,
    2,
)  # action for the packet (TC_ACT_UNSPEC: later filters still apply), and action for its copy
FIRST = 1  # filter priority: before the classifier that marks
LACKING = (errno.ENOENT, errno.EOPNOTSUPP)


def mirrored(end: VethIntf) -> str:
    """The name of a new device next to ``end``. Raises `MachineError` where the kernel cannot copy packets."""
    ip, name = end.node.ip, f"copy{end.index}"
    try:
        ip.link("add", ifname=name, kind="ifb")
        index = int(ip.link_lookup(ifname=name)[0])
        ip.link("set", index=index, state="up")
        with Socket(end.node.namespace) as route:
            if not any(found.kind == "clsact" for found in route.shown(end.index, "qdisc")):
                route.add(end.index, Tc("qdisc", "clsact", CLSACT, CLSACT_PARENT, b""))
            route.add(end.index, _filter(index))
    except (NetlinkError, OSError) as error:
        code = error.code if isinstance(error, NetlinkError) else error.errno
        if code not in LACKING:
            raise
        raise MachineError(
            "--capture needs ifb, clsact, u32 and mirred (CONFIG_IFB, CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_U32, "
            "CONFIG_NET_ACT_MIRRED), but this machine's kernel lacks one of them. Use --on uml."
        ) from error
    return name


def _filter(index: int) -> Tc:
    """All packets that leave, copied to the interface ``index``."""
    does = attribute(TCA_MIRRED_PARMS, MIRRED.pack(0, 0, GO_ON, 0, 0, EGRESS_MIRROR, index))
    action = attribute(TCA_ACT_KIND, b"mirred\0") + attribute(TCA_ACT_OPTIONS, does)
    return u32(EGRESS, FIRST, 0, 0, 0, attribute(TCA_U32_ACT, attribute(1, action)), ETH_P_ALL)

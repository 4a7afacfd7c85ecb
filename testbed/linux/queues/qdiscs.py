"""Queueing disciplines as netlink attributes: what pyroute2 (as of 0.9.7) lacks of them."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

from pyroute2 import IPRoute
from pyroute2.netlink import nla
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT, tcmsg
from pyroute2.netlink.rtnl.tcmsg import sched_netem, sched_pfifo, sched_tbf

from testbed.linux import netns


class _Tbf(sched_tbf.options):  # type: ignore[misc]
    """With the 64-bit rate (above 34.3 Gbit/s) and the bucket in bytes."""

    nla_map = (
        *sched_tbf.options.nla_map,
        ("TCA_TBF_RATE64", "uint64"),
        ("TCA_TBF_PRATE64", "uint64"),
        ("TCA_TBF_BURST", "uint32"),
        ("TCA_TBF_PBURST", "uint32"),
        ("TCA_TBF_PAD", "hex"),
    )

    class tbf_parms(sched_tbf.options.tbf_parms):  # type: ignore[misc]  # noqa: N801 (looked up by this name)
        def encode(self) -> None:
            """As it is, without the rate table of the parent class."""
            nla.encode(self)


class _Netem(sched_netem.options):  # type: ignore[misc]
    """With delay and jitter in nanoseconds."""

    nla_map = (
        *sched_netem.options.nla_map,
        ("TCA_NETEM_ECN", "hex"),
        ("TCA_NETEM_RATE64", "uint64"),
        ("TCA_NETEM_PAD", "hex"),
        ("TCA_NETEM_LATENCY64", "int64"),
        ("TCA_NETEM_JITTER64", "int64"),
        ("TCA_NETEM_SLOT", "hex"),
        ("TCA_NETEM_SLOT_DIST", "hex"),
        ("TCA_NETEM_PRNG_SEED", "uint64"),
    )


class _Red(nla):  # type: ignore[misc]
    nla_map = (
        ("TCA_RED_UNSPEC", "none"),
        ("TCA_RED_PARMS", "red_parms"),
        ("TCA_RED_STAB", "cdata"),
        ("TCA_RED_MAX_P", "uint32"),
        ("TCA_RED_FLAGS", "cdata"),  # a bit field: value and selector, 32 bits each
    )

    class red_parms(nla):  # type: ignore[misc]  # noqa: N801
        fields = (
            ("limit", "I"), ("qth_min", "I"), ("qth_max", "I"),
            ("Wlog", "B"), ("Plog", "B"), ("Scell_log", "B"), ("flags", "B"),
        )  # fmt: skip


class _Prio(nla):  # type: ignore[misc]
    fields = (("bands", "i"), ("priomap", "16s"))


def teach() -> None:
    """Let pyroute2 use the classes above."""
    own = {"tbf": _Tbf, "netem": _Netem, "red": _Red, "prio": _Prio, "bfifo": sched_pfifo.options}
    for kind, options in own.items():
        tcmsg.plugins[kind] = SimpleNamespace(parent=TC_H_ROOT, options=options)


teach()

# The least that each takes, to find out whether the kernel has it.
_SMALLEST = {
    "netem": {"limit": 1000},
    "red": {"attrs": [("TCA_RED_PARMS", {"limit": 10**5, "qth_min": 10**4, "qth_max": 2 * 10**4}), ("TCA_RED_STAB", bytes(256))]},
    "prio": {"bands": 2, "priomap": bytes(16)},
}  # fmt: skip


def supported(kind: str) -> bool:
    """Whether the kernel has the qdisc ``kind`` (netem, red, prio), found by trying in a scratch namespace."""
    scratch = netns.create()
    try:
        with netns.entered(scratch), IPRoute() as ip:
            ip.tc("add", kind, 1, "1:", options=_SMALLEST[kind])
    except NetlinkError as error:
        if error.code == errno.ENOENT:
            return False
        raise
    finally:
        os.close(scratch)
    return True

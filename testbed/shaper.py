"""The bottleneck: a token bucket whose rate, bucket and buffer are set in bytes and read back.

TBF at the bottleneck only (`docs/fidelity.md`). The buffer is the byte limit of the
queue behind the bucket. With ``acks_first``, packets without payload have a band of
their own in front of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from pyroute2.netlink import nla
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import tcmsg
from pyroute2.netlink.rtnl.tcmsg import sched_pfifo, sched_tbf

from testbed.errors import MachineError
from testbed.network import Network
from testbed.settings import interface

TICK_NS = 64  # the kernel keeps the bucket as a time in units of 64 ns
ETHERNET_HEADER = 14
LINKLAYER_ETHERNET = 1  # lets the kernel compute transmission times itself, without a rate table
U32 = 0xFFFFFFFF
# Above this IPv4 length a packet carries data: a pure ACK with every option has 80 bytes.
ACK_MAX_BYTES = 128


class _Options(sched_tbf.options):  # type: ignore[misc]
    """TBF's options with the 64-bit rate (above 34.3 Gbit/s) and the bucket in bytes."""

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


def bucket_bytes(rate_bps: int, mtu: int, *, real_time: bool) -> int:
    """The smallest bucket that holds the rate: two frames, or 250 us of a real, jittery clock."""
    two_frames = 2 * (mtu + ETHERNET_HEADER)
    return max(two_frames, rate_bps // 8 // 4000) if real_time else two_frames


@dataclass(frozen=True)
class Shaper:
    """A TBF of ``rate_bps`` with ``burst_bytes`` of bucket and ``buffer_bytes`` of queue."""

    node: str
    device: str
    rate_bps: int
    burst_bytes: int
    buffer_bytes: int
    acks_first: bool = False

    @property
    def where(self) -> str:
        return self.device

    @property
    def what(self) -> str:
        return "shaper"

    @property
    def asked(self) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "rate_bps": self.rate_bps // 8 * 8,
            "burst_ticks": self.burst_bytes * 8 * 10**9 // self.rate_bps // TICK_NS,
            "buffer_bytes": self.buffer_bytes,
        }
        if self.acks_first:
            asked["bands"] = [self.buffer_bytes, self.buffer_bytes]
        return asked

    def apply(self, network: Network) -> None:
        end = interface(network, self.node, self.device)
        tc = end.node.ip.tc
        rate = self.rate_bps // 8
        parms = {"rate___reserved": LINKLAYER_ETHERNET, "rate": min(rate, U32), "limit": self.buffer_bytes}
        attrs: list[Any] = [("TCA_TBF_PARMS", parms), ("TCA_TBF_BURST", self.burst_bytes)]
        if rate > U32:
            attrs.append(("TCA_TBF_RATE64", rate))
        _use_own_options()
        tc("add", "tbf", end.index, "1:", options={"attrs": attrs})
        if self.acks_first:
            # Strict priority without sch_prio: HTB classes that never run out of tokens.
            plenty = min(2 * self.rate_bps, 30 * 10**9) // 8
            try:
                tc("add", "htb", end.index, "10:", parent="1:1", default=2)
            except NetlinkError as error:
                raise MachineError(
                    "--acks first needs the queueing discipline HTB, which this kernel does not have "
                    f"(CONFIG_NET_SCH_HTB): {error}. Leave it out, or use a kernel that has it."
                ) from error
            for band in (1, 2):
                tc(
                    "add-class", "htb", end.index, f"10:{band}", parent="10:", prio=band - 1,
                    rate=plenty, ceil=plenty, burst=1 << 20, cburst=1 << 20, quantum=60000,
                )  # fmt: skip
                tc("add", "bfifo", end.index, f"2{band}:", parent=f"10:{band}", limit=self.buffer_bytes)
            short = f"0x0000/0x{0xFFFF & ~(ACK_MAX_BYTES - 1):04x}+2"
            tc("add-filter", "u32", end.index, parent="10:", prio=1, protocol=0x0800,
               target="10:1", keys=[short])  # fmt: skip

    def read(self, network: Network) -> dict[str, Any]:
        end = interface(network, self.node, self.device)
        _use_own_options()
        found: dict[str, Any] = {}
        bands = []
        for qdisc in end.node.ip.get_qdiscs(index=end.index):
            options = qdisc.get("options")
            if qdisc.get("kind") == "tbf":
                parms = options.get("TCA_TBF_PARMS")
                rate = options.get("TCA_TBF_RATE64") or parms["rate"]
                ticks = parms["buffer"]
                if abs(ticks - self.asked["burst_ticks"]) <= 1:  # the kernel multiplies by a reciprocal
                    ticks = self.asked["burst_ticks"]
                found = {"rate_bps": rate * 8, "burst_ticks": ticks, "buffer_bytes": parms["limit"]}
            elif qdisc.get("kind") == "bfifo" and self.acks_first:
                bands.append(options["limit"])
        return {**found, "bands": bands} if bands else found


def _use_own_options() -> None:
    """Teach pyroute2 (as of 0.9.7) the attributes its TBF lacks, and bfifo."""
    tcmsg.plugins["tbf"] = SimpleNamespace(parent=sched_tbf.parent, options=_Options)
    tcmsg.plugins["bfifo"] = sched_pfifo

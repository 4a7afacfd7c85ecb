"""The bottleneck: a token bucket whose rate, bucket and buffer are set in bytes and read back.

TBF at the bottleneck only (`docs/fidelity.md`). Behind its bucket lies the queue: a FIFO
with a limit in bytes, or RED that marks. With ``acks_first``, packets without payload
have a band of their own in front of the data. With ``bands``, data is served in strict priority by the
class selector in its IP header (`workloads.bands`), each band from a FIFO of its own.

::

    TBF 1: ── queue                      plain, or RED 22:
    TBF 1: ── bands 10: ─┬─ FIFO 21:     pure ACKs          (PRIO, or HTB where there is none)
                         └─ queue 22:    data

    TBF 1: ── bands 10: ─┬─ FIFO 21:     highest band
                         ⋮
                         └─ FIFO 28:     lowest band: CS0, and whatever is not marked
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from core.errors import MachineError
from core.runs.plan import Marking
from testbed.linux.network import Network, VethIntf
from testbed.linux.queues import qdiscs  # noqa: F401 (teaches pyroute2 the 64-bit rate, RED, PRIO)
from testbed.linux.settings import interface
from workloads.bands import MOST, tos

TICK_NS = 64  # the kernel keeps the bucket as a time in units of 64 ns
ETHERNET_HEADER = 14
LINKLAYER_ETHERNET = 1  # lets the kernel compute transmission times itself, without a rate table
U32 = 0xFFFFFFFF
# Above this IPv4 length a packet carries data: a pure ACK with every option has 80 bytes.
ACK_MAX_BYTES = 128
RED_ECN, RED_NODROP, RED_ALL = 1, 8, 15
RED_FLAGS = struct.pack("=II", RED_ECN | RED_NODROP, RED_ALL)  # these, and none of the others


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
    marking: Marking | None = None
    bands: int = 1

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
        if self._fifos:
            asked["bands"] = [self.buffer_bytes] * self._fifos
        if self.marking:
            asked["marks_from_bytes"] = [self.marking.min_bytes, self.marking.max_bytes]
        return asked

    def apply(self, network: Network) -> None:
        end = interface(network, self.node, self.device)
        tc = end.node.ip.tc
        tc("add", "tbf", end.index, "1:", options=self._options())
        if self._fifos:
            self._bands(end, self._fifos)
        red = self.marking is not None
        for band in range(1, self._fifos + 1 - red):
            tc("add", "bfifo", end.index, f"{20 + band}:", parent=f"10:{band}", options={"limit": self.buffer_bytes})
        if self.acks_first:
            short = f"0x0000/0x{0xFFFF & ~(ACK_MAX_BYTES - 1):04x}+2"
            tc("add-filter", "u32", end.index, parent="10:", prio=1, protocol=0x0800,
               target="10:1", keys=[short])  # fmt: skip
        for band in range(1, self.bands):
            marked = f"0x{tos(band):04x}/0x{tos(MOST - 1):04x}+0"
            tc("add-filter", "u32", end.index, parent="10:", prio=2, protocol=0x0800,
               target=f"10:{self._fifos - band}", keys=[marked])  # fmt: skip
        if self.marking:
            self._red(end, self.marking)

    @property
    def _fifos(self) -> int:
        """Queues in strict priority; 0: there is but one."""
        queues = self.bands + self.acks_first
        return queues if queues > 1 else 0

    def change(self, network: Network) -> None:
        """Make the rate of the running shaper this one's; what waits in it stays."""
        end = interface(network, self.node, self.device)
        end.node.ip.tc("change", "tbf", end.index, "1:", options=self._options())

    def _options(self) -> dict[str, Any]:
        rate = self.rate_bps // 8
        parms = {"rate___reserved": LINKLAYER_ETHERNET, "rate": min(rate, U32), "limit": self.buffer_bytes}
        attrs: list[Any] = [("TCA_TBF_PARMS", parms), ("TCA_TBF_BURST", self.burst_bytes)]
        if rate > U32:
            attrs.append(("TCA_TBF_RATE64", rate))
        return {"attrs": attrs}

    @property
    def _data(self) -> str:
        """Where the queue hangs that marks."""
        return "10:2" if self.acks_first else "1:1"

    def _bands(self, end: VethIntf, bands: int) -> None:
        """``bands`` in strict priority, everything in the last unless a filter says otherwise."""
        tc = end.node.ip.tc
        try:
            tc(
                "add",
                "prio",
                end.index,
                "10:",
                parent="1:1",
                options={"bands": bands, "priomap": bytes([bands - 1] * 16)},
            )
            return
        except NetlinkError as error:
            if error.code != errno.ENOENT:
                raise
        # Without PRIO: HTB classes that never run out of tokens.
        plenty = min(2 * self.rate_bps, 30 * 10**9) // 8
        try:
            tc("add", "htb", end.index, "10:", parent="1:1", default=bands)
        except NetlinkError as error:
            raise MachineError(
                "--acks first and bands of priority need the queueing discipline PRIO or HTB, and this kernel has neither "
                f"(CONFIG_NET_SCH_PRIO): {error}. Leave it out, or use --on uml."
            ) from error
        for band in range(1, bands + 1):
            tc(
                "add-class", "htb", end.index, f"10:{band}", parent="10:", prio=band - 1,
                rate=plenty, ceil=plenty, burst=1 << 20, cburst=1 << 20, quantum=60000,
            )  # fmt: skip

    def _red(self, end: VethIntf, marking: Marking) -> None:
        parms = {
            "limit": self.buffer_bytes,
            "qth_min": marking.min_bytes,
            "qth_max": marking.max_bytes,
        }
        attrs = [
            ("TCA_RED_PARMS", parms),
            ("TCA_RED_STAB", bytes(256)),
            ("TCA_RED_MAX_P", round(marking.probability * U32)),
            # What cannot be marked is not dropped for it either.
            ("TCA_RED_FLAGS", RED_FLAGS),
        ]
        end.node.ip.tc("add", "red", end.index, "22:", parent=self._data, options={"attrs": attrs})

    def read(self, network: Network) -> dict[str, Any]:
        end = interface(network, self.node, self.device)
        found: dict[str, Any] = {}
        bands: list[int] = []
        for qdisc in end.node.ip.get_qdiscs(index=end.index):
            kind, options = qdisc.get("kind"), qdisc.get("options")
            if kind == "tbf":
                parms = options.get("TCA_TBF_PARMS")
                rate = options.get("TCA_TBF_RATE64") or parms["rate"]
                ticks = parms["buffer"]
                if abs(ticks - self.asked["burst_ticks"]) <= 1:  # the kernel multiplies by a reciprocal
                    ticks = self.asked["burst_ticks"]
                found |= {"rate_bps": rate * 8, "burst_ticks": ticks}
                found.setdefault("buffer_bytes", parms["limit"])
            elif kind == "red":
                parms = options.get("TCA_RED_PARMS")
                if options.get("TCA_RED_FLAGS") != RED_FLAGS:
                    return {"marks": False}
                found |= {"buffer_bytes": parms["limit"], "marks_from_bytes": [parms["qth_min"], parms["qth_max"]]}
                bands.append(parms["limit"])
            elif kind == "bfifo" and self._fifos:
                bands.append(options["limit"])
        return {**found, "bands": bands} if self._fifos else found

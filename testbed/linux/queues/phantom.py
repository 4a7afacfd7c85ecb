"""Marking where the kernel has no RED: a phantom queue in eBPF, in front of the shaper.

A classifier at the bottleneck's egress (clsact) computes how long the queue behind it is
at this instant and sets CE by RED's rule (kernel/bpf/phantom.bpf.c). It ends with the
interface it hangs on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from core.environment import ROOT
from core.errors import MachineError
from core.runs.plan import Marking
from testbed.linux import netns
from testbed.linux.loading import bpf
from testbed.linux.network import Network
from testbed.linux.settings import interface

PROGRAM = Path(ROOT) / "kernel" / "bpf" / "phantom.bpf.c"
EGRESS = 0xFFFFFFF3
U32 = 0xFFFFFFFF
NAME = "phantom"


@dataclass(frozen=True)
class PhantomQueue:
    """Marks at the bottleneck ``device`` as RED would with this rate, bucket, buffer and ``marking``."""

    node: str
    device: str
    rate_bps: int
    burst_bytes: int
    buffer_bytes: int
    marking: Marking
    _loaded: list[bpf.Program] = field(default_factory=list, compare=False)

    @property
    def where(self) -> str:
        return self.device

    @property
    def what(self) -> str:
        return "phantom queue"

    @property
    def constants(self) -> dict[str, int]:
        return {
            "rate_bps": self.rate_bps,
            "burst_bytes": self.burst_bytes,
            "limit_bytes": self.buffer_bytes,
            "min_bytes": self.marking.min_bytes,
            "max_bytes": self.marking.max_bytes,
            "probability": round(self.marking.probability * U32),
        }

    @property
    def asked(self) -> dict[str, Any]:
        return {"filter": NAME, **self.constants}

    @property
    def marks_fd(self) -> int:
        """The map whose value begins with the number of packets marked (64 bits)."""
        return self._loaded[0].map_fds["queue"]

    def apply(self, network: Network) -> None:
        end = interface(network, self.node, self.device)
        loaded = bpf.load_program(bpf.compile_program(PROGRAM), self.constants)
        self._loaded.append(loaded)
        _attach(end.node.ip, end.index, loaded.program_fd)

    def read(self, network: Network) -> dict[str, Any]:
        end = interface(network, self.node, self.device)
        names = [
            row.get_nested("TCA_OPTIONS", "TCA_BPF_NAME")
            for row in end.node.ip.get_filters(index=end.index, parent=EGRESS)
        ]
        held = bpf.read_constants(self._loaded[0].map_fds, bpf.compile_program(PROGRAM), self.constants)
        return {"filter": next((name for name in names if name), None), **held}


def _attach(ip: IPRoute, index: int, program_fd: int) -> None:
    ip.tc("add", "clsact", index)
    ip.tc("add-filter", "bpf", index, fd=program_fd, name=NAME, parent=EGRESS, classid=1, direct_action=True)


def check() -> None:
    """Raises `MachineError` if this kernel takes no such program, with what would help."""
    loaded = bpf.load_program(bpf.compile_program(PROGRAM), {})
    scratch = netns.create()
    try:
        with netns.entered(scratch), IPRoute() as ip:
            _attach(ip, 1, loaded.program_fd)
    except NetlinkError as error:
        raise MachineError(
            "--ecn needs sch_red, or eBPF classifiers in its place (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF); this "
            f"machine's kernel has neither ({error}). Use --on uml."
        ) from error
    finally:
        loaded.close()
        os.close(scratch)

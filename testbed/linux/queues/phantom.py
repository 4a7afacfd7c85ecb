"""Marking where the kernel has no RED: a phantom queue in eBPF, in front of the shaper.

A classifier at the bottleneck's egress (`testbed.linux.loading.classifier`) computes how long the queue behind it is at this
instant and sets CE by RED's rule (kernel/bpf/phantom.bpf.c). It ends with the interface it hangs on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.core.runs.plan import Marking
from testbed.linux.kernel import Kernel
from testbed.linux.queues.rates import U32

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

    @property
    def where(self) -> str:
        return self.device

    @property
    def what(self) -> str:
        return "phantom queue"

    @property
    def line(self) -> str:
        marking = self.marking
        return (
            f"mark by a phantom queue in eBPF: from {marking.min_bytes} B, from {marking.max_bytes} B with "
            f"{marking.probability:.4%}, as at {self.rate_bps} bit/s"
        )

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

    def apply(self, kernel: Kernel) -> None:
        kernel.classify(self.node, self.device, NAME, self.constants)

    def read(self, kernel: Kernel) -> dict[str, Any]:
        return kernel.classified(self.node, self.device, self.constants)

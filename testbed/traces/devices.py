"""The speed of a device, which converts the work of a trace (operations, bytes of memory) into time.

A compute takes as long as the slower of its two parts (the roofline model: Williams, Waterman, and Patterson, CACM 2009): its operations
at `peak` × `mfu`, or its bytes at `memory`. `mfu` is the fraction of the peak that training reaches (model FLOPs utilization:
Chowdhery et al., PaLM, 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec

from testbed.core.errors import RequestError
from testbed.core.text import decimal, quoted
from testbed.core.units import Duration, Quantity

USUAL_MFU = 0.4  # Llama 3 (Dubey et al., 2024): 38 to 43 % on H100; PaLM: 46 % on TPU v4


class Flops(Quantity):
    """Floating-point operations per second."""

    noun = "speed of computing"
    examples = "312tflops, 1.98pflops"
    units: ClassVar[dict[str, int]] = {"gflops": 10**9, "tflops": 10**12, "pflops": 10**15}
    limit = 10**20
    written = (("pflops", 10**15), ("tflops", 10**12), ("gflops", 10**9))


class Bandwidth(Quantity):
    """Bytes per second to and from memory."""

    noun = "memory bandwidth"
    examples = "2tb/s, 900gb/s"
    units: ClassVar[dict[str, int]] = {"mb/s": 10**6, "gb/s": 10**9, "tb/s": 10**12}
    limit = 10**17
    written = (("tb/s", 10**12), ("gb/s", 10**9), ("mb/s", 10**6))


@dataclass(frozen=True)
class Device:
    """The limits of a device; None: unknown, so a trace that needs the value is refused."""

    name: str
    peak: float | None  # operations a second,
    mfu: float  # fraction of the peak that training reaches
    memory: float | None  # bytes a second

    def __str__(self) -> str:
        peak = f"{decimal(self.peak * self.mfu / 1e12)} TFLOP/s (MFU {self.mfu:.0%})" if self.peak else ""
        memory = f"{decimal(self.memory / 1e12)} TB/s" if self.memory else ""
        return f"{self.name}: {', '.join(filter(None, (peak, memory)))}"

    def takes(self, flops: float | None, memory_bytes: int | None) -> Duration:
        """The time for this much work in seconds; raises `RequestError` if this device has no such figure."""
        if flops and not self.peak:
            raise RequestError(
                f"{self.name} has no speed, and the trace has work in flops. Give --peak, or a --device", where="peak"
            )
        if memory_bytes and not self.memory:
            raise RequestError(
                f"{self.name} has no memory bandwidth, and the trace has work in memory_bytes. Give --memory, or a --device",
                where="memory",
            )
        by_flops = flops / (self.peak * self.mfu) if flops and self.peak else 0.0
        by_memory = memory_bytes / self.memory if memory_bytes and self.memory else 0.0
        seconds = max(by_flops, by_memory)
        if seconds * 1e9 > Duration.limit:
            raise RequestError(
                f"a compute of {flops or 0:g} operations and {memory_bytes or 0} bytes takes {seconds:g} s on {self.name}. Nothing can emulate this",
                where="device",
            )
        return Duration(round(seconds * 1e9))


class ComputesOn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The device that a trace is meant for: the values of its name, and values that replace them."""

    name: str | None = None
    peak: Flops | None = None
    mfu: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    memory: Bandwidth | None = None

    def device(self, mfu: float | None = None) -> Device:
        """Return the device, with another MFU if ``mfu`` is given. Raises `RequestError` if no device is named."""
        found = device(self.name, self.peak, self.mfu if mfu is None else mfu, self.memory)
        if found is None:
            raise RequestError("names no device. Give a name, or peak and memory", where="device")
        return found


# Dense peak at 16 bits (BF16 or FP16 with FP32 sums; V100: FP16), and memory bandwidth, of the variant on an SXM or OAM module.
# From the makers' data sheets: NVIDIA V100 (2020), A100 80GB (2021), H100 (2023), H200 (2024), B200 (Blackwell architecture brief, 2024: half
# of the sparse figure), L40S (2023, PCIe), RTX 4090 (Ada architecture whitepaper, 2022); AMD Instinct MI250X (2021), MI300X (2023);
# Google Cloud TPU v4, v5e, v5p (documentation of system architecture, per chip).
KNOWN: dict[str, tuple[float, float]] = {
    "v100": (125e12, 0.9e12),
    "a100": (312e12, 2.039e12),
    "h100": (989.4e12, 3.35e12),
    "h200": (989.4e12, 4.8e12),
    "b200": (2250e12, 8e12),
    "l40s": (362e12, 0.864e12),
    "rtx4090": (165.2e12, 1.008e12),
    "mi250x": (383e12, 3.2768e12),
    "mi300x": (1307.4e12, 5.3e12),
    "tpu-v4": (275e12, 1.2288e12),
    "tpu-v5e": (197e12, 0.819e12),
    "tpu-v5p": (459e12, 2.765e12),
}


def device(name: str | None, peak: Flops | None, mfu: float | None, memory: Bandwidth | None) -> Device | None:
    """The requested device; explicit values replace those of its name. None: none is requested."""
    if name is None and peak is None and memory is None:
        if mfu is not None:
            raise RequestError("is a fraction of a peak, but no peak is given. Give --device or --peak", where="mfu")
        return None
    if name is not None and name.lower() not in KNOWN:
        raise RequestError(
            f"{quoted(name)} is unknown. There are {', '.join(KNOWN)}. Or give --peak, --mfu and --memory",
            where="device",
        )
    known: tuple[float | None, float | None] = KNOWN[name.lower()] if name is not None else (None, None)
    share = USUAL_MFU if mfu is None else mfu
    if not share or peak == 0 or memory == 0:
        raise RequestError(
            "is 0. Give a positive number", where="mfu" if not share else "peak" if peak == 0 else "memory"
        )
    label = name.lower() if name is not None else "this device"
    return Device(label, float(peak) if peak else known[0], share, float(memory) if memory else known[1])

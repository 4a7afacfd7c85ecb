"""Bands in strict priority: PRIO, or HTB classes that never run out of tokens where a kernel has no PRIO."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.core.netlink_attributes import attribute, attributes
from testbed.linux.queues import classify as rules
from testbed.linux.queues.classify import Classify
from testbed.linux.queues.discipline import Discipline
from testbed.linux.queues.fifo import Fifo
from testbed.linux.queues.rates import RATESPEC, ratespec, ticks
from testbed.linux.queues.red import Red
from testbed.linux.queues.tree import Leaf, Queue
from testbed.linux.rtnetlink import Tc, handle

PRIORITIES = 16  # of a packet inside the kernel, each mapped to a band
QOPT = struct.Struct(f"=i{PRIORITIES}s")  # struct tc_prio_qopt


@dataclass(frozen=True)
class _Bands(Leaf):
    """Queues ``bands``, highest priority first; a packet that no filter matches goes into the last."""

    bands: tuple[Fifo | Red | Discipline | Htb, ...]
    classify: tuple[Classify, ...]

    @property
    def children(self) -> Mapping[int, Queue]:
        return dict(enumerate(self.bands, 1))

    @property
    def buffer_bytes(self) -> int:
        return max(band.buffer_bytes for band in self.bands)

    def filters(self, major: int) -> Iterable[Tc]:
        return rules.filters(self.classify, len(self.bands), major)


@dataclass(frozen=True)
class Prio(_Bands):
    """Bands that the kernel has."""

    kind: ClassVar[str] = "prio"

    @property
    def _last(self) -> bytes:
        return bytes([len(self.bands) - 1] * PRIORITIES)

    def options(self) -> bytes:
        return QOPT.pack(len(self.bands), self._last)

    def asked(self, major: int) -> dict[str, Any]:
        count = len(self.bands)
        return {"bands": count, "priomap": list(self._last), "filters": rules.asked(self.classify, count)}

    def held(self, options: bytes, classes: Sequence[Tc], filters: Sequence[Tc]) -> dict[str, Any]:
        bands, priomap = QOPT.unpack_from(options)
        return {"bands": bands, "priomap": list(priomap), "filters": rules.held(filters)}


HTB_VERSION, RATE_TO_QUANTUM = 3, 10
HTB_LEVELS = 8  # levels of priority; the kernel maps higher numbers to the last
TCA_HTB_PARMS, TCA_HTB_INIT = 1, 2
GLOB = struct.Struct("=IIIII")  # struct tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts
# struct tc_htb_opt after its two ratespecs: buffer, cbuffer, quantum, level, prio
CLASS = struct.Struct("=IIIII")
BURST_BYTES, QUANTUM_BYTES = 1 << 20, 60_000


@dataclass(frozen=True)
class Htb(_Bands):
    """Strict priority by HTB, as `Prio`; ``plenty`` (bytes/s) exceeds the largest arrival rate."""

    kind: ClassVar[str] = "htb"
    plenty: int

    def __post_init__(self) -> None:
        if len(self.bands) > HTB_LEVELS:
            raise ValueError(f"HTB tells {HTB_LEVELS} levels of priority apart, not {len(self.bands)}")

    def options(self) -> bytes:
        return attribute(TCA_HTB_INIT, GLOB.pack(HTB_VERSION, RATE_TO_QUANTUM, len(self.bands), 0, 0))

    @property
    def _bucket(self) -> int:
        return ticks(BURST_BYTES, self.plenty)

    def classes(self, major: int) -> Iterator[Tc]:
        for level in range(len(self.bands)):
            bucket = self._bucket
            parms = ratespec(self.plenty) * 2 + CLASS.pack(bucket, bucket, QUANTUM_BYTES, 0, level)
            yield Tc("class", self.kind, handle(major, level + 1), handle(major), attribute(TCA_HTB_PARMS, parms))

    def asked(self, major: int) -> dict[str, Any]:
        each = {
            "rate_bps": self.plenty * 8,
            "ceil_bps": self.plenty * 8,
            "burst_ticks": self._bucket,
            "cburst_ticks": self._bucket,
            "quantum_bytes": QUANTUM_BYTES,
        }
        return {
            "default": len(self.bands),
            "classes": [{**each, "priority": level} for level in range(len(self.bands))],
            "filters": rules.asked(self.classify, len(self.bands)),
        }

    def held(self, options: bytes, classes: Sequence[Tc], filters: Sequence[Tc]) -> dict[str, Any]:
        _, _, default, _, _ = GLOB.unpack_from(attributes(options)[TCA_HTB_INIT])
        ordered = sorted(classes, key=lambda one: one.handle)
        return {"default": default, "classes": [_held(one) for one in ordered], "filters": rules.held(filters)}


def _held(shown: Tc) -> dict[str, Any]:
    parms = attributes(shown.options)[TCA_HTB_PARMS]
    rate, ceil = (RATESPEC.unpack_from(parms, at)[-1] for at in (0, RATESPEC.size))
    burst, cburst, quantum, _, level = CLASS.unpack_from(parms, 2 * RATESPEC.size)
    return {
        "rate_bps": rate * 8,
        "ceil_bps": ceil * 8,
        "burst_ticks": burst,
        "cburst_ticks": cburst,
        "quantum_bytes": quantum,
        "priority": level,
    }

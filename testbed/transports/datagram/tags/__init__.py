"""Rules that select the important packets of a message and give each its priority queue (the paper's ``prio_func``).

A layer's queue is i · P ÷ L of P (MLT, section 3): layers needed first go first. A packet's importance is the mean
magnitude of its numbers. The published rule compares it with the median magnitude of the tensor's numbers. A mean of
many numbers is rarely below that, so most packets count as important (98 % of ResNet18's as first measured, 86 to 91 %
by `tools/tagged_share.py`). The paper leaves open whether magnitudes are absolute values: `signed-median` keeps the
signs. `packet-median`, the testbed's addition, selects the upper half of packets. For parameters that a server returns,
their update decides, where it is known (`Message.weighs`).

A replay has messages without content. The measured fraction of its packets is important, sampled by name. A trace may
instead give the importance of an operation (`importance`): a fraction of its packets, or the distribution of their
magnitudes ÷ the median magnitude of the tensor's numbers, as evenly spaced quantiles.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from statistics import median

from testbed.transports import Buffer, Importance, Message, Phase, Span, Tag, Tagger, resyncs
from testbed.transports.datagram import native

RULES = ("packet-median", "element-median", "signed-median", "random", "none")
SAMPLED = 20  # stride of the numbers of a tensor sampled for its median: 5 % (MLT, section 3)
IMPORTANT = {
    "packet-median": 0.5,
    "element-median": 0.98,
    "signed-median": 0.5,
    "random": 0.5,
    "none": 1.0,
}  # for bytes without content
FLOAT, DOUBLE = 4, 8  # bytes
GOLDEN = 0.618  # fraction of a message between packets of neighbouring importance


@dataclass(frozen=True)
class Rule:
    """One of the `RULES`, for switches with ``bands`` priority queues.

    ``tolerance``: the fraction that may be missing; 0: no packet may be dropped. ``whole``: parameters are complete.
    ``resync``: the period in rounds of complete messages (`transports.Close`).
    """

    name: str
    bands: int
    tolerance: float | Phase = 1.0
    whole: bool = False
    resync: int = 0

    def __call__(self, m: Message, data: Buffer | None, segment: int) -> Tagger:
        """Return the tagger of ``m`` in packets of ``segment`` bytes; it must be called for one packet after the
        other."""
        count = -(-m.bytes // segment)
        whole = m.stage == "parameter" and (self.whole or resyncs(self.resync, m.round))
        tolerance = self.tolerance.of(m.round) if isinstance(self.tolerance, Phase) else self.tolerance
        drops = tolerance > 0 and not whole
        chosen = important(self.name, m, data if m.weighs is None else m.weighs, segment) if drops else [True] * count
        here = band(m.layer, m.layers, self.bands)

        def tag(span: Span, _content: Buffer | Importance) -> Tag:
            begin, end = span[0], span[0] + span[1]
            critical = any(begin < at + size and at < end for at, size in m.critical)
            return Tag(here, droppable=not (critical or chosen[begin // segment]))

        return tag


def band(layer: int, layers: int, bands: int) -> int:
    """The class selector of a layer's packets: of P bands the first layers have the highest, P - 1."""
    return bands - 1 - min(bands - 1, layer * bands // max(layers, 1))


def important(rule: str, m: Message, data: Buffer | None, segment: int) -> Sequence[bool]:
    """Return for each packet of a message whether it is important; ``data`` has numbers of ``m.element`` bytes, 4 or 8
    (None: no content)."""
    count = -(-m.bytes // segment)
    if rule in ("random", "none") or (data is None and not m.importance):
        return _drawn(m, count, IMPORTANT[rule])
    if data is None:
        return _upper(m, count, _share(rule, m.importance))
    signed = rule == "signed-median"
    found = means(data, segment, m.element, signed=signed)
    if rule == "packet-median":
        kept = set(sorted(range(count), key=lambda at: (-found[at], at))[: -(-count // 2)])
        return [at in kept for at in range(count)]
    whole = memoryview(data).cast("B")
    numbers = (whole.cast("f") if m.element == FLOAT else whole.cast("d"))[::SAMPLED]
    limit = median(numbers if signed else map(abs, numbers))
    return [value >= limit for value in found]


def means(data: Buffer, segment: int, element: int, *, signed: bool = False) -> list[float]:
    """The mean of the numbers in each packet, absolute unless ``signed``; raises `ValueError` for others than of 4 or 8 bytes."""
    if element not in (FLOAT, DOUBLE):
        raise ValueError(f"numbers of {element} bytes have no importance here: 4 (float32) or 8 (float64)")
    whole = memoryview(data).cast("B")
    content = bytes(whole) if whole.readonly else (ctypes.c_char * whole.nbytes).from_buffer(whole)
    found = (ctypes.c_double * -(-whole.nbytes // segment))()
    native.load().means_of(content, whole.nbytes, segment, element, signed, found)
    return list(found)


def drawn(m: Message, count: int) -> list[Importance]:
    """The importance of each packet of a message without content, the same at every run: as the message gives it, 0 without one."""
    if len(m.importance) < 2:
        return [Importance(float(one)) for one in _upper(m, count, sum(m.importance))]
    last = len(m.importance) - 1
    places = ((rank + 0.5) / count * last for rank in _ranks(m, count))
    return [Importance(_between(m.importance, place)) for place in places]


def _upper(m: Message, count: int, share: float) -> list[bool]:
    """Whether a packet is among the more important ones, so large a share of all."""
    least = count - round(share * count)
    return [rank >= least for rank in _ranks(m, count)]


def _share(rule: str, importance: tuple[float, ...]) -> float:
    """Its important packets: as a trace gives them, or as the rule finds them in the trace's magnitudes."""
    if len(importance) == 1:
        return importance[0]
    if rule != "element-median":  # of magnitudes; a trace has no signs
        return IMPORTANT[rule]
    below = sum(_below(low, high) for low, high in pairwise(importance))
    return 1 - below / (len(importance) - 1)


def _below(low: float, high: float) -> float:
    """How much of what lies evenly between two quantiles is below the median of the tensor, which is 1."""
    return float(low < 1) if high == low else min(1.0, max(0.0, (1 - low) / (high - low)))


def _between(values: tuple[float, ...], place: float) -> float:
    low = min(int(place), len(values) - 2)
    return values[low] + (place - low) * (values[low + 1] - values[low])


def _ranks(m: Message, count: int) -> Iterator[int]:
    """The place of each packet from the least important (0) up, the same at every run; neighbours differ."""
    step = next(step for step in range(max(1, round(count * GOLDEN)), count + 2) if gcd(step, count) == 1)
    first = _first(m)
    return ((first + at * step) % count for at in range(count))


def _first(m: Message) -> int:
    seed = hashlib.sha256(f"{m.round} {m.operation} {m.part}".encode()).digest()
    return int.from_bytes(seed[:4], "big")


def _drawn(m: Message, count: int, share: float) -> list[bool]:
    """So large a share of the packets, the same at every run: by round, operation and part."""
    wanted = round(share * count)
    if wanted == count:
        return [True] * count
    first = _first(m)
    # Spread evenly: a packet is in if with it another multiple of the share has been passed.
    return [((first + at + 1) * wanted) // count > ((first + at) * wanted) // count for at in range(count)]

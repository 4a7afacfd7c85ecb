"""Check ``--capture``, and estimate the number of captured packets, which sets the memory of the capture."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from mininet.topo import Topo

from testbed.core.errors import RequestError
from testbed.core.runs.plan import Capture, JobPlan, Plan
from testbed.core.text import closest, quoted
from testbed.core.units import Size
from testbed.models.frames import frame, payload_share
from testbed.spec import Spec
from testbed.spec.backend_names import is_computed

BLOCK_BYTES = 44  # overhead of a packet in a pcapng file
RING_BYTES = 92  # maximum overhead of a packet in a ring
ACK_BYTES = 66
ACKS = 1  # largest number of ACKs per data packet
DRAIN_S, MARGIN = 0.1, 4  # a ring holds MARGIN times the data that a link carries in DRAIN_S seconds
LEAST_PACKETS, MOST_BYTES = 1 << 14, 16 << 20  # of a ring
TAPS = 4  # rings of a link or of a host with one interface: both directions, before and after the queue
LARGEST = 10**9  # bytes of a run's captures, which are in memory at its end
MOST_PLACES = 16
ITERATIONS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)


def captured(spec: Spec, topo: Topo, plan: Plan) -> Capture | None:
    """The captures that ``spec`` requests of ``plan``. Raises `RequestError`."""
    if not spec.capture:
        if spec.capture_iterations is not None:
            raise RequestError("capture_iterations: nothing is captured. Add --capture s1-s2, or leave it out.")
        return None
    if is_computed(spec.on):
        raise RequestError("capture: the flow-level simulator has no packets. Use --on uml.")
    if spec.stop_when_periodic:
        raise RequestError(
            "capture: --stop-when-periodic fills in iterations, which have no packets. Leave out one of the two."
        )
    places = _places(spec, topo)
    first, last = _iterations(spec)
    snaplen = min(spec.snaplen, frame(plan.link.mtu))
    rate_bps = max([link.rate_bps for link in plan.bottlenecks.values()] + [plan.sender.nic_bps or 0])
    per_s = (1 + ACKS) * rate_bps / 8 / frame(plan.link.mtu)
    ring = min(
        max(LEAST_PACKETS, math.ceil(MARGIN * DRAIN_S * per_s)),
        max(LEAST_PACKETS, MOST_BYTES // (snaplen + RING_BYTES)),
    )
    ends = sum(max(1, len(list(_links(topo, place)))) for place in places)
    packets, size = _estimate(plan.jobs, plan.link.mtu, snaplen, first, last)
    found = Capture(
        places, snaplen, ring, int(1e9 * min(DRAIN_S, ring / MARGIN / per_s)), 2 * len(places) * packets,
        2 * len(places) * size, TAPS * ends * ring * (snaplen + RING_BYTES), first, last,
    )  # fmt: skip
    if found.bytes > LARGEST:
        raise RequestError(
            f"{described(found)} That is more than {Size(LARGEST)}. Capture fewer iterations (--capture-iterations 3-5), fewer places, or "
            "less of each packet (--snaplen)."
        )
    return found


def _links(topo: Topo, place: str) -> Iterable[tuple[str, str]]:
    return (link for link in topo.links() if place in link)


def _places(spec: Spec, topo: Topo) -> tuple[str, ...]:
    links = ["-".join(ends) for one, other in topo.links() for ends in ((one, other), (other, one))]
    known = [*topo.nodes(), *links]
    for place in spec.capture:
        if place not in known:
            close = closest(place, known)
            hint = f" Did you mean {close}?" if close else ""
            raise RequestError(
                f"capture: {spec.topo} has no link or host {quoted(place)}.{hint} Its links are {', '.join(links[:20:2])}"
                f"{', …' if len(links) > 20 else ''}."
            )
    places = tuple(dict.fromkeys(spec.capture))
    if len(places) > MOST_PLACES:
        raise RequestError(
            f"capture: {len(places)} places, and at most {MOST_PLACES} are captured in one run. Name fewer."
        )
    return places


def _iterations(spec: Spec) -> tuple[int, int | None]:
    if spec.capture_iterations is None:
        return 0, None
    match = ITERATIONS.fullmatch(spec.capture_iterations)
    if match is None:
        raise RequestError(
            f"capture_iterations: {quoted(spec.capture_iterations)} is neither a number nor a range of numbers. Write 7, or 3-5."
        )
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last or first >= spec.iterations:
        raise RequestError(
            f"capture_iterations: {spec.capture_iterations} is not a range within 0 to {spec.iterations - 1}, the iterations of this "
            "run. Write the smaller number first."
        )
    return first, last


def _estimate(jobs: Iterable[JobPlan], mtu: int, snaplen: int, first: int, last: int | None) -> tuple[int, int]:
    """Packets and bytes that pass one place, if all that the jobs send crosses it; retransmissions not included."""
    payload = frame(mtu) * payload_share(mtu)
    data = 0.0
    for job in jobs:
        end = job.iterations if last is None else min(last + 1, job.iterations)
        data += max(0, end - first) * sum(job.bytes_per_worker) / payload
    each = BLOCK_BYTES + min(snaplen, frame(mtu)) + ACKS * (BLOCK_BYTES + min(snaplen, ACK_BYTES))
    return math.ceil(data * (1 + ACKS)), math.ceil(data * each)


def described(capture: Capture, *, background: bool = False) -> str:
    """The estimate in words; ``background``: whether there is background traffic, which it does not count."""
    if not capture.packets:
        return f"Capture of {', '.join(capture.places)}: as many packets as the programs send, a number that is not known in advance."
    return (
        f"Capture of {', '.join(capture.places)}: about {capture.packets:,} packets at most{' besides background traffic' * background}, {_megabytes(capture.bytes)} a run; "
        f"{_megabytes(capture.memory_bytes)} of memory for rings."
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"

"""Lower bounds of a network: the isolated duration of a collective, and the load of bottlenecks.

Every link with a limited rate counts: bottlenecks, and NICs, which all flows of a host share.

A connection uses one path. Among equally short ones, the kernel's hash chooses, and two connections may share one link
while another is idle. The bounds here are those of the best choice: of the links of a stage, the fullest carries at
least the mean, and at least what connections that outnumber the links must share. This is a lower bound; a run with an
unfavourable hash is slower, which `isolated_s` shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

from mininet.topo import Topo

from testbed.models.frames import HEADERS, frame, payload_share
from testbed.networks.routed import stages
from testbed.transports import Flow


class Shaped(Protocol):
    """The properties of a link of a limited rate."""

    @property
    def rate_bps(self) -> int: ...
    @property
    def mtu(self) -> int: ...


BURST_FRAMES = 2  # frames that a shaper passes at once (`testbed.linux.queues.rates`)
ACK = HEADERS  # bytes of a packet without payload

# Which workers of a collective wait for each other before they continue.
Waits = Literal["all", "hub", "nothing"]
Stage = tuple[str, ...]  # names of the links of which a flow crosses one


def crossed(topo: Topo, links: Mapping[str, Shaped], source: str, target: str) -> list[Stage]:
    """Return the stages between ``source`` and ``target`` whose links are all among ``links``."""
    named = [tuple(f"{a}-{b}" for a, b in stage) for stage in stages(topo, source, target)]
    return [stage for stage in named if all(name in links for name in stage)]


def exchange_s(
    rounds: Iterable[dict[Flow, int]], channels: int, hosts: Sequence[str], topo: Topo, links: Mapping[str, Shaped]
) -> float:
    """A collective in isolation, in seconds: in each round every byte, headers included, at the rate of the busiest of ``links``.

    ``links``: every direction of a limited rate, bottlenecks and NICs, by its name ("h1-s1": what h1 sends).
    """
    total = 0.0
    for payload in rounds:
        sizes: dict[Stage, list[int]] = {}
        for (source, target), size in payload.items():
            for stage in crossed(topo, links, hosts[source], hosts[target]):
                sizes.setdefault(stage, []).append(size)
        total += max(
            (_fullest_s([links[name] for name in stage], sizes[stage], channels) for stage in sizes), default=0.0
        )
    return total


def overlapped_s(
    rounds: Sequence[dict[Flow, int]], channels: int, hosts: Sequence[str], topo: Topo, links: Mapping[str, Shaped],
    waits: Waits, send_bytes: int,
) -> float:  # fmt: skip
    """Return the lower bound of a collective, in seconds, if workers do not all wait for each other, so that part of
    it overlaps computing.

    ``hub``: a worker that has its result continues, and sends the next tensor while others still receive. Then only the
    last to receive, or the first to send, counts in full. ``nothing``: a worker continues once at most ``send_bytes``
    are left in its socket.
    """

    def least_s(payload: dict[Flow, int]) -> float:
        alone = ({flow: size} for flow, size in payload.items() if size)
        return min((exchange_s([one], channels, hosts, topo, links) for one in alone), default=0.0)

    whole = [exchange_s([payload], channels, hosts, topo, links) for payload in rounds]
    if waits == "hub" and len(rounds) == 2:
        first, last = map(least_s, rounds)
        return max(first + whole[1], whole[0] + last)
    if waits == "nothing":
        slowest = min((link.rate_bps for link in links.values()), default=math.inf)
        return max(0.0, sum(whole) - send_bytes * 8 / slowest)
    return sum(whole)


def loaded_s(
    payloads: Iterable[Mapping[Flow, float]], hosts: Sequence[str], topo: Topo, links: Mapping[str, Shaped]
) -> float:
    """Return the time in seconds that the busiest link needs for all payloads (bytes by flow), at any time of sending."""
    return max(_loads_s(payloads, hosts, topo, links).values(), default=0.0)


def saved_s(payload: Mapping[Flow, int], hosts: Sequence[str], topo: Topo, links: Mapping[str, Shaped]) -> float:
    """Return the largest gain of a round by shapers' buckets, in seconds, minus the cost of ACKs.

    A bucket lets some frames pass at once after a pause. TCP acknowledges at least every other segment. If data goes in
    both directions over a link, the link carries their ACKs, too.
    """
    data_s = _loads_s([payload], hosts, topo, links)
    mtu = next((link.mtu for link in links.values()), 1500)
    acks = {(b, a): size * ACK / (2 * frame(mtu)) for (a, b), size in payload.items()}
    acks_s = _loads_s([acks], hosts, topo, links)
    bursts_s = {stage: BURST_FRAMES * frame(mtu) * 8 / min(links[name].rate_bps for name in stage) for stage in data_s}
    least_s = max((each + acks_s.get(stage, 0.0) - bursts_s[stage] for stage, each in data_s.items()), default=0.0)
    return max(0.0, max(data_s.values(), default=0.0) - max(0.0, least_s))


def _loads_s(
    payloads: Iterable[Mapping[Flow, float]], hosts: Sequence[str], topo: Topo, links: Mapping[str, Shaped]
) -> dict[Stage, float]:
    """How long each stage needs for what crosses it, all of its links together."""
    sizes: dict[Stage, float] = {}
    for payload in payloads:
        for (source, target), size in payload.items():
            for stage in crossed(topo, links, hosts[source], hosts[target]):
                sizes[stage] = sizes.get(stage, 0.0) + size
    return {
        stage: _seconds([links[name] for name in stage], size, sum(links[name].rate_bps for name in stage))
        for stage, size in sizes.items()
    }


def _seconds(links: Sequence[Shaped], payload: float, rate_bps: float) -> float:
    """Headers, as these links have them, included."""
    return payload / payload_share(links[0].mtu) * 8 / rate_bps


def loads(payload: Mapping[Flow, int], ways: Mapping[Flow, Sequence[Stage]]) -> dict[str, float]:
    """Return the payload bytes on each bottleneck; ``ways``: the stages that each flow crosses (`crossed`), each of a
    single link."""
    found: dict[str, float] = {}
    for flow, size in payload.items():
        for (name,) in ways[flow]:
            found[name] = found.get(name, 0.0) + size
    return found


def _fullest_s(links: Sequence[Shaped], sizes: list[int], channels: int) -> float:
    """The least time for flows of these ``sizes``, each in ``channels`` connections, over these links side by side."""
    rates = [link.rate_bps for link in links]
    mean = _seconds(links, sum(sizes), sum(rates))
    if len(links) == 1:
        return mean
    # At least this many of the k largest share a link.
    largest = sorted((size / channels for size in sizes for _ in range(channels)), reverse=True)
    sharing = max((k // len(links) + 1) * size for k, size in enumerate(largest))
    return max(mean, _seconds(links, sharing, max(rates)))


def needed_bps(connections: Iterable[tuple[Sequence[Stage], int]], links: Mapping[str, Shaped]) -> int:
    """The sum over all bottlenecks that may be busy at once, given what each flow crosses (`crossed`) and its connections."""
    over: dict[Stage, int] = {}
    for way, count in connections:
        for stage in way:
            over[stage] = over.get(stage, 0) + count
    return sum(
        sum(sorted((links[name].rate_bps for name in stage), reverse=True)[:count]) for stage, count in over.items()
    )

"""Resolve the `background` field of a spec to the sources of background traffic of a plan."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from mininet.topo import Topo

from testbed.congestion import catalogue
from testbed.core.errors import RequestError, within
from testbed.core.runs.plan import Background, CongestionControl, Link
from testbed.core.text import quoted
from testbed.models.frames import payload_share
from testbed.spec import Spec
from testbed.traffic import kinds, sizes
from testbed.traffic.sizes import Sizes

IPERF3_PORT = 5201


def sources(spec: Spec, topo: Topo, bottlenecks: dict[str, Link], seed: int) -> tuple[Background, ...]:
    """The sources of background traffic of a run; raises `RequestError`."""
    found = []
    for number, text in enumerate(spec.background):
        with within(f"background.{number}"):
            found.append(_source(spec, topo, bottlenecks, text, f"background {seed} {number}"))
    labels = [one.label for one in found]
    if again := [label for label in labels if labels.count(label) > 1]:
        raise RequestError(f"background: {quoted(again[0])} is there twice. Give one a label: label=NAME")
    return tuple(found)


def notes(sources: Sequence[Background], rate_bps: float) -> tuple[str, ...]:
    """Return a warning if the sources offer more than ``rate_bps``, the rate of a bottleneck; else an empty tuple."""
    offered = sum(_offered_bps(one) for one in sources)
    if offered <= rate_bps:
        return ()
    return (
        f"background traffic offers {offered / rate_bps:.0%} of the bottleneck's rate: its queues and flows grow until the run ends",
    )


def _offered_bps(one: Background) -> float:
    """The mean rate of the payload that a source offers; 0 of flows without end and of programs."""
    return 8e9 * one.at_once * Sizes(one.sizes, one.shares).mean / one.gap_ns if one.gap_ns else 0.0


def _source(spec: Spec, topo: Topo, bottlenecks: dict[str, Link], text: str, seed: str) -> Background:
    kind, label, asked = kinds.parse(text)
    left, right = _sides(topo, bottlenecks)
    senders, receivers = _hosts(asked.sources, topo, left, "sources"), _hosts(asked.targets, topo, right, "targets")
    if stray := set(senders) & set(receivers):
        raise RequestError(f"{min(stray)} is both a source and a target. Give separate hosts: sources=l1,targets=r1")
    if asked.stop and asked.stop <= asked.start:
        raise RequestError(
            f"stop: {asked.stop:g} s is not after the start at {asked.start:g} s. Give a later stop, or none."
        )
    rate_bps = min(link.rate_bps for link in bottlenecks.values()) * payload_share(spec.mtu)
    return Background(
        kind=kind, label=label, sources=senders, targets=receivers, seed=seed, cc=_congestion(asked, spec), start_ns=round(asked.start * 1e9),
        stop_ns=round(asked.stop * 1e9) or None, priority=getattr(asked, "priority", "0"), **_pattern(asked, senders, rate_bps),
    )  # fmt: skip


def _congestion(asked: kinds.Source, spec: Spec) -> CongestionControl | None:
    name = getattr(asked, "congestion", None)
    if name is None:
        return None
    found = catalogue.parse(name, spec.preset)
    if not catalogue.of_the_kernel(found) or found.constants:
        raise RequestError(
            f"congestion: {quoted(name)} is not a congestion control of the kernel. Give for instance cubic or reno"
        )
    return found


def _pattern(asked: kinds.Source, senders: Sequence[str], rate_bps: float) -> dict[str, Any]:
    """The load of each kind."""
    match asked:
        case kinds.Long():
            return {"at_once": asked.flows}
        case kinds.Poisson():
            found = sizes.find(asked.sizes)
            gap_ns = found.mean * 8 / (asked.load * rate_bps) * 1e9
            return {"pattern": "random", "gap_ns": gap_ns, "sizes": found.bytes, "shares": found.shares}
        case kinds.Storage():
            return {"pattern": "random", "gap_ns": 1e9 / asked.rate, "sizes": (float(asked.bytes),)}
        case kinds.Inference():
            return {
                "pattern": "random", "gap_ns": 1e9 / asked.rate, "sizes": (float(asked.request),),
                "response_bytes": asked.response,
            }  # fmt: skip
        case kinds.Incast():
            return {
                "pattern": "periodic", "gap_ns": _period(asked.every), "sizes": (float(asked.bytes),), "at_once": asked.degree,
                "fan_in": True,
            }  # fmt: skip
        case kinds.Checkpoint():
            return {
                "pattern": "periodic", "gap_ns": _period(asked.every), "sizes": (float(asked.bytes),), "at_once": len(senders)
            }  # fmt: skip
        case kinds.Iperf3():
            words = ("iperf3", "-c", "{target}", "-t", str(asked.seconds), "-P", str(asked.parallel), "-J")
            how = ("-u", "-b", "0") if asked.udp else ("-C", asked.congestion)
            return {"program": (*words, *how), "server": ("iperf3", "-s", "-1", "-p", str(IPERF3_PORT))}
        case kinds.Command():
            return {"program": tuple(shlex.split(asked.command))}
    raise AssertionError(asked)


def _period(seconds: float) -> float:
    if seconds <= 0:
        raise RequestError("every: 0 is not a period. Write a time with its unit, such as 100ms")
    return seconds * 1e9


def _sides(topo: Topo, bottlenecks: dict[str, Link]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The hosts on both sides of the first bottleneck: those next to its ends if known, else all hosts in two halves."""
    hosts = [name for name in topo.hosts() if not topo.isRouter(name)]
    peers = defaultdict[str, set[str]](set)
    for a, b in topo.links():
        peers[a].add(b)
        peers[b].add(a)
    for name in sorted(bottlenecks):
        left, right = (tuple(host for host in hosts if end in peers[host]) for end in name.split("-"))
        if left and right:
            return left, right
    half = max(1, len(hosts) // 2)
    return tuple(hosts[:half]), tuple(hosts[half:])


def _hosts(text: str, topo: Topo, usual: tuple[str, ...], field: str) -> tuple[str, ...]:
    known = [name for name in topo.hosts() if not topo.isRouter(name)]
    names = tuple(text.split("+")) if text else usual
    for name in names:
        if name not in known:
            raise RequestError(f"{field}: there is no host {quoted(name)}. There are {', '.join(known[:20])}")
    return names

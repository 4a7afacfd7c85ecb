"""Networks of thousands of servers as arrays: links by number, ways by computation instead of search.

Every server has a link up and a link down; above them a non-blocking switch (`cluster`), leaves and spines, or a fat tree (Al-Fares et
al., SIGCOMM 2008). Which of several equal ways a flow takes is drawn by whoever asks: ``choice``, any number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fabric:
    """Links between three layers; the lower two may be missing. Rates in bit/s.

    Servers hang below edges; a pod has ``edges`` of them, each with a link to each of its ``tops``; a top has links to ``cores`` (0: it is
    the highest, and there is one pod). Links are numbered: up and down of every server, of every edge and top, of every top and core.
    """

    servers: int
    each: int  # servers below an edge
    edges: int  # of a pod
    tops: int  # of a pod, each above all of its edges; 0: edges are non-blocking among each other
    cores: int  # above each top
    rate_bps: float
    share: float = 1.0  # of it: links above edges

    @property
    def hosts(self) -> int:
        """What it has room for."""
        return self.each * self.edges * (self.pods if self.cores else 1)

    @property
    def pods(self) -> int:
        return -(-self.servers // (self.each * self.edges))

    @property
    def capacity(self) -> Floats:
        """Of every link."""
        middle = self.pods * self.edges * self.tops
        above = self.pods * self.tops * self.cores
        return np.concatenate(
            [np.full(2 * self.servers, self.rate_bps), np.full(2 * (middle + above), self.share * self.rate_bps)]
        )

    def way(self, source: int, target: int, choice: int = 0) -> list[int]:
        """The links from a server to another."""
        found = [2 * source, 2 * target + 1]
        here, there = source // self.each, target // self.each
        if here == there or not self.tops:
            return found
        base = 2 * self.servers
        top = choice % self.tops
        found += [base + 2 * (here * self.tops + top), base + 2 * (there * self.tops + top) + 1]
        pods = here // self.edges, there // self.edges
        if pods[0] != pods[1]:
            base += 2 * self.pods * self.edges * self.tops
            core = choice // self.tops % self.cores
            up, down = ((pod * self.tops + top) * self.cores + core for pod in pods)
            found += [base + 2 * up, base + 2 * down + 1]
        return found


def flat(servers: int, rate_bps: float) -> Fabric:
    """Every server's uplink to one switch."""
    return Fabric(servers, servers, 1, 0, 0, rate_bps)


def leaf_spine(
    servers: int, rate_bps: float, leaves: int, spines: int, hosts: int, oversubscription: float | None = None
) -> Fabric:
    """As `topologies.leafspine` has it: links above leaves are as fast as the others, or so that servers ask for that much more."""
    share = 1.0 if oversubscription is None else hosts / (spines * oversubscription)
    return Fabric(servers, hosts, leaves, spines, 0, rate_bps, share)


def fat_tree(k: int, rate_bps: float) -> Fabric:
    """``k`` pods of k/2 edges and tops, k³/4 servers."""
    half = k // 2
    return Fabric(k * half * half, half, half, half, half, rate_bps)

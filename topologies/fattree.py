"""Fat tree of ``k``-port switches: ``k`` pods of ``k/2`` edges and ``k/2`` aggregations, ``(k/2)²`` cores (ECMP).

One pod of ``k = 4``, and the cores::

      c1   c2          c3   c4      each core has one link to every pod
        ╲  ║            ║  ╱
         ╲ ║            ║ ╱
          a1            a2
          ║ ╲         ╱ ║
          ║    ╲   ╱    ║
          ║      ╳      ║           every link between routers is a bottleneck
          ║    ╱   ╲    ║
          ║ ╱         ╲ ║
          e1            e2
         ╱  ╲          ╱  ╲
       h1    h2      h3    h4

Edges are ``e1, e2, …`` and aggregations ``a1, a2, …`` from the first pod on, cores ``c1, c2, …``,
hosts ``h1, h2, …`` from the first edge on: ``k/2`` at each edge, ``k³/4`` in all, unless ``hosts``
sets the number. More of them oversubscribe the edges: 4 pods of 2 edges with 8 hosts
each (``fattree,4,8``) are 64 hosts at 4:1. After Al-Fares et al., SIGCOMM 2008.
Also for stock Mininet: ``mn --custom topologies/fattree.py --topo fattree,4``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

try:
    from testbed.networks.routed import RoutedTopo
except ImportError:  # stock Mininet executes this file without the checkout
    import inspect
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(inspect.getfile(lambda: None)).resolve().parent.parent))
    from testbed.networks.routed import RoutedTopo


class FatTree(RoutedTopo):
    """A ``k``-ary fat tree with ``hosts`` hosts at each edge; links between routers are shaped."""

    @classmethod
    def sized(cls, jobs: int, workers: int) -> FatTree:
        """Return four pods (eight edges), with enough hosts on each edge for its part of the jobs."""
        return cls(k=4, hosts=max(2, -(-jobs // (8 // workers)) if workers <= 8 else jobs * -(-workers // 8)))

    @classmethod
    def for_servers(cls, gpus: Sequence[int]) -> FatTree:
        """The smallest with k³/4 hosts or more."""
        return cls(next(k for k in itertools.count(2, 2) if k**3 // 4 >= len(gpus)))

    @classmethod
    def counts(cls, k: int = 4, hosts: int | None = None) -> tuple[int, int]:
        edges = k * k // 2
        count = edges * (k // 2 if hosts is None else hosts)
        return count, count + k**3 // 2

    def wire(self, k: int = 4, hosts: int | None = None) -> None:
        if k < 2 or k % 2:
            raise ValueError(f"a fat tree is made of switches with an even number of ports, not {k}")
        half = k // 2
        hosts = half if hosts is None else hosts
        for core in range(half * half):
            self.router(f"c{core + 1}")
        for pod in range(k):
            for up in range(pod * half, (pod + 1) * half):
                aggregation = self.router(f"a{up + 1}")
                for port in range(half):
                    self.link(aggregation, f"c{up % half * half + port + 1}", bottleneck=True)
            for edge in range(pod * half, (pod + 1) * half):
                self.router(f"e{edge + 1}")
                for up in range(pod * half, (pod + 1) * half):
                    self.link(f"e{edge + 1}", f"a{up + 1}", bottleneck=True)
                for number in range(hosts):
                    self.link(self.addHost(f"h{edge * hosts + number + 1}"), f"e{edge + 1}")


topos = {"fattree": FatTree}

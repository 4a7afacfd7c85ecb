"""Ring: ``n`` bottlenecks in a loop, and jobs that each cross two neighbouring ones.

::

       x1      y1            x2      y2                 xn      yn
       │       │             │       │                  │       │
    ┌─ a1 ═══ b1 ── c1 ──── a2 ═══ b2 ── c2 ──── … ──── an ═══ bn ── cn ─┐
    └────────────────────────────────────────────────────────────────────┘

Routers are ``ai``, ``bi``, ``ci``; hosts ``xi`` (at ``ai``) and ``yi`` (at ``bi``), or ``xi_1,
xi_2, …`` if there are several. With the scheduler `spread`, job number i goes from ``ai`` to ``b(i+1)``.
So it shares bottleneck i with the previous job and bottleneck i+1 with the next one, around the ring:
the circular dependency of MLTCP's figure 2.

The routers ``ci`` make this the shortest path: in a plain loop of three links, the path over
two of them would be longer than the path over the third.
Also for stock Mininet: ``mn --custom topologies/ring.py --topo ring,3``.
"""

from __future__ import annotations

try:
    from testbed.networks.routed import RoutedTopo
except ImportError:  # stock Mininet executes this file without the checkout
    import inspect
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(inspect.getfile(lambda: None)).resolve().parent.parent))
    from testbed.networks.routed import RoutedTopo


class Ring(RoutedTopo):
    """``n`` shaped links in a loop, with ``hosts`` hosts at each end of each."""

    @classmethod
    def sized(cls, jobs: int, workers: int) -> Ring:
        """Return a bottleneck for each job, and hosts for half of its workers at both ends."""
        return cls(n=max(3, jobs), hosts=(workers + 1) // 2)

    @classmethod
    def counts(cls, n: int = 3, hosts: int = 1) -> tuple[int, int]:
        return 2 * n * hosts, 3 * n + 2 * n * hosts

    def wire(self, n: int = 3, hosts: int = 1) -> None:
        if n < 3:
            raise ValueError(f"a ring has three bottlenecks or more, not {n}")
        self.n = n
        for i in range(1, n + 1):
            for kind in "abc":
                self.router(f"{kind}{i}")
            self.link(f"a{i}", f"b{i}", bottleneck=True)
            self.link(f"b{i}", f"c{i}")
        for i in range(1, n + 1):
            self.link(f"c{i}", f"a{i % n + 1}")
            for side, router in (("x", f"a{i}"), ("y", f"b{i}")):
                for number in range(1, hosts + 1):
                    name = f"{side}{i}" if hosts == 1 else f"{side}{i}_{number}"
                    self.link(self.addHost(name), router)

    def edges(self, job: int) -> list[str]:
        """The routers over which job number ``job`` is spread: two bottlenecks lie between them."""
        return [f"a{job % self.n + 1}", f"b{(job + 1) % self.n + 1}"]


topos = {"ring": Ring}

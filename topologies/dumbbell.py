"""Dumbbell: ``n`` hosts on each side of one bottleneck.

::

    l1 ──┐                 ┌── r1
    l2 ──┤                 ├── r2
     ⋮   ├── s1 ═════ s2 ──┤    ⋮
    ln ──┘   bottleneck    └── rn

Hosts are ``l1 … ln`` (left) and ``r1 … rn`` (right), the routers ``s1`` and ``s2``.
Also for stock Mininet: ``mn --custom topologies/dumbbell.py --topo dumbbell,4``.
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


class Dumbbell(RoutedTopo):
    """``n`` hosts left, ``n`` hosts right, one shaped link between the two routers."""

    @classmethod
    def sized(cls, jobs: int, workers: int) -> Dumbbell:
        """Return a dumbbell with hosts for every job's first half of workers on the left, and for the rest on the
        right."""
        return cls(n=jobs * ((workers + 1) // 2))

    @classmethod
    def counts(cls, n: int = 2) -> tuple[int, int]:
        return 2 * n, 2 * n + 1

    def wire(self, n: int = 2) -> None:
        left, right = self.router("s1"), self.router("s2")
        self.link(left, right, bottleneck=True)
        for i in range(1, n + 1):
            self.link(self.addHost(f"l{i}"), left)
            self.link(self.addHost(f"r{i}"), right)


topos = {"dumbbell": Dumbbell}

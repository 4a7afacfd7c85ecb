"""Parking lot: ``n`` bottlenecks in a row, one job across all of them and others across one each.

::

    h0_1 ─┐         h1_1 ─┐         h2_1 ─┐             hn_1 ─┐
    h0_2 ─┤         h1_2 ─┤         h2_2 ─┤             hn_2 ─┤
      ⋮   s0 ═══════════ s1 ═══════════ s2 ═══ … ═══════════ sn

Routers are ``s0 … sn``, the hosts of ``si`` are ``hi_1, hi_2, …``. With the scheduler `spread`, job 0
goes from ``s0`` to ``sn``, job 1 from ``s0`` to ``s1``, job 2 from ``s1`` to ``s2``, etc. The long one
shares every bottleneck with one other job.
Also for stock Mininet: ``mn --custom topologies/parking_lot.py --topo parking_lot,3``.
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


class ParkingLot(RoutedTopo):
    """``n`` shaped links in a row, with ``hosts`` hosts at each of the ``n + 1`` routers."""

    @classmethod
    def sized(cls, jobs: int, workers: int) -> ParkingLot:
        """Return a bottleneck for each job except the long one, and hosts for the halves of two jobs at each router."""
        return cls(n=max(2, jobs - 1), hosts=2 * ((workers + 1) // 2))

    @classmethod
    def counts(cls, n: int = 2, hosts: int = 2) -> tuple[int, int]:
        return (n + 1) * hosts, n + (n + 1) * hosts

    def wire(self, n: int = 2, hosts: int = 2) -> None:
        self.n = n
        for i in range(n + 1):
            self.router(f"s{i}")
            for number in range(1, hosts + 1):
                self.link(self.addHost(f"h{i}_{number}"), f"s{i}")
        for i in range(n):
            self.link(f"s{i}", f"s{i + 1}", bottleneck=True)

    def edges(self, job: int) -> list[str]:
        """The routers over which job number ``job`` is spread: both ends of the row, or of one bottleneck."""
        if job == 0:
            return ["s0", f"s{self.n}"]
        return [f"s{(job - 1) % self.n}", f"s{(job - 1) % self.n + 1}"]


topos = {"parking_lot": ParkingLot}

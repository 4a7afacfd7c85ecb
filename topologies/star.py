"""Star: ``n`` hosts around one router, every link a bottleneck (incast).

::

        h1   h2
          ╲ ╱
    hn ═══ s1 ═══ h3
          ╱ ╲
         ⋮   h4

Hosts are ``h1 … hn``, the router is ``s1``. As in a rack, every host's link has the same
rate in both directions. Hosts that answer one host at the same time (a parameter server's
workers) share the queue at ``s1`` towards it. A NIC shapes the data that a host sends.
Workers of different jobs are on different hosts and share no link. With a second argument
(``star,4,8``) every host is a server with this number of GPUs, which jobs that request GPUs
share.
Also for stock Mininet: ``mn --custom topologies/star.py --topo star,4``.
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


class Star(RoutedTopo):
    """``n`` hosts of so many ``gpus``, each with a shaped link to the one router."""

    @classmethod
    def sized(cls, jobs: int, workers: int) -> Star:
        """A host for each worker."""
        return cls(n=jobs * workers)

    @classmethod
    def counts(cls, n: int = 4, gpus: int = 1) -> tuple[int, int]:
        return n, n

    def wire(self, n: int = 4, gpus: int = 1) -> None:
        if gpus < 1:
            raise ValueError("every host has at least one GPU")
        middle = self.router("s1")
        for i in range(1, n + 1):
            self.link(self.addHost(f"h{i}", gpus=gpus), middle, bottleneck=True)


topos = {"star": Star}

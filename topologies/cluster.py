"""Cluster: servers with GPUs, each with one uplink to the switch that they share.

::

                 c1
           ║     ║     ║        every server's uplink is a bottleneck
           s1    s2    s3  …
         ╱ │ ╲   │╲    │╲
       h1 h2 h3 h4 h5 h6 h7

The arguments are the GPUs of each server: ``cluster,3,2,2``. A server is a router ``s1, s2, …``, a GPU a host ``h1, h2,
…`` behind it, from the first server on, so that an exchange inside a server crosses only GPUs' NICs (``--nic inf``:
unshaped NICs). Job schedulers read from `servers` which hosts are one server: SJF-BCO's model needs this. Also for
stock Mininet: ``mn --custom topologies/cluster.py --topo cluster,4,4``.
"""

from __future__ import annotations

from collections.abc import Sequence

try:
    from testbed.networks.routed import RoutedTopo
except ImportError:  # stock Mininet executes this file without the checkout
    import inspect
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(inspect.getfile(lambda: None)).resolve().parent.parent))
    from testbed.networks.routed import RoutedTopo


USUAL = (4, 4)  # GPUs of each server


class Cluster(RoutedTopo):
    """Servers of so many GPUs each; uplinks are shaped."""

    @classmethod
    def sized(cls, jobs: int, workers: int) -> Cluster:
        """Return up to four servers, each with enough GPUs for its part of every job."""
        servers = min(workers, 4)
        return cls(*[jobs * -(-workers // servers)] * servers)

    @classmethod
    def for_servers(cls, gpus: Sequence[int]) -> Cluster:
        return cls(*gpus)

    @classmethod
    def counts(cls, *gpus: int) -> tuple[int, int]:
        gpus = gpus or USUAL
        return sum(gpus), sum(gpus) + len(gpus)

    def wire(self, *gpus: int) -> None:
        gpus = gpus or USUAL
        if min(gpus) < 1:
            raise ValueError("every server has at least one GPU")
        middle = self.router("c1")
        self._servers: dict[str, tuple[str, ...]] = {}
        number = 0
        for server, count in enumerate(gpus, 1):
            self.link(self.router(f"s{server}"), middle, bottleneck=True)
            hosts = []
            for _ in range(count):
                number += 1
                hosts.append(self.addHost(f"h{number}"))
                self.link(hosts[-1], f"s{server}")
            self._servers[f"s{server}"] = tuple(hosts)

    def servers(self) -> dict[str, tuple[str, ...]]:
        """The hosts that are the GPUs of each server."""
        return self._servers


topos = {"cluster": Cluster}

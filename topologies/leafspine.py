"""Leaf and spine: every leaf has a link to every spine; flows between leaves are hashed over the spines (ECMP).

::

        s1          s2      …
        ║ ╲       ╱ ║
        ║   ╲   ╱   ║
        ║     ╳     ║         every link between a leaf and a spine is a bottleneck
        ║   ╱   ╲   ║
        ║ ╱       ╲ ║
        l1          l2      …
       ╱  ╲        ╱  ╲
     h1    h2    h3    h4   …

Leaves are ``l1, l2, …``, spines ``s1, s2, …``, hosts ``h1, h2, …`` from the first leaf on.
A host's link counts as one of the experiment's rate (it is not shaped). A leaf's oversubscription
is ``hosts ÷ spines``: the rate of its hosts ÷ that of its uplinks. Another one, if given, makes the
uplinks slower or faster: each has ``hosts ÷ (spines × oversubscription)`` of the experiment's rate.
With a fifth argument (``leafspine,2,2,4,2,8``) every host is a server with this number of GPUs,
which jobs that request GPUs share.
Also for stock Mininet: ``mn --custom topologies/leafspine.py --topo leafspine,2,2,2``.
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


class LeafSpine(RoutedTopo):
    """``leaves`` × ``hosts`` hosts under ``spines`` spines; leaf-spine links are shaped."""

    @classmethod
    def sized(cls, jobs: int, workers: int) -> LeafSpine:
        """Return two spines and up to four leaves, with enough hosts on each leaf for its part of every job."""
        leaves = min(workers, 4)
        return cls(leaves=leaves, spines=2, hosts=jobs * -(-workers // leaves))

    @classmethod
    def for_servers(cls, gpus: Sequence[int]) -> LeafSpine:
        """32 servers a leaf, 16 spines: 2:1 oversubscribed."""
        return cls(-(-len(gpus) // 32), 16, 32, 2)

    @classmethod
    def counts(
        cls, leaves: int = 2, spines: int = 2, hosts: int = 2, oversubscription: int | None = None, gpus: int = 1
    ) -> tuple[int, int]:
        return leaves * hosts, leaves * (spines + hosts)

    def wire(
        self, leaves: int = 2, spines: int = 2, hosts: int = 2, oversubscription: int | None = None, gpus: int = 1
    ) -> None:
        if min(leaves, spines, hosts, gpus) < 1:
            raise ValueError("it has at least one leaf, one spine, one host on each leaf and one GPU in each host")
        own = {} if oversubscription is None else {"rate": f"{100 * hosts / (spines * oversubscription):.9g}%"}
        for spine in range(1, spines + 1):
            self.router(f"s{spine}")
        for leaf in range(1, leaves + 1):
            self.router(f"l{leaf}")
            for spine in range(1, spines + 1):
                self.link(f"l{leaf}", f"s{spine}", bottleneck=True, **own)
            for number in range(1, hosts + 1):
                self.link(self.addHost(f"h{(leaf - 1) * hosts + number}", gpus=gpus), f"l{leaf}")


topos = {"leafspine": LeafSpine}

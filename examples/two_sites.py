"""A custom topology: two sites, joined by a link that is slower and longer than those within each.

::

    a1 ──┐                                           ┌── b1
    a2 ──┤                                           ├── b2
     ⋮   ├── west ═════ edge ─────────────── east ──┤    ⋮
    an ──┘        half the rate    5 ms, 0.01 %      └── bn

``mltcp run --on uml --topo examples/two_sites.py --jobs 2``
"""

try:
    from testbed.networks.routed import RoutedTopo
except ImportError:  # `mn --custom examples/two_sites.py` executes this file without the checkout on its path
    import inspect
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(inspect.getfile(lambda: None)).resolve().parent.parent))
    from testbed.networks.routed import RoutedTopo


class TwoSites(RoutedTopo):
    """``n`` hosts at either site."""

    @classmethod
    def sized(cls, jobs, workers):
        """Return a topology with as many hosts as the experiment needs, if it names no number."""
        return cls(n=jobs * ((workers + 1) // 2))

    def wire(self, n=2):
        for router in ("west", "edge", "east"):
            self.router(router)
        self.link("west", "edge", bottleneck=True, rate="50%", buffer="5ms")
        self.link("edge", "east", delay="5ms", loss="0.01%")
        for i in range(1, n + 1):
            self.link(self.addHost(f"a{i}"), "west")
            self.link(self.addHost(f"b{i}"), "east")


topos = {"two_sites": TwoSites}

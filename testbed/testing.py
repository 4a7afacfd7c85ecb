"""Pytest fixtures to test custom content: a fake kernel that records, and the smallest topology, collective and trace.

A ``conftest.py`` has ``pytest_plugins = ["testbed.testing"]``. Then a test receives a fixture by its name::

    def test_my_settings(fake_kernel):
        settings.apply_all(my_settings, fake_kernel)
        assert ("sysctl", "h1", "net.ipv4.tcp_sack=1") in fake_kernel.calls

    def test_my_transport(toy_topology, toy_trace):
        testbed.run(topo=toy_topology, trace=toy_trace, system="./mine.py", iterations=3)
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.linux.fake_kernel import Recording as FakeKernel

__all__ = ["FakeKernel", "fake_kernel", "toy_collective", "toy_topology", "toy_trace"]

TOPOLOGY = '''"""Hosts on both sides of one bottleneck."""

from testbed.networks.routed import RoutedTopo


class Toy(RoutedTopo):
    @classmethod
    def sized(cls, jobs, workers):
        return cls(n=jobs * ((workers + 1) // 2))

    def wire(self, n=2):
        self.router("left")
        self.router("right")
        self.link("left", "right", bottleneck=True)
        for number in range(1, n + 1):
            self.link(self.addHost(f"a{number}"), "left")
            self.link(self.addHost(f"b{number}"), "right")


topos = {"toy": Toy}
'''

COLLECTIVE = '''"""An all-reduce by a hub: every worker sends its tensor to rank 0, which sends the sum to all."""

from testbed.replay.exchange import receive, send

KIND = "all_reduce"


def connections(n):
    return 2 * (n - 1)


def rounds(n, size):
    return [{(rank, 0): size for rank in range(1, n)}, {(0, rank): size for rank in range(1, n)}]


def run(rank, n, size, links):
    for (source, _), link in links.items():
        (send if source == rank else receive)(link, size)
'''

TRACE = """{
  "version": 1,
  "name": "toy",
  "model": "one computation, one exchange",
  "source": {"kind": "synthetic", "measured_by": "testbed.testing", "notes": ""},
  "native_rate": "10gbit",
  "operations": [
    {"id": "compute", "kind": "compute", "duration": "20ms"},
    {"id": "exchange", "kind": "all_reduce", "bytes": "10MB", "after": ["compute"]}
  ]
}
"""


@pytest.fixture
def fake_kernel() -> FakeKernel:
    """Return a kernel that records each setting in `calls`, and reads it back as Linux would.

    This machine is not changed.
    """
    return FakeKernel()


@pytest.fixture
def toy_topology(tmp_path: Path) -> str:
    """The path of a file for ``topo``: two routers and one bottleneck link between them."""
    return _file(tmp_path, "toy_topology.py", TOPOLOGY)


@pytest.fixture
def toy_collective(tmp_path: Path) -> str:
    """The path of a file for ``collective``: an all-reduce in which rank 0 sums and returns the tensor."""
    return _file(tmp_path, "toy_collective.py", COLLECTIVE)


@pytest.fixture
def toy_trace(tmp_path: Path) -> str:
    """The path of a file for ``trace``: 20 ms of computation, then an exchange of 10 MB."""
    return _file(tmp_path, "toy_trace.json", TRACE)


def _file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)

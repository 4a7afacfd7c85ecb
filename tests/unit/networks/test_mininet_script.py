"""Networks of Mininet scripts: what is honoured, and how the rest is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed import networks, spec
from testbed.core.errors import RequestError
from testbed.linux import features, settings, setup_steps
from testbed.linux.fake_kernel import Recording
from testbed.models.frames import frame
from testbed.networks.mininet_script import MininetTopo
from testbed.planning import links, plan

HEADER = """
from mininet.cli import CLI
from mininet.link import TCLink
from mininet.net import Mininet
from mininet.node import CPULimitedHost, Node, OVSController, OVSKernelSwitch
from mininet.topo import SingleSwitchTopo, Topo
"""
PAIR = (
    HEADER
    + """
class Pair(Topo):
    def build(self, n=1, bw=50):
        self.addSwitch("s1", protocols="OpenFlow13")
        self.addSwitch("s2", cls=OVSKernelSwitch, failMode="standalone")
        self.addLink("s1", "s2", cls=TCLink, bw=bw, delay="5ms", max_queue_size=100)
        for i in range(1, 2 * n + 1):
            self.addLink(self.addHost(f"h{i}"), "s1" if i <= n else "s2", loss=1)
"""
)
MAIN = """
def main():
    net = Mininet(topo=Pair(n=2, bw=20), link=TCLink, controller=OVSController)
    try:
        net.start()
        net.get("h1").cmd("ping h2")
    finally:
        net.stop()

if __name__ == "__main__":
    main()
"""
STEPS = (
    HEADER
    + """
net = Mininet(controller=OVSController, ipBase="10.0.0.0/8", build=False)
net.addController("c0")
a, b = net.addHost("b"), net.addHost("a", ip="192.168.1.2/24", defaultRoute=None)
s = net.addSwitch("s1")
net.addLink(a, s, bw=10, cls=TCLink)
net.addLink(b, s, delay="100")
net.build()
raise RuntimeError("it goes on")
"""
)


def made(folder: Path, text: str, *arguments: int) -> MininetTopo:
    path = folder / "script.py"
    path.write_text(text)
    topo = networks.made(str(path), arguments)
    assert isinstance(topo, MininetTopo)
    return topo


def wanted(path: Path, **fields: Any) -> spec.Spec:
    return spec.read(None, {"topo": str(path), "jobs": 1, "workers": 2, "system": ["reno"], **fields})


def test_its_links_are_shaped_and_delayed_at_once(tmp_path: Path) -> None:
    made(tmp_path, PAIR)
    network = links.network(wanted(tmp_path / "script.py"))
    link = network.bottlenecks["s1-s2"]
    assert link == network.bottlenecks["s2-s1"]
    assert (link.rate_bps, link.buffer_bytes) == (50_000_000, 100 * frame(1500))
    assert network.wires["s1-s2"].delay_ns == network.wires["s2-s1"].delay_ns == 5_000_000
    assert network.wires["s1-h1"].loss == network.wires["h1-s1"].loss == 0.01
    assert links.base_rtt_s(network, "h1", "h2") == pytest.approx(0.01, rel=0.01)


def test_the_network_that_the_script_makes_comes_first(tmp_path: Path) -> None:
    """With its own arguments; a number behind the file's name asks for the class instead."""
    assert len(made(tmp_path, PAIR + MAIN).aliases) == 4
    assert len(made(tmp_path, PAIR + MAIN, 3).aliases) == 6
    assert len(made(tmp_path, PAIR).aliases) == 2
    assert len(made(tmp_path, PAIR + "\ntopos = {'pair': lambda: Pair(n=3)}").aliases) == 6


def test_hosts_keep_their_addresses(tmp_path: Path) -> None:
    topo = made(tmp_path, STEPS)
    assert topo.aliases == {"b": "10.0.0.1", "a": "192.168.1.2"}
    assert topo.linkInfo("a", "s1")["delay"] == "100us"  # tc's unit for a bare number
    assert topo.linkInfo("b", "s1")["rate"] == "10mbit"
    assert made(tmp_path, PAIR + MAIN).aliases == {f"h{i}": f"10.0.0.{i}" for i in range(1, 5)}


def test_every_router_knows_the_way_to_them(tmp_path: Path) -> None:
    made(tmp_path, PAIR)
    run = plan.plans(plan.resolve(wanted(tmp_path / "script.py")))[0]
    kernel = Recording({"reno": "kernel"})
    settings.apply_all(setup_steps.settings(setup_steps.changes(run, features.user_mode()), "network"), kernel)
    assert kernel.host_routes("s1") == {"10.0.0.1": ("10.64.0.1",), "10.0.0.2": ("10.64.0.10",)}
    assert list(kernel.addresses("h1", "h1-eth0")) == ["10.0.0.1"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("self.addHost('h9', mac='00:00:00:00:00:01')", "MAC addresses follow"),
        ("self.addHost('h9', cls=CPULimitedHost, cpu=0.5)", "no share of the processor"),
        ("self.addHost('h9', cls=type('Router', (Node,), {}))", "use addSwitch for a node that forwards"),
        ("self.addHost('h9', ip='10.200.0.1/8')", "Use 10.0.0.0 to 10.63.255.255"),
        ("self.addHost('h9', ip='ten')", "is no IPv4 address"),
        ("self.addHost('h9', ip='10.0.0.1')", "is that of h1, too"),
        ("self.addHost('h9')", "has no link"),
        ("self.addSwitch('s9', cls=type('Own', (Node,), {}))", "is not executed here"),
        ("self.addLink('h1', 's2')", "has 2 links, not one"),
        ("self.addLink('s1', 's2', bw=5)", "two links between"),
        ("self.addLink(self.addHost('h9'), 's1', enable_ecn=True)", "give --ecn"),
        ("self.addLink(self.addHost('h9'), 's1', max_queue_size=10)", "Give bw, too"),
        ("self.addLink(self.addHost('h9'), 's1', bw='fast')", "is no number"),
        ("self.addLink(self.addHost('h9'), 's1', bw=0.5)", "between 1 Mbit/s and 1 Pbit/s"),
        ("self.addLink(self.addHost('h9'), 's1', params1={'mac': 'x'})", "MAC addresses follow"),
        ("self.addLink(self.addHost('h9'), 's1', colour='red')", "nothing here honours that"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_with_what_to_write(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"{PAIR}        {line}\n")
    with pytest.raises(RequestError, match=r"^topo: ") as refused:
        links.network(wanted(path))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os\nos.system('mn -c')\nMinimal = 1", "Remove it"),
        ("Mininet(topo=SingleSwitchTopo(2), ipBase='172.16.0.0/12').start()", "give each host its own address"),
        ("Mininet(topo=SingleSwitchTopo(2)).start()", "no link has a bw"),
        ("net = Mininet()\nnet.addNAT()", "no route to the Internet"),
        ("import sys\nsys.exit('run as root')", "cannot be executed: SystemExit: run as root"),
        ("class A(Topo): pass\nclass B(Topo): pass", "not one Topo class but A, B"),
        ("def (", "cannot be imported"),
    ],
)  # fmt: skip
def test_scripts_without_a_network(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"{HEADER}\n{text}\n")
    with pytest.raises(RequestError) as refused:
        links.network(wanted(path))
    assert words in str(refused.value)

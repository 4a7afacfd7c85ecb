"""Equal-cost paths: everybody is reached, and flows go where the kernel says they go."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from mininet.topo import Topo

from testbed.linux import features, netns, paths, setup_steps
from testbed.linux.network import Host, Network, link_name
from testbed.linux.settings import Change, Setting, apply_all, sysctl
from testbed.networks.routed import stages
from testbed.transports import Connection
from tests.support.processes import HANG_S
from topologies.fattree import FatTree
from topologies.leafspine import LeafSpine
from topologies.ring import Ring

Build = Callable[[Topo], Network]
PORT, SIZE = 5001, 100_000


def forwarding(network: Network) -> list[Setting]:
    """As in a run: routers forward, and IPv6 says nothing of its own accord."""
    return [
        sysctl(node.name, key, value)
        for node in network.hosts
        for key, value in (("net.ipv4.ip_forward", str(int(node.forwards))), ("net.ipv6.conf.all.disable_ipv6", "1"))
        if Path("/proc/sys", key.replace(".", "/")).exists()
    ]


def choosing(network: Network, seed: int) -> list[Change]:
    return setup_steps.multipath(network.topo, seed, seeded=features.probe().hash_seed)


def ends(network: Network) -> list[Host]:
    return [node for node in network.hosts if not node.forwards]


@contextmanager
def open_socket(host: Host, kind: socket.SocketKind, port: int) -> Iterator[socket.socket]:
    with netns.entered(host.namespace):
        made = socket.socket(socket.AF_INET, kind)
    with made:
        made.settimeout(HANG_S)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host.IP(), port))
        yield made


@pytest.mark.parametrize("topo", [FatTree(k=4, hosts=8), Ring(n=4, hosts=2)], ids=["64 hosts", "ring"])
def test_every_host_reaches_every_other(build: Build, topo: Topo) -> None:
    network = build(topo)
    apply_all([*forwarding(network), *choosing(network, 1)], network)
    addresses = {host.IP() for host in ends(network)}
    with ExitStack() as stack:
        sockets = {host.IP(): stack.enter_context(open_socket(host, socket.SOCK_DGRAM, 9)) for host in ends(network)}
        for here, there in itertools.permutations(sockets, 2):
            sockets[here].sendto(here.encode(), (there, 9))
        for address, one in sockets.items():
            assert {one.recv(32).decode() for _ in range(len(sockets) - 1)} == addresses - {address}


def transfer(network: Network, source: Host, target: Host, sport: int) -> Connection:
    """Send some bytes over TCP; its addresses and ports."""
    with (
        open_socket(target, socket.SOCK_STREAM, PORT) as listener,
        open_socket(source, socket.SOCK_STREAM, sport) as out,
    ):
        listener.listen(1)
        out.connect((target.IP(), PORT))
        with listener.accept()[0] as accepted:
            out.sendall(bytes(SIZE))
            left = SIZE
            while left:
                left -= len(accepted.recv(left))
    return Connection(0, 1, 0, source.IP(), sport, target.IP(), PORT)


def carried(network: Network) -> dict[str, int]:
    """Bytes that ever left by each direction of each link."""
    return {link_name(end): end.node.ip.get_links(end.index)[0].get("stats64")["tx_bytes"] for end in network.ends()}


@pytest.mark.parametrize(
    "topo", [LeafSpine(leaves=2, spines=3, hosts=2), FatTree(k=4, hosts=1)], ids=["leafspine", "fattree"]
)
def test_a_flow_takes_the_links_it_is_said_to(build: Build, topo: Topo) -> None:
    """Every byte of every flow, and of its ACKs, by the counters of every interface."""
    network = build(topo)
    apply_all([*forwarding(network), *choosing(network, 1)], network)
    source, target = ends(network)[0], ends(network)[-1]
    ways = set()
    for sport in range(35_001, 35_013):
        before = carried(network)
        flow = transfer(network, source, target, sport)
        sent = {name: size - before[name] for name, size in carried(network).items()}
        said = paths.taken(network, flow)
        assert [name for name in said if sent[name] < SIZE] == []
        assert sum(size >= SIZE for size in sent.values()) == len(said)
        back = paths.taken(network, flow.back())
        assert {name for name, size in sent.items() if size} == {*said, *back}
        for name, stage in zip(said, stages(topo, source.name, target.name), strict=True):
            assert name in [f"{a}-{b}" for a, b in stage]
        ways.add(tuple(said))
    assert len(ways) > 2  # twelve flows do not all meet


def test_paths_follow_from_the_seed(build: Build) -> None:
    if not features.probe().hash_seed:
        pytest.skip("this kernel's hash cannot be seeded (Linux 6.11 can)")
    network = build(FatTree(k=4, hosts=1))
    apply_all(forwarding(network), network)
    source, target = ends(network)[0], ends(network)[-1]

    def ways(seed: int) -> list[list[str]]:
        apply_all(choosing(network, seed), network)
        return [
            paths.taken(network, Connection(0, 1, 0, source.IP(), sport, target.IP(), PORT))
            for sport in range(35_001, 35_065)
        ]

    first = ways(1)
    assert first == ways(1) != ways(2)
    # Every router has a seed of its own: flows that agree on the edge part again above it.
    assert len({tuple(way) for way in first}) == 4

"""The network as the kernel holds it."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from mininet.topo import Topo

from testbed.core.errors import TestbedError
from testbed.core.runs.plan import Link
from testbed.linux import features, netns, network
from testbed.linux.kernel import DEFAULT
from testbed.linux.network import Network, link_name
from testbed.linux.queues.rates import bucket_bytes
from testbed.linux.queues.setting import Queues
from testbed.linux.settings import Setting, addressed, apply_all, mtu, offloads_off, sysctl
from testbed.linux.setup_steps import addressing, interfaces, shaper
from tests.support import processes
from topologies.dumbbell import Dumbbell
from topologies.leafspine import LeafSpine

Build = Callable[[Topo], Network]
ROOT = Path(__file__).parents[2]


def test_every_host_reaches_every_other(build: Build) -> None:
    net = build(Dumbbell(n=3))
    apply_all([sysctl(name, "net.ipv4.ip_forward", "1") for name in ("s1", "s2")], net)
    for source in ("l1", "r2"):
        for target in (f"{side}{i}" for side in "lr" for i in (1, 2, 3)):
            if source == target:
                continue
            with netns.entered(net[target].namespace):
                there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                there.bind((net[target].IP(), 9))
                there.settimeout(processes.HANG_S)
            with netns.entered(net[source].namespace):
                here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            here.sendto(b"x", (net[target].IP(), 9))
            assert there.recvfrom(8)[1][0] == net[source].IP()
            here.close()
            there.close()


@pytest.mark.parametrize("topo", [Dumbbell(n=11), LeafSpine(2, 2, 2)])
def test_interfaces_are_called_as_planned(build: Build, topo: Topo) -> None:
    net = build(topo)
    planned = [(end.node, end.device, end.link) for end in interfaces(topo)]
    assert planned == [(end.node.name, end.name, link_name(end)) for end in net.ends()]
    assert [host.name for host in net.hosts] == topo.hosts()


def test_no_host_asks_for_addresses(build: Build) -> None:
    net = build(Dumbbell(n=1))
    for name in ("l1", "s1", "s2", "r1"):
        states = {neighbour["state"] for neighbour in net[name].ip.get_neighbours(family=2)}
        assert states == {0x80}, name  # NUD_PERMANENT


def test_offloads_are_off_and_read_back(build: Build) -> None:
    net = build(Dumbbell(n=1))
    for end in net.ends():
        apply_all([offloads_off(end.node.name, end.name), mtu(end.node.name, end.name, 9000)], net)
        assert not any(net.offloads(end.node.name, end.name).values())


def test_a_setting_the_kernel_does_not_take_stops_the_run(build: Build) -> None:
    net = build(Dumbbell(n=1))
    with pytest.raises(TestbedError, match=r"l1: net.ipv4.tcp_wmem .* the kernel holds"):
        apply_all([sysctl("l1", "net.ipv4.tcp_wmem", "4096   131072 1048576")], net)
    with pytest.raises(TestbedError, match="could not be set"):
        apply_all([sysctl("l1", "net.ipv4.no_such_key", "1")], net)
    with pytest.raises(TestbedError, match="could not be set"):
        apply_all([mtu("l1", "l1-eth0", 70000)], net)


def of_several_hops(net: Network) -> tuple[str, tuple[str, ...]]:
    return next((prefix, hops) for prefix, hops in net.topo.routes()["l1"] if len(hops) > 1)


def another_route(net: Network) -> None:
    prefix, hops = of_several_hops(net)
    net["l1"].ip.route("replace", dst=prefix, gateway=hops[0])


def a_heavier_hop(net: Network) -> None:
    prefix, hops = of_several_hops(net)
    net["l1"].ip.route("replace", dst=prefix, multipath=[{"gateway": via, "hops": 1} for via in hops[:1]]
                       + [{"gateway": via} for via in hops[1:]])  # fmt: skip


def no_default(net: Network) -> None:
    net["h1"].ip.route("del", dst="0.0.0.0/0", gateway=net["h1"].intf().link.intf2.ip)


def another_address(net: Network) -> None:
    net["h1"].ip.addr("add", index=net["h1"].intf().index, address="10.9.9.1", prefixlen=30)


def another_neighbour(net: Network) -> None:
    there = next(end for end in net.ends() if end.node.name == "h1").link.intf2.ip
    net["h1"].ip.neigh(
        "replace", ifindex=net["h1"].intf().index, dst=there, lladdr="02:00:00:00:00:09", state="permanent"
    )


def all_addressed(net: Network) -> list[Setting]:
    return [addressed(node, held) for node, held in addressing(net.topo).items()]


def test_a_network_is_addressed_as_its_topology(build: Build) -> None:
    net = build(LeafSpine(2, 2, 2))
    record = {found.where: found.value for found in apply_all(all_addressed(net), net)}
    assert record["h1"] == {"addresses": 1, "neighbours": 1, "routes": 1, "wrong": []}
    assert record["l1"] == {"addresses": 4, "neighbours": 4, "routes": 4, "wrong": []}


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (another_route, r"l1: .*10\.0\.\d+\.\d+/30: \('10"), (a_heavier_hop, r"l1: .* x 2"), (no_default, r"h1: .*0\.0\.0\.0/0: none"),
        (another_address, r"h1: .*h1-eth0"), (another_neighbour, r"h1: .*02:00:00:00:00:09"),
    ],
)  # fmt: skip
def test_a_network_that_is_addressed_otherwise_stops_the_run(
    build: Build, spoil: Callable[[Network], None], told: str
) -> None:
    net = build(LeafSpine(2, 2, 2))
    spoil(net)
    with pytest.raises(TestbedError, match=told):
        apply_all(all_addressed(net), net)


def test_routes_are_looked_at_after_a_failure(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    net = build(LeafSpine(2, 2, 2))
    end = next(end for end in net.ends() if link_name(end) == "l1-s1")
    before = net.addressing("l1"), net.addressing("l2")
    network.switch(net, end, up=False)
    assert net.addressing("l2").routes != before[1].routes
    network.switch(net, end, up=True)
    assert (net.addressing("l1"), net.addressing("l2")) == before
    host = next(end for end in net.ends() if end.node.name == "h1")
    network.switch(net, host, up=False)
    network.switch(net, host, up=True)
    assert net.addressing("h1").routes == {DEFAULT: (host.link.intf2.ip,)}
    monkeypatch.setattr(network, "_via", lambda hops: {"gateway": hops[0]})
    with pytest.raises(TestbedError, match="after a link failed or came back"):
        network.switch(net, host, up=False)
        network.switch(net, host, up=True)


ANY_RATE_BPS = [1_000_000, 500_000_000, 8_000_000_000, 50_000_000_000, 400_000_000_000]
REAL_TIME_BPS = [rate for rate in ANY_RATE_BPS if rate < 15e9]  # bands, by HTB, are for real time


@pytest.mark.parametrize(
    ("acks_first", "bands", "rate_bps"),
    [
        *((False, 1, rate) for rate in ANY_RATE_BPS),
        *((*kind, rate) for kind in ((True, 1), (False, 8), (True, 8)) for rate in REAL_TIME_BPS),
    ],
)
def test_the_shaper_holds_what_was_asked(build: Build, rate_bps: int, acks_first: bool, bands: int) -> None:
    net = build(Dumbbell(n=1))
    end = next(net.ends(bottleneck=True))
    bucket = bucket_bytes(rate_bps, 1500, real_time=True)
    root = shaper(Link(rate_bps, 62_500, 1500, acks_first, bands=bands), bucket, features.probe())
    record = apply_all([Queues(end.node.name, end.name, link_name(end), root)], net)
    assert record[0].value["rate_bps"] == rate_bps
    assert record[0].value["buffer_bytes"] == 62_500
    shown = end.node.cmd("tc", "-s", "qdisc", "show", "dev", end.name)
    assert "tbf" in shown and shown.count("bfifo") == (bands + acks_first if bands + acks_first > 1 else 0)


def test_commands_run_in_their_host(build: Build) -> None:
    net = build(Dumbbell(n=1))
    assert "l1-eth0" in net["l1"].cmd("ip link show")
    assert "l1-eth0" not in net["r1"].cmd("ip", "link", "show")


def test_a_host_costs_no_process_and_as_many_descriptors_as_the_next(build: Build) -> None:
    """What makes it cheap (how cheap in time: benchmarks/build_network.py), and it is given back."""

    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before, there = processes.below().keys(), descriptors()
    costs = []
    for size in (2, 32):
        net = network.build(Dumbbell(n=size))
        assert len(net.hosts) == 2 * size + 2
        assert processes.below().keys() == before
        costs.append((descriptors() - there) / len(net.hosts))
        net.stop()
        assert descriptors() == there
    assert costs[0] == costs[1]


@pytest.mark.parametrize(
    "topo", ["dumbbell,2", "star,3", "ring,3", "parking_lot,2,1", "leafspine,2,2,1", "leafspine,2,2,2,4", "fattree,4,1"]
)
def test_stock_mininet_takes_the_file(topo: str) -> None:
    for tool in ("mn", "ping"):
        if shutil.which(tool) is None:
            pytest.skip(f"stock Mininet's own test needs {tool}: run `make setup`")
    mount = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    # Stock Mininet changes sysctls of the whole machine; here it may not.
    script = (
        "for part in fs kernel net/core; do"
        " mount --bind /proc/sys/$part /proc/sys/$part && mount -o remount,bind,ro /proc/sys/$part || exit; done; "
        'exec mn --custom "topologies/${1%%,*}.py" --topo "$1" --test pingall'
    )
    done = subprocess.run(
        [*mount, "sh", "-c", script, "sh", topo],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=processes.HANG_S,
    )
    shown = done.stdout + done.stderr
    assert " 0% dropped" in shown, shown

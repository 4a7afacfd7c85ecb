"""Mininet's API on pyroute2: nodes without shells, links without processes.

`build` turns any Mininet `Topo` into a running network. A node is a network namespace held by a descriptor, plus one
netlink socket. A host therefore starts in milliseconds, and all nodes end with the process that built them. Mininet's
start-up is skipped, because it raises limits of the whole machine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import AF_INET
from typing import Any, cast

from mininet.link import Intf, Link
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Node
from mininet.topo import Topo
from mininet.util import numCores
from pyroute2.ethtool.ioctl import IoctlEthtool
from pyroute2.iproute import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from testbed.core.errors import MachineError, TestbedError
from testbed.core.runs.plan import CongestionControl
from testbed.linux import netns
from testbed.linux.kernel import DEFAULT, Addressing, mac
from testbed.linux.loading import bpf, classifier, registry
from testbed.linux.loading.registry import Registered
from testbed.linux.queues import turns
from testbed.linux.queues.turns import INGRESS
from testbed.linux.rtnetlink import Kind, Socket, Tc
from testbed.linux.settings import unlike
from testbed.networks import spraying
from testbed.networks.routed import Routes, router

ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
CARRIER_S = 10.0
ETH_P_ALL = 0x0003
SINGLE = "/32"
LOOPBACK = 1  # its index in every namespace
NUD_PERMANENT = 0x80  # a neighbour entry that never expires
OFFLOADS = {
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
}


class Host(Node):  # type: ignore[misc]
    """A node: a namespace descriptor (`namespace`) and a netlink socket in it (`ip`)."""

    namespace: int
    ip: IPRoute

    @classmethod
    def checkSetup(cls) -> None:
        """Stock Mininet searches for `mnexec` and `ifconfig` here; neither is used."""

    def startShell(self, mnopts: str | None = None) -> None:
        """Make the namespace; there is no shell."""
        self.namespace = netns.create()
        self.pid = os.getpid()
        self.forwards = False
        self.ethtool: dict[str, IoctlEthtool] = {}
        with netns.entered(self.namespace):
            self.ip = IPRoute()
        self.ip.link("set", index=1, state="up")

    def terminate(self) -> None:
        self.ip.close()
        for tool in self.ethtool.values():
            tool.close()
        os.close(self.namespace)

    def popen(self, *args: Any, **kwargs: Any) -> subprocess.Popen[Any]:
        """Start a command (words, or one string that is split) in this node."""
        command = shlex.split(args[0]) if len(args) == 1 and isinstance(args[0], str) else list(args)
        with netns.entered(self.namespace):
            return subprocess.Popen(command, **kwargs)

    def cmd(self, *args: Any, **kwargs: Any) -> str:
        """Run a command (words, or one string that is split) in this node; its output, both streams."""
        process = self.popen(*args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return cast(str, process.communicate()[0])

    def addIntf(self, intf: Any, port: int | None = None, moveIntfFn: Any = None) -> None:
        """Interfaces are born inside their node: there is nothing to move."""
        super().addIntf(intf, port, moveIntfFn=lambda name, node: None)

    def config(self, routes: Any = (), defaultRoute: str | None = None, **params: Any) -> dict[str, Any]:
        """Apply the routes of the topology (`RoutedTopo`)."""
        if defaultRoute:
            self.ip.route("add", dst="default", gateway=defaultRoute.removeprefix("via ").split()[0])
        for prefix, next_hops in routes:
            self.ip.route("add", dst=prefix, **_via(next_hops))
        return {}

    def addresses(self) -> list[tuple[int, str]]:
        """The index of an interface, and an IPv4 address of it with the length of its prefix (``10.0.0.1/30``)."""
        every = [(one["index"], f"{one.get('local')}/{one['prefixlen']}") for one in self.ip.get_addr(AF_INET)]
        return [found for found in every if found[0] != LOOPBACK]

    def offloads(self, device: str) -> IoctlEthtool:
        """The ethtool handle of one of this node's interfaces."""
        if device not in self.ethtool:
            with netns.entered(self.namespace):
                self.ethtool[device] = IoctlEthtool(device)
        return self.ethtool[device]


class VethIntf(Intf):  # type: ignore[misc]
    """One end of a `VethLink`; `index` is its interface index in the node."""

    index: int

    def config(self, ip: str | None = None, **params: Any) -> dict[str, Any]:
        self.index = self.node.ip.link_lookup(ifname=self.name)[0]
        if ip:
            self.ip, prefix = ip.split("/")
            self.prefixLen = int(prefix)
            self.node.ip.addr("add", index=self.index, address=self.ip, prefixlen=self.prefixLen)
        self.node.ip.link("set", index=self.index, state="up")
        return {}

    def updateIP(self) -> str | None:
        """The address of its node, as the topology has it."""
        return cast("str | None", self.node.IP())


class VethLink(Link):  # type: ignore[misc]
    """A veth pair made directly in its two nodes; MAC addresses follow from the link's number."""

    def __init__(
        self, node1: Host, node2: Host, port1: int | None = None, port2: int | None = None,
        params1: dict[str, Any] | None = None, params2: dict[str, Any] | None = None,
        number: int = 0, bottleneck: bool = False, **params: Any,
    ) -> None:  # fmt: skip
        port1 = node1.newPort() if port1 is None else port1
        port2 = node2.newPort() if port2 is None else port2
        name1, name2 = self.intfName(node1, port1), self.intfName(node2, port2)
        mac1, mac2 = (mac(number, end) for end in (1, 2))
        node1.ip.link(
            "add", ifname=name1, kind="veth", address=mac1,
            peer={"ifname": name2, "address": mac2, "net_ns_fd": node2.namespace},
        )  # fmt: skip
        self.bottleneck = bottleneck
        self.intf1 = VethIntf(name1, node=node1, port=port1, link=self, mac=mac1, **(params1 or {}))
        self.intf2 = VethIntf(name2, node=node2, port=port2, link=self, mac=mac2, **(params2 or {}))
        for here, there in ((self.intf1, self.intf2), (self.intf2, self.intf1)):
            if there.ip:
                here.node.ip.neigh("add", ifindex=here.index, dst=there.ip, lladdr=there.mac, state="permanent")

    def stop(self) -> None:
        """The pair ends with its nodes."""


@dataclass(frozen=True)
class Between:
    """A device that what arrives at another passes first."""

    node: Host
    index: int


class Network(Mininet):  # type: ignore[misc]
    """A Mininet of `Host` and `VethLink`."""

    failed: frozenset[str] = frozenset()  # names of ends that are down
    routes: dict[str, Routes] | None = None  # since something failed
    modules: Path | None = None  # folder of our congestion controls as modules; None: they are eBPF
    between: dict[tuple[str, str], Between]  # by node and name
    registered: dict[str, Registered]  # congestion controls, by spec
    classifiers: dict[tuple[str, str], bpf.Program]  # eBPF that marks, by node and device

    @classmethod
    def init(cls) -> None:
        """Stock Mininet changes sysctls and limits of the whole machine here."""

    def addHost(self, name: str, cls: Any = None, **params: Any) -> Host:
        host: Host = super().addHost(name, cls=self.host, **params)
        host.forwards = cls is router
        return host

    def addLink(self, node1: Any, node2: Any, **params: Any) -> VethLink:
        return cast(VethLink, super().addLink(node1, node2, number=len(self.links), **params))

    def ends(self, bottleneck: bool | None = None) -> Iterator[VethIntf]:
        """Both ends of every link; only of (un)shaped links if asked so."""
        for link in self.links:
            if bottleneck is None or link.bottleneck == bottleneck:
                yield link.intf1
                yield link.intf2

    # What settings need of a kernel (`testbed.linux.settings.Kernel`).

    def interface(self, node: str, device: str) -> VethIntf | Between:
        """The interface ``device`` of ``node``."""
        return self.between.get((node, device)) or cast(VethIntf, self[node].nameToIntf[device])

    def sysctl(self, node: str, key: str) -> str:
        with netns.entered(self[node].namespace):
            return " ".join(_sysctl(key).read_text().split())

    def set_sysctl(self, node: str, key: str, value: str) -> None:
        with netns.entered(self[node].namespace):
            _sysctl(key).write_text(value)

    def device(self, node: str, device: str) -> dict[str, Any]:
        end = self.interface(node, device)
        told = end.node.ip.get_links(end.index)[0]
        return {"mtu": told.get("mtu"), "state": told["state"], "gso_max_segs": told.get("gso_max_segs")}

    def set_device(self, node: str, device: str, **values: int) -> None:
        end = self.interface(node, device)
        end.node.ip.link("set", index=end.index, **values)

    def offloads(self, node: str, device: str) -> dict[str, bool]:
        flags = self[node].offloads(device).get_offload_flags()
        return {short: bool(flags[name]) for short, name in OFFLOADS.items()}

    def set_offloads(self, node: str, device: str, *, on: bool) -> None:
        with netns.entered(self[node].namespace):
            for flag in OFFLOADS.values():
                self[node].offloads(device).set_offload_flag(flag, on)

    def queue(self, node: str, device: str, messages: Sequence[Tc], *, change: bool = False) -> None:
        end = self.interface(node, device)
        with Socket(end.node.namespace) as route:
            for message in messages:
                try:
                    (route.change if change else route.add)(end.index, message)
                except OSError as error:
                    if error.errno != errno.ENOENT or message.what != "qdisc":
                        raise
                    raise MachineError(
                        f"queue: this kernel has no queueing discipline {message.kind} (CONFIG_NET_SCH_{message.kind.upper()}). "
                        "Use --on uml, whose kernel has it, or another --queue."
                    ) from error

    def queues(self, node: str, device: str, parents: Iterable[int]) -> dict[Kind, Sequence[Tc]]:
        end = self.interface(node, device)
        with Socket(end.node.namespace) as route:
            filters = [found for parent in parents for found in route.shown(end.index, "filter", parent)]
            return {
                "qdisc": route.shown(end.index, "qdisc"),
                "class": route.shown(end.index, "class"),
                "filter": filters,
            }

    def set_addressing(self, node: str, addressing: Addressing) -> None:
        """Mininet did, when the network was built."""

    def addressing(self, node: str) -> Addressing:
        devices = {end.index: end.name for end in self[node].intfList()}
        addresses = [(devices[index], address) for index, address in self[node].addresses()]
        neighbours = [one for one in self[node].ip.get_neighbours(AF_INET) if one["state"] & NUD_PERMANENT]
        with Socket(self[node].namespace) as route:
            routes = route.routes()
        return Addressing(
            {device: address for device, address in addresses if not address.endswith(SINGLE)},
            {one.get("dst"): one.get("lladdr") for one in neighbours if one["ifindex"] in devices},
            {prefix: hops for prefix, hops in routes.items() if not prefix.endswith(SINGLE)},
        )

    def add_address(self, node: str, device: str, address: str) -> None:
        end = self.interface(node, device)
        end.node.ip.addr("add", index=end.index, address=address, prefixlen=32)

    def addresses(self, node: str, device: str) -> Sequence[str]:
        end = self.interface(node, device)
        own = [address for index, address in end.node.addresses() if index == end.index]
        return [address.removesuffix(SINGLE) for address in own if address.endswith(SINGLE)]

    def add_route(self, node: str, address: str, vias: Sequence[str]) -> None:
        hops = {"gateway": vias[0]} if len(vias) == 1 else {"multipath": [{"gateway": via} for via in vias]}
        self[node].ip.route("add", dst=f"{address}{SINGLE}", **hops)

    def host_routes(self, node: str) -> Mapping[str, tuple[str, ...]]:
        with Socket(self[node].namespace) as route:
            found = route.routes()
        return {prefix.removesuffix(SINGLE): hops for prefix, hops in found.items() if prefix.endswith(SINGLE)}

    def lead_through(self, node: str, device: str, between: str) -> None:
        end = self.interface(node, device)
        ip = end.node.ip
        index = self._add_between(node, between)
        ip.tc("add", "clsact", index=end.index)
        ip.tc(
            "add-filter", "matchall", index=end.index, parent=INGRESS, prio=1, protocol=ETH_P_ALL,
            action={"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": index},
        )  # fmt: skip

    def _add_between(self, node: str, name: str) -> int:
        """A new device that packets pass, up; its index."""
        ip = self[node].ip
        ip.link("add", ifname=name, kind="ifb")
        index = int(ip.link_lookup(ifname=name)[0])
        ip.link("set", index=index, state="up")
        self.between[node, name] = Between(self[node], index)
        return index

    def led_through(self, node: str, device: str) -> str:
        end = self.interface(node, device)
        told = end.node.ip.get_filters(index=end.index, parent=INGRESS)
        targets = {index for message in told for index in _redirections(message)}
        found = [
            name
            for (_, name), between in self.between.items()
            if {between.index} == targets and between.node is end.node
        ]
        if len(found) != 1:
            return ""
        (link,) = end.node.ip.get_links(next(iter(targets)))
        return found[0] if link.get("state") == "up" else ""

    def add_way(self, node: str, between: str, table: int, routes: Mapping[str, str]) -> None:
        ip = self[node].ip
        self._add_between(node, between)
        ip.rule("add", iifname=between, table=table, priority=table)
        for prefix, via in routes.items():
            ip.route("add", dst=prefix, gateway=via, table=table)

    def way(self, node: str, between: str) -> Mapping[str, str]:
        ip = self[node].ip
        (link,) = ip.get_links(self.between[node, between].index)
        rules = [rule for rule in ip.get_rules(AF_INET) if rule.get_attr("FRA_IIFNAME") == between]
        if link.get("state") != "up" or len(rules) != 1:
            return {}
        told = ip.get_routes(AF_INET, table=rules[0].get_attr("FRA_TABLE"))
        return {f"{each.get('dst')}/{each['dst_len']}": str(each.get("gateway")) for each in told}

    def take_turns(self, node: str, device: str, bit: int, betweens: Sequence[str]) -> None:
        self.queue(node, device, list(turns.messages(bit, [self.between[node, name].index for name in betweens])))

    def turns(self, node: str, device: str) -> Sequence[str]:
        names = {between.index: name for (other, name), between in self.between.items() if other == node}
        return turns.held(self.queues(node, device, [INGRESS])["filter"], names)

    def classify(self, node: str, device: str, name: str, constants: Mapping[str, int]) -> None:
        end = self.interface(node, device)
        program = self.classifiers[node, device] = classifier.load(constants)
        classifier.attach(end.node.namespace, end.index, name, program)

    def classified(self, node: str, device: str, constants: Mapping[str, int]) -> dict[str, Any]:
        end = self.interface(node, device)
        return classifier.held(end.node.namespace, end.index, self.classifiers[node, device], constants)

    def register(self, cc: CongestionControl) -> None:
        self.registered[cc.spec] = registry.register(cc, self.modules)

    def kind(self, spec: str) -> str:
        return self.registered[spec].kind

    def constants(self, spec: str) -> Mapping[str, int]:
        return self.registered[spec].constants

    def name(self, spec: str) -> str:
        return self.registered[spec].name

    def allow(self, spec: str) -> None:
        name = self.registered[spec].name
        if self.registered[spec].kind != "module" or name in ALLOWED.read_text().split():
            return
        if self.modules is None:
            raise MachineError(
                f"{name} is a module of this machine's kernel, and programs need root's permission to use it. "
                f"Add it to {ALLOWED}, or unload the module (a run then uses eBPF)."
            )
        ALLOWED.write_text(f"{ALLOWED.read_text().strip()} {name}")


def _sysctl(key: str) -> Path:
    return Path("/proc/sys", key.replace(".", "/"))


def build(
    topo: Topo, modules: Path | None = None, made: type[Network] = Network, host: type[Host] = Host
) -> Network:  # fmt: skip
    """Build and configure ``topo``; the network (``made`` of nodes ``host``) lives until `Network.stop` or the process's end.

    ``modules``: the folder of our congestion controls, where they may be loaded into this kernel.
    """
    setLogLevel("warning")
    # Mininet.__init__ calls Mininet.init by that name, which would ask for the machine's limits.
    Mininet.inited = True
    numCores.ncores = os.cpu_count()  # otherwise Mininet starts grep to count them
    network = made(topo=topo, host=host, link=VethLink, intf=VethIntf, controller=None, build=False)
    network.modules, network.registered, network.classifiers, network.between = modules, {}, {}, {}
    network.build()
    _await_carrier(network)
    return network


def _await_carrier(network: Network) -> None:
    """Wait until every interface can send: the kernel brings a link up behind our back, and drops what comes before."""
    deadline = time.monotonic() + CARRIER_S
    for end in network.ends():
        while end.node.ip.get_links(end.index)[0].get("operstate") != "UP":
            if time.monotonic() > deadline:
                raise TestbedError(f"{end.name} did not come up within {CARRIER_S:g} s")
            time.sleep(0.001)


def switch(network: Network, end: VethIntf, *, up: bool) -> None:
    """Take one end of a link down or up; routing converges at once: the shortest of the ways that are left.

    A link of which an end is down counts as failed.
    """
    end.node.ip.link("set", index=end.index, state="up" if up else "down")
    there = end.link.intf2 if end is end.link.intf1 else end.link.intf1
    if up:  # what the kernel forgets about an interface that is down
        end.node.ip.neigh("replace", ifindex=end.index, dst=there.ip, lladdr=there.mac, state="permanent")
        if not end.node.forwards:
            end.node.ip.route("replace", dst="default", gateway=there.ip)
    before = network.routes or network.topo.routes()
    network.failed = network.failed - {end.name} if up else network.failed | {end.name}
    failed = [
        (link.intf1.node.name, link.intf2.node.name)
        for link in network.links
        if {link.intf1.name, link.intf2.name} & network.failed
    ]
    network.routes = network.topo.routes(failed)
    for name, routes in network.routes.items():
        ip = network[name].ip
        for gone in dict(before[name]).keys() - dict(routes).keys():
            with contextlib.suppress(NetlinkError):  # the kernel took it with the interface
                ip.route("del", dst=gone)
        for prefix, next_hops in routes:
            ip.route("replace", dst=prefix, **_via(next_hops))
        if routes != before[name]:
            _routed(network, name, dict(routes))
    for name, hops in spraying.to_addresses(network.topo, network.topo.aliases, network.routes).items():
        for address, vias in hops.items():
            with contextlib.suppress(NetlinkError):  # what cannot be reached now
                network[name].ip.route("replace", dst=f"{address}{SINGLE}", **_via(vias))
    if up and not end.node.forwards:
        _routed(network, end.node.name, {DEFAULT: (there.ip,)})


def _routed(network: Network, node: str, wanted: dict[str, tuple[str, ...]]) -> None:
    """Raises `TestbedError` if the kernel has other routes than those it was just given."""
    if wrong := list(unlike(wanted, network.addressing(node).routes)):
        raise TestbedError(
            f"{node}: after a link failed or came back, its routes are not those requested ({wrong[0]}). "
            "The results would be wrong, so the run was stopped."
        )


def _redirections(message: Any) -> Iterator[int]:
    """The devices to which a filter's actions redirect (``mirred``), by index."""
    options = message.get_attr("TCA_OPTIONS")
    actions = options.get_attr("TCA_MATCHALL_ACT") if options is not None else None
    for _, action in actions["attrs"] if actions is not None else ():
        if action.get_attr("TCA_ACT_KIND") == "mirred":
            yield action.get_attr("TCA_ACT_OPTIONS").get_attr("TCA_MIRRED_PARMS")["ifindex"]


def _via(next_hops: tuple[str, ...]) -> dict[str, Any]:
    return {"gateway": next_hops[0]} if len(next_hops) == 1 else {"multipath": [{"gateway": via} for via in next_hops]}


def link_name(end: VethIntf) -> str:
    """The direction that leaves by ``end``: ``s1-s2``."""
    there = end.link.intf2 if end is end.link.intf1 else end.link.intf1
    return f"{end.node.name}-{there.node.name}"

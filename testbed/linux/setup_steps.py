"""The changes of a kernel before a run's jobs begin: a pure function of the plan and of the kernel's features."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec
from mininet.topo import Topo

from testbed import networks, queues
from testbed.congestion import catalogue
from testbed.core import layouts
from testbed.core.errors import MachineError, RequestError
from testbed.core.runs.plan import CongestionControl, JobPlan, Link, Plan, Sender
from testbed.core.text import quoted
from testbed.linux.features import HASH_SEED, RTO_MIN_US, Features
from testbed.linux.kernel import DEFAULT, Addressing, mac
from testbed.linux.queues.classify import Classify, Dscp, PureAcks
from testbed.linux.queues.discipline import Discipline
from testbed.linux.queues.fifo import Fifo
from testbed.linux.queues.fq import Fq
from testbed.linux.queues.netem import Netem
from testbed.linux.queues.prio import HTB_LEVELS, Htb, Prio
from testbed.linux.queues.rates import bucket_bytes
from testbed.linux.queues.red import Red
from testbed.linux.queues.setting import Nic, Queues
from testbed.linux.queues.tbf import Tbf
from testbed.linux.queues.tree import Queue
from testbed.linux.settings import (
    KERNEL,
    MTU,
    Change,
    addressed,
    behind,
    default,
    frame_by_frame,
    mtu,
    offloads_off,
    packet_spraying,
    path_addresses,
    path_routes,
    phantom_queue,
    register,
    sysctl,
)
from testbed.models.frames import frame
from testbed.networks import spraying
from testbed.networks.routed import RoutedTopo

Stage = Literal["network", "capacity", "queues", "congestion controls"]
STAGES: tuple[Stage, ...] = ("network", "capacity", "queues", "congestion controls")
RECEIVE_BUFFER, SMALLEST_BUFFER = 16 << 20, 128 << 10
SEND_BUFFER = 4 << 20  # the kernel's own (tcp_wmem)
SMALL_QUEUE = "net.ipv4.tcp_limit_output_bytes"
HASH = "net.ipv4.fib_multipath_hash"
FIVE_TUPLE = 0x01 | 0x02 | 0x04 | 0x10 | 0x20  # source and destination IP, protocol, source and destination port


@dataclass(frozen=True)
class Capacity:
    """The step that measures the capacity of the unshaped path."""

    line = "measure the capacity of the unshaped path"


@dataclass(frozen=True)
class Step:
    """One set-up step, with its stage."""

    stage: Stage
    change: Change | Capacity


@dataclass(frozen=True)
class Interface:
    """One end of a link, named after the direction of the data that it sends."""

    node: str
    device: str
    there: str

    @property
    def link(self) -> str:
        return f"{self.node}-{self.there}"


@lru_cache(maxsize=8)
def _topology(name: str, arguments: tuple[int, ...], nics: int) -> Topo:
    return networks.made(name, arguments, nics)


def topology(plan: Plan) -> Topo:
    """The plan's network, as yet without a kernel."""
    return _topology(plan.topology, plan.topology_args, plan.nics_per_server)


def interfaces(topo: Topo) -> list[Interface]:
    """Both ends of every link, named and ordered as `testbed.linux.network` makes them."""
    found = []
    for _, _, info in topo.links(sort=True, withInfo=True):
        a, b = info["node1"], info["node2"]
        found += [Interface(a, f"{a}-eth{info['port1']}", b), Interface(b, f"{b}-eth{info['port2']}", a)]
    return found


def addressing(topo: Topo) -> dict[str, Addressing]:
    """The links between nodes, as the topology defines them."""
    found = {}
    for node in topo.hosts():
        known = topo.nodeInfo(node)
        routes = {prefix: tuple(hops) for prefix, hops in known.get("routes", ())}
        if default := known.get("defaultRoute"):
            routes[DEFAULT] = (default.removeprefix("via "),)
        found[node] = Addressing({}, {}, routes)
    for number, (_, _, info) in enumerate(topo.links(sort=True, withInfo=True)):
        ends = [(info[f"node{end}"], info[f"port{end}"], info[f"params{end}"].get("ip")) for end in (1, 2)]
        for here, (node, port, address) in enumerate(ends):
            if address:
                found[node].addresses[f"{node}-eth{port}"] = address
            if other := ends[1 - here][2]:
                found[node].neighbours[other.split("/")[0]] = mac(number, 2 - here)
    return found


def changes(plan: Plan, features: Features) -> tuple[Step, ...]:
    """Return every step in order.

    Raises `MachineError` if the kernel lacks a feature, and `RequestError` if no kernel has it.
    """
    topo = topology(plan)
    ends = interfaces(topo)
    _check(plan, features)
    steps = [Step("network", setting) for setting in _network(plan, features, topo, ends)]
    if plan.measure_capacity and features.clock == "real":
        steps.append(Step("capacity", Capacity()))
    steps += [Step("queues", setting) for setting in _queues(plan, features, topo, ends)]
    steps += [Step("congestion controls", setting) for setting in _congestion_controls(plan, features)]
    return tuple(steps)


def settings(steps: Iterable[Step], stage: Stage) -> list[Change]:
    """Return the settings of one stage, which are applied and read back."""
    return [step.change for step in steps if step.stage == stage and not isinstance(step.change, Capacity)]


def _check(plan: Plan, features: Features) -> None:
    uses_ecn = any(link.marks for link in plan.bottlenecks.values())
    several = any(link.acks_first or link.control or link.bands > 1 for link in plan.bottlenecks.values())
    selective = any(link.selective for link in plan.bottlenecks.values())
    own = [cc for cc in plan.ccs if catalogue.of_the_kernel(cc)]
    if features.clock == "real" and (set_ones := [cc.spec for cc in own if cc.constants]):
        raise RequestError(
            f"system: {quoted(set_ones[0])} sets a parameter that all connections of this machine share. Use --on uml, "
            "where each run has its own kernel."
        )
    for cc in own:
        if other := next((one for one in own if one.name == cc.name and one.constants != cc.constants), None):
            raise RequestError(
                f"system: {quoted(cc.spec)} and {quoted(other.spec)} in one run: a kernel has one set of parameters of {cc.name} for "
                "all connections. Compare them as two systems."
            )
    for job in plan.jobs:
        if job.program is not None and job.cc.traits.needs_marks:
            raise RequestError(
                f"job {job.job} ({job.trace}) opens its own sockets, but {job.cc.name} cannot be the default of a network "
                "namespace. Use reno, cubic, mltcp_reno or mltcp_cubic for real programs."
            )
        if job.program is not None and catalogue.effective(job.cc).get("share"):
            raise RequestError(
                f"job {job.job} ({job.trace}) opens its own sockets, which do not carry the mark of their job. "
                f"{quoted(job.cc.spec)} needs this mark. Leave out shared_by=so_mark for real programs."
            )
    if plan.wires and not features.netem:
        raise MachineError(
            "--delay, --jitter, --loss and --corrupt need --on uml: this machine's kernel has no queueing discipline netem "
            "(CONFIG_NET_SCH_NETEM)."
        )
    if any(job.routers_spray for job in plan.jobs):
        if not plan.multipath:
            raise RequestError("spray=on: the topology has only one path. Use for instance --topo leafspine,2,4,2.")
        if any(event.up is not None for event in plan.events):
            raise RequestError(
                "spray=on: packets would still take a link that fails. Leave out the event, or the spraying."
            )
        if not features.netem:
            raise MachineError(
                "spray=on needs --on uml: this machine's kernel cannot redirect packets (CONFIG_NET_ACT_MIRRED)."
            )
    if several and not (features.prio or features.htb):
        raise MachineError(
            "--ack-priority on and priority queues need the queueing discipline PRIO or HTB, and this kernel has neither "
            "(CONFIG_NET_SCH_PRIO). Leave it out, or use --on uml."
        )
    if selective and not features.red:
        raise MachineError(
            "priority queues that drop unmarkable packets (drop-non-ect) need --on uml: this machine's kernel has no queueing discipline RED "
            "(CONFIG_NET_SCH_RED), and its replacement cannot drop."
        )
    if uses_ecn and not features.red and any(link.bands > 1 for link in plan.bottlenecks.values()):
        raise MachineError(
            "priority queues with ECN marking need --on uml: this machine's kernel has no RED "
            "(CONFIG_NET_SCH_RED). Use --ecn off."
        )
    if uses_ecn and not features.red and (plan.traced or any(event.rate_bps is not None for event in plan.events)):
        raise MachineError(
            "an event or a rate_trace on a link with ECN needs --on uml: this machine's kernel has no "
            "RED (CONFIG_NET_SCH_RED), and its replacement cannot change its rate."
        )
    if plan.rto_min_us is not None and not features.rto_min:
        raise MachineError(
            f"--rto-min needs Linux 6.11 or newer, whose namespaces have {RTO_MIN_US}; this kernel has none. Leave it out, "
            "or build a newer kernel for --on uml (`mltcp kernel --linux-source`)."
        )


def _network(plan: Plan, features: Features, topo: Topo, ends: list[Interface]) -> Iterator[Change]:
    # A sender may hold several full paths and buffers, and no more; the receiver's window begins there
    # and never limits.
    path = max(link.buffer_bytes + int(link.rate_bps / 8 * plan.base_rtt_s) for link in plan.bottlenecks.values())
    most = plan.sender.send_buffer_bytes or max(SMALLEST_BUFFER, 4 * path)
    if plan.sender.nic_bps is not None and plan.sender.send_buffer_bytes is None:
        most = max(SEND_BUFFER, most)  # the send buffer also holds data that waits for the interface
    window = max(RECEIVE_BUFFER, 4 * path)
    uses_ecn = any(link.marks for link in plan.bottlenecks.values())
    yield from (addressed(node, held) for node, held in addressing(topo).items())
    for node in topo.hosts():
        values = {
            "net.ipv4.ip_forward": "1" if topo.isRouter(node) else "0",
            "net.ipv4.tcp_slow_start_after_idle": str(int(plan.sender.slow_start_after_idle)),
            "net.ipv4.tcp_no_metrics_save": "1",
            "net.ipv4.tcp_timestamps": "1",
            "net.ipv4.tcp_sack": "1",
            "net.ipv4.tcp_ecn": "1" if uses_ecn else "0",
            "net.ipv4.tcp_rmem": f"4096 {most} {window}",
            "net.ipv4.tcp_wmem": f"4096 {min(131072, most)} {most}",
        }
        if plan.sender.small_queue_bytes is not None and not topo.isRouter(node):
            values[SMALL_QUEUE] = str(plan.sender.small_queue_bytes)
        if features.ipv6:
            values["net.ipv6.conf.all.disable_ipv6"] = "1"
        if plan.rto_min_us is not None:
            values[RTO_MIN_US] = str(plan.rto_min_us)
        yield from (sysctl(node, key, value) for key, value in values.items())
    if plan.paths > 1:
        yield from _paths(plan, topo, ends)
    if isinstance(topo, RoutedTopo) and topo.aliases:
        yield from _aliases(plan, topo, ends)
    if plan.multipath:
        yield from multipath(topo, plan.seed, seeded=features.hash_seed)
    if sprayed := {host for job in plan.jobs if job.routers_spray for host in job.hosts}:
        yield from _sprayed_by_routers(plan, topo, ends, sprayed)
    for end in ends:
        yield mtu(end.node, end.device, plan.link.mtu)
        yield offloads_off(end.node, end.device)
        if any(cc.traits.frame_by_frame for cc in plan.ccs):  # paced as an adapter does it
            yield frame_by_frame(end.node, end.device)


def _paths(plan: Plan, topo: Topo, ends: list[Interface]) -> Iterator[Change]:
    """Addresses by which senders choose a path, and the routers that go by them."""
    count = plan.paths
    for end in ends:
        if not topo.isRouter(end.node):
            yield path_addresses(
                end.node, end.device, tuple(spraying.address(topo, end.node, path) for path in range(count))
            )
    routes = spraying.hashed if plan.paths_hashed else spraying.routes
    for router, hops in routes(topo, count).items():
        yield path_routes(router, hops)


def _aliases(plan: Plan, topo: RoutedTopo, ends: list[Interface]) -> Iterator[Change]:
    """Further addresses of hosts, those of a Mininet script, and the routes to them."""
    if plan.paths > 1:
        raise RequestError(
            "spray=on needs further addresses of hosts, but hosts of a Mininet script keep their own. "
            "Use a built-in topology."
        )
    for end in ends:
        if end.node in topo.aliases:
            yield path_addresses(end.node, end.device, (topo.aliases[end.node],))
    for router, hops in spraying.to_addresses(topo, topo.aliases, topo.all_routes).items():
        yield path_routes(router, hops)


def _sprayed_by_routers(plan: Plan, topo: Topo, ends: list[Interface], hosts: set[str]) -> Iterator[Change]:
    """Yield the settings of routers that spray packets of these hosts over all paths."""
    try:
        found = spraying.turns(topo)
    except ValueError as error:
        raise RequestError(f"spray=on: {error}. Use for instance --topo leafspine,2,4,2.") from error
    for router, turns in found.items():
        from_below = [end for end in ends if end.node == router and end.there in turns.below]
        ports = [end for end in from_below if topo.isRouter(end.there) or end.there in hosts]
        for end in ports:
            if (link := f"{end.there}-{end.node}") in plan.wires:
                raise RequestError(
                    f"spray=on: {link} also has a delay or a loss, and both need the same hook of the kernel. Leave out one of them."
                )
        yield packet_spraying(router, tuple(end.device for end in ports), turns.bit, turns.ways)


def multipath(topo: Topo, seed: int, *, seeded: bool) -> list[Change]:
    """Return the settings by which routers choose among equal paths (`testbed.linux.paths`); ``seed`` is the run's."""
    wanted: list[Change] = []
    for node in topo.hosts():
        if any(len(next_hops) > 1 for _, next_hops in topo.nodeInfo(node).get("routes", ())):
            wanted += [sysctl(node, f"{HASH}_policy", "3"), sysctl(node, f"{HASH}_fields", str(FIVE_TUPLE))]
            if seeded:
                wanted.append(sysctl(node, HASH_SEED, str(_hash_seed(seed, node))))
    return wanted


def _hash_seed(seed: int, router: str) -> int:
    """32 bits, not 0 (which means none)."""
    return int(hashlib.sha256(f"ecmp {seed} {router}".encode()).hexdigest()[:8], 16) or 1


def _queues(plan: Plan, features: Features, topo: Topo, ends: list[Interface]) -> Iterator[Change]:
    fastest = max(link.rate_bps for link in plan.bottlenecks.values())
    arrives = {f"{end.there}-{end.node}": end for end in ends}
    for end in ends:
        if end.link in plan.nics:
            yield Nic(end.node, end.device, end.link, nic(plan.sender, plan.link.mtu, features))
        if link := plan.bottlenecks.get(end.link):
            bucket = bucket_bytes(link.rate_bps, link.mtu, real_time=features.clock == "real")
            if link.ecn_threshold and not features.red:
                yield phantom_queue(end.node, end.device, link.rate_bps, bucket, link.buffer_bytes, link.ecn_threshold)
            here = link if topo.isRouter(end.node) else _at_a_host(link)
            yield Queues(end.node, end.device, end.link, shaper(here, bucket, features))
        if wire := plan.wires.get(end.link):
            seed = int(hashlib.sha256(f"netem {plan.seed} {end.device}".encode()).hexdigest()[:15], 16)
            root = Netem(wire.delay_ns, wire.jitter_ns, wire.loss, wire.corrupt, fastest, seed, wire.burst)
            # A host's own queue stays the last thing it has.
            if end.link in plan.bottlenecks or not topo.isRouter(end.node):
                device = arrives[end.link].device
                between = f"ifb-{device.rpartition('-')[2]}"
                yield behind(device, Queues(end.there, between, end.link, root))
            else:
                yield Queues(end.node, end.device, end.link, root)


def nic(sender: Sender, mtu: int, features: Features) -> Tbf:
    """A host's interface, and what waits before it."""
    assert sender.nic_bps is not None
    bucket = bucket_bytes(sender.nic_bps, mtu, real_time=features.clock == "real")
    if sender.queue == "fq":
        return Tbf(sender.nic_bps, bucket, Fq(frame_bytes=frame(mtu)))
    buffer = max(2 * frame(mtu), sender.queue_bytes)
    if sender.bands > 1:
        waits = Link(sender.nic_bps, buffer, mtu, acks_first=False, bands=sender.bands, control=True)
        return shaper(waits, bucket, features)
    return Tbf(sender.nic_bps, bucket, Fifo(buffer, made_above=True))


def _at_a_host(link: Link) -> Link:
    """A host that recognises urgent packets sends them first, but neither marks nor drops its packets."""
    return msgspec.structs.replace(link, ecn_threshold=None, queue=None, selective=()) if link.control else link


def shaper(link: Link, bucket: int, features: Features) -> Tbf:
    """The queues of a bottleneck."""
    data = _data(link, features)
    above = link.acks_first or link.control
    classify: list[Classify] = [PureAcks()] if above else []
    if link.bands > 1 or link.control:
        classify.append(Dscp(link.bands + link.control))
    if not classify:
        below = Fifo(link.buffer_bytes, made_above=True) if isinstance(data, Fifo) else data
        return Tbf(link.rate_bps, bucket, below)
    chosen: list[Fifo | Red | Discipline] = [
        Red(one.min_bytes, one.max_bytes, one.probability, link.buffer_bytes, "drop") for one in link.selective
    ]
    bands: tuple[Fifo | Red | Discipline, ...] = (*[Fifo(link.buffer_bytes)] * above, *(chosen or [data] * link.bands))
    if features.prio:
        return Tbf(link.rate_bps, bucket, Prio(bands, tuple(classify)))
    plenty = min(2 * link.rate_bps, 30 * 10**9) // 8
    if len(bands) <= HTB_LEVELS:
        return Tbf(link.rate_bps, bucket, Htb(bands, tuple(classify), plenty))
    data_bands = Htb(bands[1:], tuple(classify[1:]), plenty)
    return Tbf(link.rate_bps, bucket, Htb((bands[0], data_bands), tuple(classify[:1]), plenty))


def _data(link: Link, features: Features) -> Fifo | Red | Discipline:
    if link.queue is not None:
        return Discipline(link.queue, link.buffer_bytes)
    threshold = link.ecn_threshold if features.red else None
    if threshold is None:
        return Fifo(link.buffer_bytes)
    return Red(threshold.min_bytes, threshold.max_bytes, threshold.probability, link.buffer_bytes)


def band_parents(root: Tbf) -> dict[int, int]:
    """Return the handle of each priority queue's parent, by class selector; empty for a single queue."""
    below = root.below
    if not isinstance(below, Prio) or not any(isinstance(each, Dscp) for each in below.classify):
        return {}
    return {len(below.bands) - minor: 0x100000 | minor for minor in below.children}


RED_MARKED = queues.Counter(layouts.RED_XSTATS.members["marked"][0])


def counters(root: Tbf) -> list[dict[str, Any]]:
    """Return the counters of marks and drops below a bottleneck's token bucket.

    Each has the handle of its parent, the offset of its marks, and whether it drops by itself. The bucket does not
    count packets that a queue drops after accepting them, so then every queue below the bucket counts its own drops.
    """
    leaves = (
        {0x10001: root.below}
        if not root.below.children
        else {0x100000 | minor: band for minor, band in root.below.children.items()}
    )
    itself = any(isinstance(queue, Discipline) for queue in leaves.values())
    return [
        {"parent": parent, "marks": [asdict(one) for one in _marks(queue)], "drops": itself}
        for parent, queue in leaves.items()
        if itself or isinstance(queue, Red)
    ]


def _marks(queue: Queue) -> tuple[queues.Counter, ...]:
    return queue.module.MARKS if isinstance(queue, Discipline) else (RED_MARKED,) if isinstance(queue, Red) else ()


def _congestion_controls(plan: Plan, features: Features) -> Iterator[Change]:
    kinds = {cc.spec: _kind(cc, features) for cc in plan.registered}
    for cc in plan.registered:
        yield register(cc, kinds[cc.spec])
    for job in plan.jobs:
        if kinds[job.cc.spec] == "module" and job.cc.source is None:
            yield from _parameters(job)
    for job in plan.jobs:
        if job.program is not None:
            yield from (default(host, job.cc.spec) for host in job.hosts)


def _kind(cc: CongestionControl, features: Features) -> str:
    if cc.source is not None:
        return "module" if features.loads else "eBPF"
    if cc.name not in catalogue.names():
        return "eBPF" if cc.name in features.stand_ins else "kernel"
    return "module" if cc.name in features.modules else "eBPF"


def _parameters(job: JobPlan) -> Iterator[Change]:
    """Of our modules: per network namespace, so that each job has its own."""
    for host in job.hosts:
        yield from (sysctl(host, f"net.{job.cc.name}.{key}", str(value)) for key, value in job.cc.constants.items())


@dataclass(frozen=True)
class Line:
    """A step in words."""

    stage: Stage
    text: str


def lines(steps: Sequence[Step]) -> Iterator[Line]:
    """Yield every step in words, in order. A step in several places is listed once, with all places."""
    changed = [step.change for step in steps if not isinstance(step.change, Capacity)]
    nodes = {change.where for change in changed if change.what.startswith("net.")}
    ends = {change.where for change in changed if change.what == MTU}
    places: dict[tuple[Stage, str], list[str]] = {}
    for step in steps:
        where = [] if isinstance(step.change, Capacity) or step.change.where == KERNEL else [step.change.where]
        places.setdefault((step.stage, step.change.line), []).extend(where)
    for (stage, line), where in places.items():
        if set(where) == nodes:
            suffix = " on every host and router"
        elif set(where) == ends:
            suffix = " on every interface"
        else:
            suffix = f" on {' '.join(where)}" if where else ""
        yield Line(stage, line + suffix)

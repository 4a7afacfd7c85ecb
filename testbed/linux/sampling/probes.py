"""Measurements of a network before and after the jobs run: capacity, idle round trips, losses."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from pathlib import Path

import msgspec

from testbed.core.errors import TestbedError
from testbed.core.runs.manifest import Counters
from testbed.core.runs.plan import JobPlan, Operation, Plan
from testbed.linux import netns
from testbed.linux.network import Network
from testbed.linux.participants.workers import PORT_BEFORE, Workers

WARM_UP_S, MEASURE_S = 0.3, 0.7  # of the capacity measurement
# TcpExt in /proc/net/netstat: events that pause a sender, and packets that a receiver drops.
STALLS = ("TCPTimeouts", "TCPLossProbes", "TCPSpuriousRTOs")
RECEIVER_DROPS = (
    "TCPBacklogDrop", "TCPRcvQDrop", "TCPZeroWindowDrop", "TCPOFODrop", "PruneCalled", "RcvPruned", "OfoPruned",
)  # fmt: skip
REORDERED = (
    "TCPSACKReorder",
    "TCPRenoReorder",
    "TCPTSReorder",
    "TCPDSACKUndo",
)  # reordering events, as detected by senders
RTT_PROBES, PORT_ECHO, PROBES_S = 30, 7, 2.0


def capacity_bps(plan: Plan, network: Network) -> float:
    """Return the capacity of the unshaped path in bit/s, measured with every flow of the run sending without pause."""
    greedy = tuple(_greedy(job) for job in plan.jobs)
    ends = list(network.ends(bottleneck=True))

    def sent() -> int:
        return sum(end.node.ip.get_links(end.index)[0].get("stats64")["tx_bytes"] for end in ends)

    with Workers(network, greedy, lambda _job: "reno", port=PORT_BEFORE) as workers:
        workers.start(time.monotonic_ns())
        time.sleep(WARM_UP_S)
        before, at = sent(), time.monotonic()
        time.sleep(MEASURE_S)
        return (sent() - before) * 8 / (time.monotonic() - at)


def _greedy(job: JobPlan) -> JobPlan:
    """The same flows, without computing and without an end."""
    ring = Operation("all", "all_reduce", (), algorithm="ring")  # a real program counts as a ring all-reduce
    exchange = ring if job.groups else next(iter(job.collectives), ring)
    endless = msgspec.structs.replace(exchange, bytes=1 << 40, after=())
    hosts = tuple(dict.fromkeys(job.hosts)) if job.groups else job.hosts  # ranks may share a server
    return msgspec.structs.replace(
        job,
        hosts=hosts,
        groups=(),
        operations=(endless,),
        offset_ns=0,
        noise="0%",
        program=None,
        grid=None,
        bands=(),
        transport="tcp",
    )


def round_trip_us(plan: Plan, network: Network) -> float:
    """Median round trip of a small datagram between the plan's `ends`, idle; in us."""
    first, last = (network[host] for host in plan.ends)
    with netns.entered(first.namespace):
        here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with netns.entered(last.namespace):
        there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with here, there:
        here.bind(("", PORT_ECHO))  # fixed, as are the ports of all flows: ports decide on the path
        there.bind((last.IP(), PORT_ECHO))
        for sock in (here, there):
            sock.settimeout(0.1 + 2 * plan.base_rtt_s)
        times: list[int] = []
        until = time.monotonic() + PROBES_S
        for number in range(RTT_PROBES):
            if time.monotonic() > until:
                break
            word = number.to_bytes(4, "big")
            begun = time.monotonic_ns()
            here.sendto(word, (last.IP(), PORT_ECHO))
            with contextlib.suppress(TimeoutError):  # where packets are lost at random, some of these are
                while (answer := there.recvfrom(16))[0] != word:
                    pass
                there.sendto(*answer)
                while here.recv(16) != word:
                    pass
                times.append(time.monotonic_ns() - begun)
    if not times:
        raise TestbedError(
            f"no packet comes back from {last.name} to {first.name}. Check --loss and [[event]] on that path."
        )
    return sorted(times)[len(times) // 2] / 1000


class Counting:
    """Kernel counters of a network, relative to the creation of this object."""

    def __init__(self, network: Network, *, reordered: bool = False) -> None:
        """``reordered``: packets that arrive out of order, too."""
        self.network, self.names = network, STALLS + RECEIVER_DROPS + REORDERED * reordered
        self.machine, self.tcp = _machine_counters(network), _tcp_counters(network, self.names)

    def since(self) -> tuple[Counters, dict[str, int]]:
        """Losses and the machine's own trouble so far; TCP's stalls and receivers' drops, under the kernel's own names."""
        machine, tcp = _machine_counters(self.network), _tcp_counters(self.network, self.names)
        grown = {name: value - self.tcp[name] for name, value in tcp.items()}
        since = {name: value - self.machine[name] for name, value in machine.items()}
        return Counters(**since, tcp_timeouts=grown["TCPTimeouts"]), grown


def _machine_counters(network: Network) -> dict[str, int]:
    dropped = errors = packets = 0
    for end in network.ends():
        stats = end.node.ip.get_links(end.index)[0].get("stats64")
        dropped += stats["rx_dropped"] + stats["tx_dropped"]
        errors += stats["rx_errors"] + stats["tx_errors"]
        packets += stats["rx_packets"]
    rows = [line.split() for line in Path("/proc/net/softnet_stat").read_text().splitlines()]
    return {
        "interface_dropped": dropped, "interface_errors": errors, "packets": packets,
        "softnet_dropped": sum(int(row[1], 16) for row in rows),
        "softnet_squeezed": sum(int(row[2], 16) for row in rows),
    }  # fmt: skip


def _tcp_counters(network: Network, names: tuple[str, ...]) -> dict[str, int]:
    """Those of these names (stalls of senders, drops by receivers), summed over the hosts, under the kernel's own names; without those it lacks."""
    total: Counter[str] = Counter()
    for host in network.hosts:
        with netns.entered(host.namespace):
            total.update({name: value for name, value in _netstat("TcpExt").items() if name in names})
    return dict(total)


def _netstat(group: str) -> dict[str, int]:
    lines = [line.split() for line in Path("/proc/thread-self/net/netstat").read_text().splitlines()]
    names, values = (line[1:] for line in lines if line[0] == f"{group}:")
    return {name: int(value) for name, value in zip(names, values, strict=True)}


def repairs(network: Network) -> int | None:
    """Return how many calls that the kernel skipped were repaired (kernel/bpf/guard.h); None: not counted."""
    counted = [each.program.repairs() for each in network.registered.values() if each.program is not None]
    counts = [count for count in counted if count is not None]
    return sum(counts) if counts else None


def check_offloads(network: Network) -> None:
    """Raise `TestbedError` if an offload is on again."""
    for end in network.ends():
        if any(network.offloads(end.node.name, end.name).values()):
            raise TestbedError(f"{end.name}: an offload was switched on during the run")

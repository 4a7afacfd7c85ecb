"""Time to build a 32-host dumbbell with a shaped bottleneck, compared with stock Mininet's TCLink; and a 64-host fat
tree.

The two alternate in one run. Stock Mininet changes sysctls of the machine, so everything happens in namespaces in which
these are read-only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Host
from mininet.topo import Topo

from testbed.linux import features, settings, setup_steps
from testbed.linux.network import build, link_name
from testbed.linux.queues.fifo import Fifo
from testbed.linux.queues.rates import bucket_bytes
from testbed.linux.queues.setting import Queues
from testbed.linux.queues.tbf import Tbf
from topologies.dumbbell import Dumbbell
from topologies.fattree import FatTree

HOSTS, ROUNDS = 32, 5
INSIDE = "MLTCP_BENCHMARK_INSIDE"
SCRIPT = """
for part in fs kernel net/core; do
    mount --bind /proc/sys/$part /proc/sys/$part && mount -o remount,bind,ro /proc/sys/$part || exit
done
exec "$@"
"""


def main() -> None:
    if os.geteuid() != 0:
        sys.exit("needs root")
    if INSIDE not in os.environ:
        command = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        sys.exit(
            subprocess.run(
                [*command, "sh", "-c", SCRIPT, "sh", sys.executable, *sys.argv],
                env={**os.environ, INSIDE: "1"},
                check=False,
            ).returncode
        )
    times: dict[str, list[float]] = {"ours": [], "mininet": []}
    for _ in range(ROUNDS):
        times["ours"].append(timed(lambda: ours(Dumbbell(n=HOSTS // 2))))
        times["mininet"].append(timed(stock))
    for name, values in times.items():
        print(f"{name:8} {median(values):7.2f} ms per host  (of {ROUNDS}: {min(values):.2f} to {max(values):.2f})")
    ratios = [m / o for o, m in zip(times["ours"], times["mininet"], strict=True)]
    print(f"ratio    {median(ratios):7.1f}              (of {ROUNDS}: {min(ratios):.1f} to {max(ratios):.1f})")
    fattree = [timed(lambda: ours(FatTree(k=4, hosts=8))) * HOSTS / 1000 for _ in range(ROUNDS)]
    print(f"fat tree {median(fattree):7.2f} s for 64 hosts  (of {ROUNDS}: {min(fattree):.2f} to {max(fattree):.2f})")


def timed(make: Callable[[], Mininet]) -> float:
    """Milliseconds per host; taking the network down is not counted."""
    begun = time.perf_counter()
    network = make()
    span = time.perf_counter() - begun
    network.stop()
    return span * 1000 / HOSTS


def ours(topo: Topo) -> Mininet:
    """Built, every setting of a run applied and read back, shaped."""
    network = build(topo)
    wanted: list[settings.Change] = setup_steps.multipath(topo, 1, seeded=features.probe().hash_seed)
    for host in network.hosts:
        values = {"net.ipv4.ip_forward": str(int(host.forwards)), "net.ipv4.tcp_slow_start_after_idle": "0"}
        wanted += [settings.sysctl(host.name, key, value) for key, value in values.items()]
    for end in network.ends():
        wanted += [settings.mtu(end.node.name, end.name, 1500), settings.offloads_off(end.node.name, end.name)]
    for end in network.ends(bottleneck=True):
        bucket = bucket_bytes(500_000_000, 1500, real_time=True)
        root = Tbf(500_000_000, bucket, Fifo(62_500, made_above=True))
        wanted.append(Queues(end.node.name, end.name, link_name(end), root))
    settings.apply_all(wanted, network)
    return network


def stock() -> Mininet:
    setLogLevel("critical")  # TCLink calls every warning of tc an error
    network = Mininet(
        topo=Dumbbell(n=HOSTS // 2), host=Host, link=partial(TCLink, bw=500), controller=None, build=False
    )
    network.start()
    return network


if __name__ == "__main__":
    main()

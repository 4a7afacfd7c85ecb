"""Nanoseconds per ACK of MLTCP-Reno against the same Reno in eBPF without MLTCP.

The two alternate, one greedy flow each through the same dumbbell. The kernel's accounting (`BPF_ENABLE_STATS`, on only
while this process runs) reports how long their programs ran. Both carry the same accounting overhead, so only the ratio is
meaningful.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from testbed import spec
from testbed.core.environment import ROOT
from testbed.linux import settings
from testbed.linux.loading import bpf, bpfsys
from testbed.linux.network import Network, build, link_name
from testbed.linux.participants.workers import Workers
from testbed.linux.queues.fifo import Fifo
from testbed.linux.queues.rates import bucket_bytes
from testbed.linux.queues.setting import Queues
from testbed.linux.queues.tbf import Tbf
from testbed.planning import plan
from topologies.dumbbell import Dumbbell

ROUNDS, SECONDS = 5, 3.0
PER_ACK = ("cong_avoid", "in_ack_event", "cwnd_event")


def main() -> None:
    if os.geteuid() != 0:
        sys.exit("needs root")
    bpfsys.enable_statistics()
    kernel = Path(ROOT) / "kernel"
    with tempfile.TemporaryDirectory() as folder:
        # The base is in the benchmark's folder, its headers are in that of the kernel code.
        base = Path(folder) / "reno.bpf.c"
        base.write_text((Path(ROOT) / "benchmarks/reno.bpf.c").read_text())
        for header in (kernel / "bpf").glob("*.h"):
            (Path(folder) / header.name).write_text(header.read_text().replace("../mltcp.h", str(kernel / "mltcp.h")))
        programs = {
            "reno": bpf.compile_program(base),
            "mltcp_reno": bpf.compile_program(kernel / "bpf/mltcp_reno.bpf.c"),
        }
    network = build(Dumbbell(n=1))
    prepare(network)
    costs: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(ROUNDS):
        for name, program in programs.items():
            costs[name].append(measure(network, name, program))
    for name, values in costs.items():
        print(f"{name:12} {median(values):6.1f} ns per ACK  (of {ROUNDS}: {min(values):.1f} to {max(values):.1f})")
    ratios = [m / b for m, b in zip(costs["mltcp_reno"], costs["reno"], strict=True)]
    print(f"ratio        {median(ratios):6.2f}             (of {ROUNDS}: {min(ratios):.2f} to {max(ratios):.2f})")


def prepare(network: Network) -> None:
    settings.apply_all([settings.sysctl(name, "net.ipv4.ip_forward", "1") for name in ("s1", "s2")], network)
    settings.apply_all([settings.offloads_off(end.node.name, end.name) for end in network.ends()], network)
    root = Tbf(500_000_000, bucket_bytes(500_000_000, 1500, real_time=True), Fifo(62_500, made_above=True))
    shapes = [Queues(end.node.name, end.name, link_name(end), root) for end in network.ends(bottleneck=True)]
    settings.apply_all(shapes, network)


def measure(network: Network, name: str, program: bytes) -> float:
    """Mean time per ACK in ns. Iterations of 0.1 s, so that F is in force."""
    before = {entry["id"] for entry in programs_now()}
    loaded = bpf.register(program, f"mlt_bench_{name}"[:15], {})
    job = plan.plans(plan.resolve(spec.read(None, {"compute": "20ms", "bytes": "5MB", "jobs": 1})))[0].jobs[0]
    with Workers(network, (msgspec.structs.replace(job, offset_ns=0),), lambda _: loaded.name) as workers:
        workers.start(time.monotonic_ns())
        time.sleep(SECONDS)
        ours = [entry for entry in programs_now() if entry["id"] not in before]
    loaded.close()
    per_ack = [entry for entry in ours if any(part in entry["name"] for part in PER_ACK)]
    acks = max(entry["run_cnt"] for entry in per_ack if "in_ack" in entry["name"])
    return float(sum(entry["run_time_ns"] for entry in per_ack) / acks)


def programs_now() -> list[dict[str, Any]]:
    shown = subprocess.run(["bpftool", "-j", "prog", "show"], capture_output=True, text=True, check=True).stdout
    return [
        {"run_cnt": 0, "run_time_ns": 0, "name": ""} | entry
        for entry in json.loads(shown)
        if entry["type"] == "struct_ops"
    ]


if __name__ == "__main__":
    main()

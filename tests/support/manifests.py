"""Manifests of runs that never were, complete and of the form that a run writes."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
from mininet.topo import Topo

from testbed.congestion import catalogue
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.manifest import Crossing, Manifest
from testbed.core.runs.plan import Plan
from testbed.core.runs.verdict import Verdict
from testbed.linux import setup_steps
from testbed.models import bounds

VALID = Verdict(VERSION, "valid", ())
UML = {
    "version": "6.12.0",
    "source": "linux",
    "compiler": "gcc",
    "config_sha256": "",
    "image_sha256": "",
    "modules": "",
}
MEASURED: dict[str, Any] = {
    "build_network_s": 0.1, "capacity_bps": 4e9, "rtt_us_before": 40, "rtt_us_after": 40, "clock_drift_s": 0.0,
    "congestion_control_repairs": None, "paths": [], "paths_seeded": True, "datagrams": None,
    "tcp": {"TCPTimeouts": 2, "TCPLossProbes": 7, "TCPBacklogDrop": 0},
    "senders": [{"job": 0, "busy_s": 10.0, "receive_window_s": 0.0, "send_buffer_s": 0.0}],
    "counters": {
        "interface_dropped": 0, "interface_errors": 0, "softnet_dropped": 0, "softnet_squeezed": 0, "packets": 100_000,
        "tcp_timeouts": 0,
    },
    "sampler": {
        "samples": 1, "cpu_s": 0.0, "wall_s": 1.0, "slowest_link_read_us": 1.0, "busiest_core": [0.3], "steal": [0.0],
        "events_missed": [],
    },
}  # fmt: skip


def manifest(plan: Plan, **fields: Any) -> Manifest:
    """Of a run of ``plan`` under virtual time; with other ``fields``, those of ``measured`` one by one."""
    measured = {
        name: {**usual, **value} if isinstance(usual, dict) and isinstance(value, dict) and name != "tcp" else value
        for name, usual in MEASURED.items()
        for value in [fields.get("measured", {}).get(name, usual)]
    }
    whole: dict[str, Any] = {
        "version": VERSION, "plan": msgspec.to_builtins(plan), "settings": [], "congestion_controls": loaded(plan),
        "kernel": "Linux 6.12.0 #1 x86_64", "python": "3.11", "testbed": "0", "backend": fields.pop("backend", "uml"), "clock": "virtual",
        "uml": UML, "remote": None, "packages": {}, "git_commit": "0" * 40, "source_sha256": "0" * 64, "command": [],
        "started": "2026-01-01T00:00:00+00:00", "wall_s": 1.0, "topology_sha256": None, "congestion_control_sha256": {},
        "digest": "", **fields, "measured": measured,
    }  # fmt: skip
    return msgspec.convert(msgspec.to_builtins(whole), Manifest)


def loaded(plan: Plan) -> list[dict[str, object]]:
    """What a manifest says of the congestion controls of a run."""
    return [
        {"spec": cc.spec, "registered_as": cc.name, "kind": "module", "constants": catalogue.effective(cc)}
        for cc in plan.ccs
    ]


def crossings(plan: Plan) -> list[Crossing]:
    """Of each job's flow from its first worker to its last, of `all_to_all` of every flow; where there is one way only."""
    topo: Topo = setup_steps.topology(plan)
    found = []
    for job in plan.jobs:
        flows = [(0, len(job.hosts) - 1, "0-1")]
        if any(op.algorithm == "all_to_all" for op in job.collectives):
            flows = [(a, b, f"{a}-{b}") for a, b in itertools.permutations(range(len(job.hosts)), 2)]
        for worker, peer, name in flows:
            stages = bounds.crossed(topo, plan.bottlenecks, job.hosts[worker], job.hosts[peer])
            found.append(Crossing(job.job, worker, name, tuple(link for stage in stages for link in stage)))
    return found

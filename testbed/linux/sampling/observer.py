"""What is observed of a run while it goes on: which links its flows cross, and the sampler that follows both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mininet.topo import Topo

from congestion import catalogue
from core.runs.plan import CongestionControl, Plan
from testbed.linux import paths
from testbed.linux.changes import red_parent
from testbed.linux.loading.registry import Registered
from testbed.linux.network import Network, link_name
from testbed.linux.participants.child import Child, python
from testbed.linux.participants.timeline import flow_name
from testbed.linux.participants.workers import Workers, wait_from_ns
from testbed.linux.queues.setting import Queues
from testbed.linux.queues.tbf import Tbf
from theory import bounds

# By job, worker and flow: the bottlenecks it crosses, one direction each
Crossings = dict[tuple[int, int, str], list[str]]


def taken(network: Network, workers: Workers) -> list[dict[str, Any]]:
    """The links that each flow crosses, and those that its ACKs cross."""
    return [
        {"job": worker.job, "worker": worker.rank, "flow": flow_name(flow),
         "links": paths.taken(network, flow), "back": paths.taken(network, paths.back(flow))}
        for worker in workers.participants for flow in worker.flows
    ]  # fmt: skip


def crossings(plan: Plan, topo: Topo, workers: Workers, chosen: list[dict[str, Any]]) -> Crossings:
    """The bottlenecks that each flow crosses; where the kernel chose among equal paths (``chosen``), those at the start."""
    links = {(each["job"], each["worker"], each["flow"]): each["links"] for each in chosen}
    hosts = {job.job: job.hosts for job in plan.jobs}
    found: Crossings = {}
    for worker in workers.participants:
        for flow in worker.flows:
            key = worker.job, worker.rank, flow_name(flow)
            if key in links:
                found[key] = [name for name in links[key] if name in plan.bottlenecks]
            else:
                source, target = (hosts[worker.job][flow[end]] for end in ("source", "target"))
                stages = bounds.crossed(topo, plan.bottlenecks, source, target)
                found[key] = [name for stage in stages for name in stage]
    return found


def start(
    plan: Plan,
    network: Network,
    workers: Workers,
    crossed: Crossings,
    queues: list[Queues],
    folder: Path,
    start_ns: int,
) -> Child:
    """The sampler, told what to follow."""
    marks = {place: program.map_fds["queue"] for place, program in network.classifiers.items()}
    roots = {queue.link: queue.root for queue in queues}
    state = {job.job: _state_of(network.registered[job.cc.spec], job.cc) for job in plan.jobs}
    may_end = {job.job for job in plan.jobs if job.leave_ns is not None}
    config = {
        "folder": str(folder), "start_ns": start_ns, "interval_ns": plan.sample_ns,
        "wait_from_ns": wait_from_ns(start_ns, len(workers.participants)),
        "links": [
            {"name": link_name(end), "namespace": end.node.namespace, "index": end.index,
             "red_parent": _red_parent(roots[link_name(end)]),
             "marks_map": marks.get((end.node.name, end.name))}
            for end in network.ends(bottleneck=True)
        ],
        "flows": [
            {"job": worker.job, "worker": worker.rank, "flow": flow_name(flow), "may_end": worker.job in may_end,
             "links": crossed[worker.job, worker.rank, flow_name(flow)],
             "namespace": network[worker.host].namespace, **state[worker.job],
             **{key: flow[key] for key in ("saddr", "sport", "daddr", "dport")}}
            for worker in workers.participants for flow in worker.flows
        ],
    }  # fmt: skip
    fds = [host.namespace for host in network.hosts] + list(marks.values())
    fds += {each["state_map"] for each in state.values() if each["state_map"] is not None}
    sampler = Child("the sampler", python("testbed.linux.sampling.sampler"), pass_fds=fds)
    sampler.tell(config)
    return sampler


def stop(sampler: Child) -> dict[str, Any]:
    """Let the sampler finish its files; its account of what it cost."""
    assert sampler.process.stdin is not None
    sampler.process.stdin.close()
    while True:
        for line in sampler.lines():
            if "samples" in line:
                sampler.close()
                return dict(line)


def _red_parent(root: Any) -> int | None:
    return red_parent(root) if isinstance(root, Tbf) else None


def _state_of(registered: Registered, cc: CongestionControl) -> dict[str, Any]:
    """Where the sampler finds MLTCP's state of a flow: in a map (eBPF), or told by sock_diag (module)."""
    return {
        "state_map": None if registered.program is None else registered.program.map_fds.get(cc.traits.state or ""),
        "state_in_diag": registered.kind == "module" and cc.traits.learns,
        "parameters": catalogue.effective(cc),
    }

"""The observation of a run in progress: the links that its flows cross, and the sampler of both."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from mininet.topo import Topo

from testbed.congestion import catalogue
from testbed.core import layouts
from testbed.core.runs import rows
from testbed.core.runs.manifest import Crossing, Sampling, SendingTime, Way
from testbed.core.runs.plan import CongestionControl, Plan
from testbed.linux import paths
from testbed.linux.loading.registry import Registered
from testbed.linux.network import Network, link_name
from testbed.linux.participants.child import Child, Module
from testbed.linux.participants.participant import Participant
from testbed.linux.participants.replay import mark
from testbed.linux.participants.timeline import flow_name
from testbed.linux.participants.workers import Workers, wait_from_ns
from testbed.linux.queues.setting import Queues
from testbed.linux.queues.tbf import Tbf
from testbed.linux.setup_steps import band_parents, counters
from testbed.models import bounds
from testbed.transports import COUNTERS_BYTES, Connection


def taken(network: Network, workers: Workers) -> tuple[Way, ...]:
    """The links that each flow crosses, and those that its ACKs cross. Unknown for a flow with packet spraying."""
    sprayed = {job.job for job in workers.jobs if job.routers_spray}
    return tuple(
        Way(worker.job, worker.rank, flow_name(flow),
            tuple(paths.taken(network, flow, _protocol(worker))),
            tuple(paths.taken(network, flow.back(), _protocol(worker))))
        for worker in workers.participants if worker.job not in sprayed for flow in worker.flows
    )  # fmt: skip


def _protocol(worker: Participant) -> int:
    return socket.IPPROTO_TCP if worker.counters is None else socket.IPPROTO_UDP


def crossings(plan: Plan, topo: Topo, workers: Workers, chosen: Sequence[Way]) -> tuple[Crossing, ...]:
    """The bottlenecks that each flow crosses; where the kernel chose among equal paths (``chosen``), those at the start."""
    paths = {(way.job, way.worker, way.flow): way.links for way in chosen}
    hosts = {job.job: job.hosts for job in plan.jobs}
    found = []
    for worker in workers.participants:
        for flow in worker.flows:
            key = worker.job, worker.rank, flow_name(flow)
            if key in paths:
                links = [name for name in paths[key] if name in plan.bottlenecks]
            else:
                source, target = (hosts[worker.job][rank] for rank in (flow.source, flow.target))
                stages = bounds.crossed(topo, plan.bottlenecks, source, target)
                links = [name for stage in stages for name in stage]
            found.append(Crossing(*key, tuple(links)))
    return tuple(found)


def start(
    plan: Plan,
    network: Network,
    workers: Workers,
    crossings: Sequence[Crossing],
    queues: list[Queues],
    folder: Path,
    start_ns: int,
) -> Child:
    """The sampler, configured with the queues and flows to follow."""
    marks = {place: program.map_fds["queue"] for place, program in network.classifiers.items()}
    roots = {queue.link: queue.root for queue in queues if isinstance(queue.root, Tbf)}
    state = {job.job: _locate_state(network.registered[job.cc.spec], job.cc) for job in plan.jobs}
    crossed = {(each.job, each.worker, each.flow): each.links for each in crossings}
    may_end = {job.job for job in plan.jobs if job.leave_ns is not None or job.life is not None}
    config = {
        "columns": {"links": rows.columns(rows.LinkSample), "flows": rows.columns(rows.FlowSample), "priority_queues": rows.columns(rows.Band)},
        "folder": str(folder), "start_ns": start_ns, "interval_ns": plan.sample_ns,
        "virtual_time": workers.virtual_time,
        "wait_from_ns": wait_from_ns(start_ns, len(workers.participants)),
        "links": [
            {"name": link_name(end), "namespace": end.node.namespace, "index": end.index,
             "counters": counters(roots[link_name(end)]),
             "marks_map": marks.get((end.node.name, end.name)),
             "bands": sorted(band_parents(roots[link_name(end)]).items())}
            for end in network.ends(bottleneck=True)
        ],
        "nics": [
            {"name": link_name(end), "namespace": end.node.namespace, "index": end.index, "counters": [], "marks_map": None, "bands": []}
            for end in network.ends(bottleneck=False) if link_name(end) in plan.nics
        ],
        "flows": [
            {"job": worker.job, "worker": worker.rank, "flow": flow_name(flow), "may_end": worker.job in may_end,
             "links": crossed[worker.job, worker.rank, flow_name(flow)],
             "namespace": network[worker.host].namespace, "mark": mark(worker.job), **state[worker.job],
             **_counted(worker, flow), "saddr": flow.saddr, "sport": flow.sport, "daddr": flow.daddr, "dport": flow.dport}
            for worker in workers.participants for flow in worker.flows
        ],
    }  # fmt: skip
    fds = [host.namespace for host in network.hosts] + list(marks.values())
    fds += [worker.counters for worker in workers.participants if worker.counters is not None]
    fds += {each[key] for each in state.values() for key in ("state_map", "jobs_map") if each[key] is not None}
    sampler = Child("the sampler", Module("testbed.linux.sampling.sampler", copied=workers.virtual_time), pass_fds=fds)
    sampler.tell(config)
    return sampler


def _counted(worker: Participant, flow: Connection) -> dict[str, int]:
    """Where a transport that is not TCP counts: a file, and the place in it."""
    at = (
        COUNTERS_BYTES * (flow.channel if flow.counter is None else flow.counter)
        + (layouts.PEER.size or 0) * flow.target
    )
    return {} if worker.counters is None else {"counters": worker.counters, "at": at}


def stop(sampler: Child, events_missed: Sequence[str]) -> tuple[Sampling, tuple[SendingTime, ...]]:
    """Let the sampler finish its files; return its cost, and the times in which limits held up senders."""
    assert sampler.process.stdin is not None
    sampler.process.stdin.close()
    while True:
        for line in sampler.lines():
            if "samples" in line:
                sampler.close()
                senders = tuple(msgspec.convert(line.pop("senders"), list[SendingTime]))
                return msgspec.convert({**line, "events_missed": list(events_missed)}, Sampling), senders


def _locate_state(registered: Registered, cc: CongestionControl) -> dict[str, Any]:
    """Where the sampler finds MLTCP's state of a flow: in a map (eBPF), or in sock_diag's answer (module)."""
    maps = {} if registered.program is None else registered.program.map_fds
    parameters = catalogue.effective(cc)
    return {
        "state_map": maps.get(cc.traits.state or ""), "jobs_map": maps.get("mltcp_jobs") if parameters.get("share") else None,
        "state_in_diag": registered.kind == "module" and cc.traits.learns,
        "parameters": parameters,
    }  # fmt: skip

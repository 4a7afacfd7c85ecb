"""The one entry point inside every Linux a run may use: ``python -m testbed.inside``.

Reads a plan (one line of JSON) on stdin, builds the network, runs the jobs, and
speaks on stdout: one JSON event a line, the last of which announces the run directory
as a tar archive of so many bytes. End of file on stdin means the caller is gone: then
it ends, and everything it made with it. `testbed.substrates.guest` calls `serve` instead, under
virtual time, where nobody can hang up.

Events: ``{"event": "phase", "text"}``, ``{"event": "start", "start_ns"}`` (of the first iteration, on the monotonic clock; real
time only), ``{"event": "iteration", …}``,
``{"event": "shares", "bps": {job: {bottleneck: …}}}``, ``{"event": "error", "code", "message"}``,
``{"event": "results", "size", "sha256"}``. Under virtual time, who computes for real says so on the same console
(`workloads.computing`): ``{"event": "computing", "who", "begins"}``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from mininet.topo import Topo

import topologies
from core.errors import EXIT_FAILED, EXIT_OK, TestbedError
from core.runs.plan import CongestionControl, Link, LinkEvent, Plan
from testbed.linux import paths, tables
from testbed.linux.loading import registry
from testbed.linux.loading.registry import Registered
from testbed.linux.network import Network, build, link_name, switch
from testbed.linux.participants.child import Child, python
from testbed.linux.participants.workers import Record, Workers, wait_from_ns
from testbed.linux.queues.netem import Netem
from testbed.linux.queues.phantom import PhantomQueue
from testbed.linux.queues.qdiscs import supported
from testbed.linux.queues.shaper import Shaper, bucket_bytes
from testbed.linux.sampling import probes
from testbed.linux.settings import FrameByFrame, Mtu, OffloadsOff, Setting, Sysctl, apply_all, read_offloads
from theory import bounds
from workloads.clock import sleep_until

CONNECT_NS, START_NS = 4 * 10**9, 10 * 10**9  # of virtual time: connections, first iteration
LEAD_S = 0.3  # from "everybody is ready" to the start of the first iteration
RNDRESEEDCRNG = 0x5207
RECEIVE_BUFFER, SMALLEST_BUFFER = 16 << 20, 128 << 10
Crossings = dict[
    tuple[int, int, str], list[str]
]  # by job, worker and flow: the bottlenecks it crosses, one direction each


class CallerGoneError(Exception):
    """stdin ended: whoever asked for this run no longer waits for it."""


@dataclass(frozen=True)
class Machine:
    """What differs between the Linuxes a run may be in."""

    virtual_time: bool = False  # computing takes no time, and nobody can hang up on us
    modules: Path | None = None  # folder of our congestion controls as modules; None: they are eBPF

    def settle(self, at_ns: int) -> None:
        """Under virtual time: sleep until ``at_ns`` after boot, then draw new random numbers.

        What came before leaves no trace: how long it took depends, by microseconds, on this
        machine's files, and so does how many random numbers were drawn.
        """
        if not self.virtual_time:
            return
        late = time.monotonic_ns() - at_ns
        if late > 0:
            raise TestbedError(
                f"setting up took {late / 1e9:.3f} s of virtual time longer than it may; with as much delay or loss as this, "
                "connections take too long to come about."
            )
        sleep_until(at_ns)
        with open("/dev/urandom", "rb", buffering=0) as device:
            fcntl.ioctl(device, RNDRESEEDCRNG)


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing but events may reach the caller
    sys.exit(serve(sys.stdin.buffer.readline(), out, Machine()))


def serve(plan: bytes, out: BinaryIO, machine: Machine) -> int:
    """Run ``plan`` (JSON), speaking on ``out``; the exit code."""
    try:
        archive = _run(msgspec.json.decode(plan, type=Plan), machine, lambda **event: emit(out, event))
        deliver(archive, out)
    except CallerGoneError:
        return EXIT_FAILED
    except TestbedError as error:
        emit(out, {"event": "error", "code": error.exit_code, "message": str(error)})
        return error.exit_code
    return EXIT_OK


def deliver(results: bytes, out: BinaryIO) -> None:
    """Hand results to the caller, after everything else."""
    emit(out, {"event": "results", "size": len(results), "sha256": hashlib.sha256(results).hexdigest()})
    out.write(results)
    out.flush()


def emit(out: BinaryIO, event: dict[str, Any]) -> None:
    try:
        out.write(json.dumps(event).encode() + b"\n")
        out.flush()
    except BrokenPipeError as error:
        raise CallerGoneError from error


def _run(plan: Plan, machine: Machine, emit: Any) -> bytes:
    folder = _private_folder()
    emit(event="phase", text="network")
    before = time.monotonic()
    topo = topologies.find(plan.topology)(*plan.topology_args)
    network = build(topo)
    read_back = apply_all(_settings(plan, network), network)
    build_s = time.monotonic() - before
    capacity = None
    if plan.measure_capacity and not machine.virtual_time:
        emit(event="phase", text="capacity of the unshaped path")
        capacity = probes.capacity_bps(plan, network)
    queues = _queues(plan, network, machine)
    read_back += apply_all(queues, network)
    rtt_before = probes.round_trip_us(plan, network)
    registered = {cc.spec: registry.register(cc, machine.modules) for cc in plan.ccs}
    read_back += apply_all([*_parameters(plan, network, registered), *_defaults(plan, registered)], network)
    emit(event="phase", text="jobs")
    counters_before, tcp_before = probes.counters(network), probes.tcp_counters(network)
    with Workers(
        network, plan.jobs, lambda job: registered[job.cc.spec].name, partial(machine.settle, CONNECT_NS),
        virtual_time=machine.virtual_time,
    ) as workers:  # fmt: skip
        taken = _paths(network, workers) if plan.multipath else []
        crossings = _crossings(plan, topo, workers, taken)
        with _explained(plan):
            records, sampled, clock_s = _measure(
                plan, network, workers, crossings, registered, queues, folder, machine, emit
            )
        counted = [one.program.repairs() for one in registered.values() if one.program is not None]
        counts = [count for count in counted if count is not None]
    counters_after, tcp = probes.counters(network), _grown(tcp_before, probes.tcp_counters(network))
    rtt_after = probes.round_trip_us(plan, network)
    # What was set must still hold at the end.
    for end in network.ends():
        if any(read_offloads(end.node, end.name).values()):
            raise TestbedError(f"{end.name}: an offload was switched on during the run")
    complete = tables.complete(plan, records)
    tables.write_iterations(folder / "iterations.csv", plan, complete)
    tables.write_operations(folder / "operations.csv", complete)
    manifest = {
        "version": 1,
        "plan": msgspec.to_builtins(plan),
        "settings": read_back,
        "congestion_controls": [
            {"spec": spec, "registered_as": one.name, "kind": one.kind} for spec, one in registered.items()
        ],
        "kernel": f"{platform.system()} {platform.release()} {platform.version()} {platform.machine()}",
        "python": platform.python_version(),
        "measured": {
            "build_network_s": build_s,
            "capacity_bps": capacity,
            "rtt_us_before": rtt_before,
            "rtt_us_after": rtt_after,
            "counters": {**_grown(counters_before, counters_after), "tcp_timeouts": tcp["TCPTimeouts"]},
            "tcp": tcp,
            "senders": sampled.pop("senders"),
            "clock_drift_s": clock_s,
            "congestion_control_repairs": sum(counts) if counts else None,
            "sampler": sampled,
            "paths": taken,
            "paths_seeded": paths.seeded() if plan.multipath else None,
        },
        "crossings": [
            {"job": job, "worker": worker, "flow": flow, "links": links} for (job, worker, flow), links in crossings.items()
        ],
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return tables.archive(folder)


def _grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {key: value - before[key] for key, value in after.items()}


def _private_folder() -> Path:
    """An empty folder in memory that ends with this process's mount namespace."""
    folder = Path("/dev/shm")
    subprocess.run(["mount", "-t", "tmpfs", "mltcp", str(folder)], check=True, capture_output=True)
    results = folder / "run"
    results.mkdir()
    return results


def _settings(plan: Plan, network: Network) -> list[Setting]:
    # A sender may hold several full paths and buffers, and no more; the receiver's window begins there
    # and never limits.
    path = max(link.buffer_bytes + int(link.rate_bps / 8 * plan.base_rtt_s) for link in plan.bottlenecks.values())
    most = max(SMALLEST_BUFFER, 4 * path)
    window = max(RECEIVE_BUFFER, 4 * path)
    marks = any(link.marking for link in plan.bottlenecks.values())
    settings: list[Setting] = []
    for host in network.hosts:
        values = {
            "net.ipv4.ip_forward": "1" if host.forwards else "0",
            "net.ipv4.tcp_slow_start_after_idle": "0",
            "net.ipv4.tcp_no_metrics_save": "1",
            "net.ipv4.tcp_timestamps": "1",
            "net.ipv4.tcp_sack": "1",
            "net.ipv4.tcp_ecn": "1" if marks else "0",
            "net.ipv4.tcp_rmem": f"4096 {most} {window}",
            "net.ipv4.tcp_wmem": f"4096 {min(131072, most)} {most}",
        }
        if Path("/proc/sys/net/ipv6").exists():
            values["net.ipv6.conf.all.disable_ipv6"] = "1"
        if plan.rto_min_us is not None:
            values["net.ipv4.tcp_rto_min_us"] = str(plan.rto_min_us)
        settings += [Sysctl(host.name, key, value) for key, value in values.items()]
    if plan.multipath:
        settings += paths.settings(network, plan.seed)
    for end in network.ends():
        settings += [Mtu(end.node.name, end.name, plan.link.mtu), OffloadsOff(end.node.name, end.name)]
        if any("dcqcn" in cc.name for cc in plan.ccs):  # paced as an adapter does it
            settings.append(FrameByFrame(end.node.name, end.name))
    return settings


def _queues(plan: Plan, network: Network, machine: Machine) -> list[Setting]:
    queues: list[Setting] = []
    fastest = max(link.rate_bps for link in plan.bottlenecks.values())
    red = supported("red")
    for end in network.ends():
        if link := plan.bottlenecks.get(link_name(end)):
            bucket = bucket_bytes(link.rate_bps, link.mtu, real_time=not machine.virtual_time)
            marking = link.marking
            if marking and not red:
                queues.append(PhantomQueue(end.node.name, end.name, link.rate_bps, bucket, link.buffer_bytes, marking))
                marking = None
            queues.append(
                Shaper(
                    end.node.name,
                    end.name,
                    link.rate_bps,
                    bucket,
                    link.buffer_bytes,
                    link.acks_first,
                    marking,
                    link.bands,
                )
            )
        if wire := plan.wires.get(link_name(end)):
            seed = int(hashlib.sha256(f"netem {plan.seed} {end.name}".encode()).hexdigest()[:15], 16)
            queues.append(
                Netem(
                    end.node.name,
                    end.name,
                    wire.delay_ns,
                    wire.jitter_ns,
                    wire.loss,
                    wire.corrupt,
                    fastest,
                    seed,
                )
            )
    return queues


def _parameters(plan: Plan, network: Network, registered: Mapping[str, Registered]) -> list[Setting]:
    """Of our modules: per network namespace, so that each job has its own."""
    return [
        Sysctl(host, key, value)
        for job in plan.jobs
        if registered[job.cc.spec].kind == "module" and job.cc.source is None
        for host in job.hosts
        for key, value in registry.sysctls(job.cc).items()
    ]


def _defaults(plan: Plan, registered: Mapping[str, Registered]) -> list[Setting]:
    """Real programs open their own sockets: these use what is the namespace's default."""
    for job in plan.jobs:
        if job.program is not None and any(word in job.cc.name for word in ("dctcp", "dcqcn")):
            raise TestbedError(
                f"job {job.job} ({job.trace}) opens its own sockets, and the kernel lets no namespace have {job.cc.name} as its "
                "default: it needs marks everywhere. Use reno, cubic, mltcp_reno or mltcp_cubic for real programs."
            )
    return [
        Sysctl(host, "net.ipv4.tcp_congestion_control", registered[job.cc.spec].name)
        for job in plan.jobs
        if job.program is not None
        for host in job.hosts
    ]


def _measure(
    plan: Plan,
    network: Network,
    workers: Workers,
    crossings: Crossings,
    registered: Mapping[str, Registered],
    queues: list[Setting],
    folder: Path,
    machine: Machine,
    emit: Any,
) -> tuple[list[Record], dict[str, Any], float]:
    """Run until every job has its iterations; records, the sampler's account, clock drift."""
    start_ns = _start(machine)
    clocks = time.time() - time.monotonic()
    marks = {(queue.node, queue.device): queue.marks_fd for queue in queues if isinstance(queue, PhantomQueue)}
    state = {job.job: _state_of(registered[job.cc.spec], job.cc) for job in plan.jobs}
    leaving = {job.job: start_ns + job.leave_ns for job in plan.jobs if job.leave_ns is not None}
    config = {
        "folder": str(folder), "start_ns": start_ns, "interval_ns": plan.sample_ns,
        "wait_from_ns": wait_from_ns(start_ns, len(workers.participants)),
        "links": [
            {"name": link_name(end), "namespace": end.node.namespace, "index": end.index,
             "red_parent": _red_parent(plan.bottlenecks[link_name(end)]) if not marks else None,
             "marks_map": marks.get((end.node.name, end.name))}
            for end in network.ends(bottleneck=True)
        ],
        "flows": [
            {"job": worker.job, "worker": worker.rank, "flow": _flow_name(flow), "may_end": worker.job in leaving,
             "links": crossings[worker.job, worker.rank, _flow_name(flow)],
             "namespace": network[worker.host].namespace, **state[worker.job],
             **{key: flow[key] for key in ("saddr", "sport", "daddr", "dport")}}
            for worker in workers.participants for flow in worker.flows
        ],
    }  # fmt: skip
    fds = [host.namespace for host in network.hosts] + list(marks.values())
    fds += {one["state_map"] for one in state.values() if one["state_map"] is not None}
    sampler = Child("the sampler", python("testbed.linux.sampling.sampler"), pass_fds=fds)
    sampler.tell(config)
    workers.start(start_ns)
    if not machine.virtual_time:
        emit(event="start", start_ns=start_ns)
    machine.settle(start_ns - int(LEAD_S * 1e9))  # by then everybody waits
    events = list(plan.events)
    records: list[Record] = []
    wanted = {job.job: job.iterations for job in plan.jobs}
    missing = {(w.job, w.rank) for w in workers.participants if w.job not in leaving}
    while missing or leaving:
        if not machine.virtual_time:
            _check_caller()
        while events and time.monotonic_ns() >= start_ns + events[0].at_ns:
            _happen(events.pop(0), network, queues)
        for job in [job for job, at in leaving.items() if time.monotonic_ns() >= at]:
            del leaving[job]
            workers.leave(job)
        if select.select([sampler], [], [], 0)[0]:
            for line in sampler.lines():
                emit(event="shares", bps=line["shares_bps"])
        coming = [*leaving.values(), *(start_ns + event.at_ns for event in events[:1])]
        until = min([time.monotonic() + 0.5, *(at / 1e9 for at in coming)])
        for worker, line in workers.read(until):
            record = Record(worker.job, worker.rank, *line)
            if record.iteration + 1 >= wanted[worker.job]:
                missing.discard((worker.job, worker.rank))
            if record.iteration < wanted[worker.job]:
                records.append(record)
                emit(event="iteration", job=record.job, rank=record.rank, iteration=record.iteration,
                     duration_s=(record.end - record.start) / 1e9)  # fmt: skip
    account = _stop(sampler)
    account["events_missed"] = [f"{event.link} at {event.at_ns / 1e9:g} s" for event in events]
    return records, account, (time.time() - time.monotonic()) - clocks


def _paths(network: Network, workers: Workers) -> list[dict[str, Any]]:
    """The links that each flow crosses, and those that its ACKs cross."""
    return [
        {"job": worker.job, "worker": worker.rank, "flow": _flow_name(flow),
         "links": paths.taken(network, flow), "back": paths.taken(network, paths.back(flow))}
        for worker in workers.participants for flow in worker.flows
    ]  # fmt: skip


def _crossings(plan: Plan, topo: Topo, workers: Workers, taken: list[dict[str, Any]]) -> Crossings:
    """The bottlenecks that each flow crosses; where the kernel chose among equal paths (``taken``), those at the start."""
    chosen = {(one["job"], one["worker"], one["flow"]): one["links"] for one in taken}
    found: Crossings = {}
    for worker in workers.participants:
        hosts = plan.jobs[[job.job for job in plan.jobs].index(worker.job)].hosts
        for flow in worker.flows:
            key = worker.job, worker.rank, _flow_name(flow)
            if key in chosen:
                found[key] = [name for name in chosen[key] if name in plan.bottlenecks]
            else:
                stages = bounds.crossed(topo, plan.bottlenecks, hosts[flow["source"]], hosts[flow["target"]])
                found[key] = [name for stage in stages for name in stage]
    return found


@contextlib.contextmanager
def _explained(plan: Plan) -> Iterator[None]:
    """If a run fails in which links do, say so."""
    try:
        yield
    except TestbedError as error:
        down = [f"{event.link} goes down at {event.at_ns / 1e9:g} s" for event in plan.events if event.up is False]
        if not down:
            raise
        raise type(error)(
            f"{error}\nIn this experiment {', '.join(down)}: without another way, and if it does not come up again soon, "
            "connections break."
        ) from error


def _happen(event: LinkEvent, network: Network, queues: list[Setting]) -> None:
    """Change a link as the plan has it; what was set is read back, as ever."""
    end = next(end for end in network.ends(bottleneck=True) if link_name(end) == event.link)
    if event.up is not None:
        switch(network, end, up=event.up)
        return
    assert event.rate_bps is not None
    shaper = next(
        one for one in queues if isinstance(one, Shaper) and (one.node, one.device) == (end.node.name, end.name)
    )
    changed = replace(shaper, rate_bps=event.rate_bps)
    changed.change(network)
    found = changed.read(network)
    if found != changed.asked:
        raise TestbedError(
            f"{event.link}: asked for {changed.asked} at {event.at_ns / 1e9:g} s, the kernel holds {found}"
        )
    queues[queues.index(shaper)] = changed


def _flow_name(flow: dict[str, Any]) -> str:
    """``0-1``; of several channels the others are ``0-1#1``, ``0-1#2``, ..."""
    return f"{flow['source']}-{flow['target']}" + (f"#{flow['channel']}" if flow["channel"] else "")


def _state_of(registered: Registered, cc: CongestionControl) -> dict[str, Any]:
    """Where the sampler finds MLTCP's state of a flow: in a map (eBPF), or told by sock_diag (module)."""
    return {
        "state_map": None if registered.program is None else registered.program.map_fds.get("mltcp_flows"),
        "state_in_diag": registered.kind == "module" and cc.name.startswith("mltcp_"),
        "parameters": cc.constants,
        "dcqcn": "dcqcn" in cc.name,
    }


def _red_parent(link: Link) -> int | None:
    """The handle that RED hangs on (see `testbed.linux.queues.shaper`)."""
    if link.marking is None:
        return None
    return 0x100002 if link.acks_first else 0x10001


def _start(machine: Machine) -> int:
    """When the first iteration begins, in ns of the monotonic clock; under virtual time always the same."""
    return START_NS if machine.virtual_time else time.monotonic_ns() + int(LEAD_S * 1e9)


def _stop(sampler: Child) -> dict[str, Any]:
    """Let the sampler finish its files; its account of what it cost."""
    assert sampler.process.stdin is not None
    sampler.process.stdin.close()
    while True:
        for line in sampler.lines():
            if "samples" in line:
                sampler.close()
                return dict(line)


def _check_caller() -> None:
    if select.select([sys.stdin], [], [], 0)[0] and not os.read(0, 1):
        raise CallerGoneError


if __name__ == "__main__":
    main()

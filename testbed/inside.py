"""The one entry point inside every Linux a run may use: ``python -m testbed.inside``.

Reads a plan (one line of JSON) on stdin, builds the network, runs the jobs, and
speaks on stdout: one JSON event a line, the last of which announces the run directory
as a tar archive of so many bytes. End of file on stdin means the caller is gone: then
it ends, and everything it made with it. `testbed.guest` calls `serve` instead, under
virtual time, where nobody can hang up.

Events: ``{"event": "phase", "text"}``, ``{"event": "iteration", …}``,
``{"event": "shares", "bps": {job: …}}``, ``{"event": "error", "code", "message"}``,
``{"event": "results", "size", "sha256"}``.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import hashlib
import io
import json
import os
import platform
import select
import socket
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

import topologies
from testbed import congestion, netns, paths
from testbed.congestion import CongestionControl, Registered
from testbed.errors import EXIT_FAILED, EXIT_OK, TestbedError
from testbed.netem import Netem
from testbed.network import Network, build, link_name, switch
from testbed.phantom import PhantomQueue
from testbed.plan import JobPlan, Link, LinkEvent, Plan
from testbed.qdiscs import supported
from testbed.settings import FrameByFrame, Mtu, OffloadsOff, Setting, Sysctl, apply_all, read_offloads
from testbed.shaper import Shaper, bucket_bytes
from testbed.workers import PORT_BEFORE, Child, Record, Workers, python
from workloads.clock import sleep_until

CONNECT_NS, START_NS = 4 * 10**9, 10 * 10**9  # of virtual time: connections, first iteration
LEAD_S = 0.3  # from "everybody is ready" to the start of the first iteration
WARM_UP_S, MEASURE_S = 0.3, 0.7  # of the capacity measurement
RTT_PROBES, PORT_ECHO, PROBES_S = 30, 7, 2.0
RNDRESEEDCRNG = 0x5207
RECEIVE_BUFFER, SMALLEST_BUFFER = 16 << 20, 128 << 10


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
        capacity = _capacity(plan, network)
    queues = _queues(plan, network, machine)
    read_back += apply_all(queues, network)
    rtt_before = _round_trips(plan, network)
    registered = {cc.spec: congestion.register(cc, machine.modules) for cc in plan.ccs}
    read_back += apply_all([*_parameters(plan, network, registered), *_defaults(plan, registered)], network)
    emit(event="phase", text="jobs")
    counters_before = _counters(network)
    with Workers(
        network, plan.jobs, lambda job: registered[job.cc.spec].name, partial(machine.settle, CONNECT_NS),
        virtual_time=machine.virtual_time,
    ) as workers:  # fmt: skip
        taken = _paths(network, workers) if plan.multipath else []
        with _explained(plan):
            records, sampled, clock_s = _measure(plan, network, workers, registered, queues, folder, machine, emit)
        counted = [one.program.repairs() for one in registered.values() if one.program is not None]
        counts = [count for count in counted if count is not None]
    counters_after = _counters(network)
    rtt_after = _round_trips(plan, network)
    # What was set must still hold at the end.
    for end in network.ends():
        if any(read_offloads(end.node, end.name).values()):
            raise TestbedError(f"{end.name}: an offload was switched on during the run")
    complete = _complete(plan, records)
    _write_iterations(folder / "iterations.csv", plan, complete)
    _write_operations(folder / "operations.csv", complete)
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
            "counters": {key: counters_after[key] - counters_before[key] for key in counters_after},
            "clock_drift_s": clock_s,
            "congestion_control_repairs": sum(counts) if counts else None,
            "sampler": sampled,
            "paths": taken,
            "paths_seeded": paths.seeded() if plan.multipath else None,
        },
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return _archive(folder)


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
        for key, value in congestion.sysctls(job.cc).items()
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


def _capacity(plan: Plan, network: Network) -> float:
    """What the unshaped path carries when every flow of the run sends all it can, in bit/s."""
    greedy = tuple(_greedy(job) for job in plan.jobs)
    ends = list(network.ends(bottleneck=True))

    def sent() -> int:
        return sum(end.node.ip.get_links(end.index)[0].get("stats64")["tx_bytes"] for end in ends)

    with Workers(network, greedy, lambda job: "reno", port=PORT_BEFORE) as workers:
        workers.start(time.monotonic_ns())
        time.sleep(WARM_UP_S)
        before, at = sent(), time.monotonic()
        time.sleep(MEASURE_S)
        return (sent() - before) * 8 / (time.monotonic() - at)


def _greedy(job: JobPlan) -> JobPlan:
    """The same flows, without computing and without an end."""
    ring = {"id": "all", "kind": "all_reduce", "algorithm": "ring"}  # what a real program does
    exchange = next((op for op in job.operations if op["kind"] != "compute"), ring)
    endless = {**exchange, "bytes": 1 << 40, "after": []}
    return msgspec.structs.replace(
        job, operations=(endless,), offset_ns=0, noise="0%", program=None, grid=None, bands=()
    )


def _measure(
    plan: Plan,
    network: Network,
    workers: Workers,
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
        "links": [
            {"name": link_name(end), "namespace": end.node.namespace, "index": end.index,
             "red_parent": _red_parent(plan.bottlenecks[link_name(end)]) if not marks else None,
             "marks_map": marks.get((end.node.name, end.name))}
            for end in network.ends(bottleneck=True)
        ],
        "flows": [
            {"job": worker.job, "worker": worker.rank, "flow": _flow_name(flow), "may_end": worker.job in leaving,
             "namespace": network[worker.host].namespace, **state[worker.job],
             **{key: flow[key] for key in ("saddr", "sport", "daddr", "dport")}}
            for worker in workers.workers for flow in worker.flows
        ],
    }  # fmt: skip
    fds = [host.namespace for host in network.hosts] + list(marks.values())
    fds += {one["state_map"] for one in state.values() if one["state_map"] is not None}
    sampler = Child("the sampler", python("testbed.sampler"), pass_fds=fds)
    sampler.tell(config)
    workers.start(start_ns)
    machine.settle(start_ns - int(LEAD_S * 1e9))  # by then everybody waits
    events = list(plan.events)
    records: list[Record] = []
    wanted = {job.job: job.iterations for job in plan.jobs}
    missing = {(w.job, w.rank) for w in workers.workers if w.job not in leaving}
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
        for worker in workers.workers for flow in worker.flows
    ]  # fmt: skip


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
    """The handle that RED hangs on (see `testbed.shaper`)."""
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


def _round_trips(plan: Plan, network: Network) -> float:
    """Median round trip of a small datagram between the first job's first and last host, idle; in us."""
    first, last = network[plan.jobs[0].hosts[0]], network[plan.jobs[0].hosts[-1]]
    with netns.entered(first.namespace):
        here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with netns.entered(last.namespace):
        there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with here, there:
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
        raise TestbedError(f"no packet comes back from {last.name} to {first.name}; is everything lost on the way?")
    return sorted(times)[len(times) // 2] / 1000


def _counters(network: Network) -> dict[str, int]:
    """Losses where none are intended, and the machine's own trouble."""
    dropped = errors = packets = timeouts = 0
    for end in network.ends():
        stats = end.node.ip.get_links(end.index)[0].get("stats64")
        dropped += stats["rx_dropped"] + stats["tx_dropped"]
        errors += stats["rx_errors"] + stats["tx_errors"]
        packets += stats["rx_packets"]
    for host in network.hosts:
        with netns.entered(host.namespace):
            timeouts += _netstat("TcpExt", "TCPTimeouts")
    rows = [line.split() for line in Path("/proc/net/softnet_stat").read_text().splitlines()]
    return {
        "interface_dropped": dropped, "interface_errors": errors, "packets": packets,
        "tcp_timeouts": timeouts,
        "softnet_dropped": sum(int(row[1], 16) for row in rows),
        "softnet_squeezed": sum(int(row[2], 16) for row in rows),
    }  # fmt: skip


def _netstat(group: str, key: str) -> int:
    lines = [line.split() for line in Path("/proc/thread-self/net/netstat").read_text().splitlines()]
    names = next(line for line in lines if line[0] == f"{group}:")
    values = lines[lines.index(names) + 1]
    return int(values[names.index(key)])


def _complete(plan: Plan, records: list[Record]) -> list[Record]:
    """Iterations that every worker of the job has ended, by job, iteration and rank."""
    ended = Counter((record.job, record.iteration) for record in records)
    workers = {job.job: len(job.hosts) for job in plan.jobs}
    whole = [record for record in records if ended[record.job, record.iteration] == workers[record.job]]
    if idle := set(workers) - {record.job for record in whole}:
        raise TestbedError(f"job {min(idle)} left before it had ended a single iteration; let it stay longer (leave).")
    return sorted(whole, key=lambda record: (record.job, record.iteration, record.rank))


def _write_operations(path: Path, records: list[Record]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["job", "worker", "iteration", "operation", "start_s", "end_s"])
        for r in records:
            for name, start, end in r.operations:
                writer.writerow([r.job, r.rank, r.iteration, name, f"{start / 1e9:.9f}", f"{end / 1e9:.9f}"])


def _write_iterations(path: Path, plan: Plan, records: list[Record]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["cc", "seed", "job", "worker", "iteration", "start_s", "comm_start_s", "end_s", "bytes", "late_s"]
        )
        for r in records:
            times = (f"{ns / 1e9:.9f}" for ns in (r.start, r.comm_start, r.end))
            writer.writerow(
                [plan.cc.spec, plan.seed, r.job, r.rank, r.iteration, *times, r.bytes, f"{r.late / 1e9:.9f}"]
            )


def _archive(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, arcname=path.name)
    return buffer.getvalue()


if __name__ == "__main__":
    main()

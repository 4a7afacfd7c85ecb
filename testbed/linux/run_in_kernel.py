"""The one entry point inside every Linux a run may use: ``python -m testbed.linux.run_in_kernel``.

It reads a plan (one line of JSON) on stdin, builds the network, and runs the jobs. It writes one JSON event a line to
stdout. The last event announces the run directory as a tar archive and its size in bytes. End of file on stdin means that
the caller has ended: the process then ends with everything it made. Under virtual time, where the caller cannot
disconnect, `testbed.linux.uml_init` calls `serve` instead.

With ``--shell FD`` a second line is a `ShellRequest`, and answers to the shell arrive on the socket FD.

Events are those of `testbed.core.runs.events`. Under virtual time, workers that compute for real report it on the same
console (`testbed.replay.computing`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import select
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from testbed import transports
from testbed.core import builtin_transport, options
from testbed.core.errors import EXIT_FAILED, EXIT_OK, TestbedError
from testbed.core.runs import documents, events, rows
from testbed.core.runs.events import Event
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.manifest import Crossing, Datagrams, Measured, Period, Sampling, SendingTime, Told
from testbed.core.runs.plan import Plan
from testbed.core.runs.shell import ShellRequest
from testbed.linux import features, setup_steps
from testbed.linux.capture.session import Captures
from testbed.linux.loading import registry
from testbed.linux.network import Network, build
from testbed.linux.participants.background import Sources
from testbed.linux.participants.timeline import LEAD_S, Emit, Machine, Timeline, explained
from testbed.linux.participants.workers import Record, Workers
from testbed.linux.queues.setting import Queues
from testbed.linux.sampling import observer, probes, tables
from testbed.linux.settings import apply_all

if TYPE_CHECKING:
    from testbed.linux.shell.session import Session


class CallerGoneError(Exception):
    """Raised when stdin has ended: the caller no longer waits for this run."""


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing but events may reach the caller
    plan, session = sys.stdin.buffer.readline(), None
    if sys.argv[1:2] == ["--shell"]:
        from testbed.linux.shell import session as shell  # noqa: PLC0415 (few runs have one)
        from testbed.linux.shell.link import Socket  # noqa: PLC0415

        request = msgspec.json.decode(sys.stdin.buffer.readline(), type=ShellRequest)
        session = shell.Session(request, Socket(int(sys.argv[2])), partial(emit, out))
    sys.exit(serve(plan, out, Machine(), session))


def serve(plan: bytes, out: BinaryIO, machine: Machine, session: Session | None = None) -> int:
    """Run ``plan`` (JSON), speaking on ``out``, perhaps with a shell; the exit code."""
    try:
        archive = _run(msgspec.json.decode(plan, type=Plan), machine, partial(emit, out), session)
        deliver(archive, out)
    except CallerGoneError:
        return EXIT_FAILED
    except TestbedError as error:
        emit(out, events.Error(error.exit_code, str(error)))
        return error.exit_code
    return EXIT_OK


def deliver(results: bytes, out: BinaryIO) -> None:
    """Hand results to the caller, after everything else."""
    emit(out, events.Results(len(results), hashlib.sha256(results).hexdigest()))
    out.write(results)
    out.flush()


def emit(out: BinaryIO, event: Event) -> None:
    """Write one event as a line."""
    try:
        out.write(msgspec.json.encode(event) + b"\n")
        out.flush()
    except BrokenPipeError as error:
        raise CallerGoneError from error


def _run(plan: Plan, machine: Machine, emit: Emit, session: Session | None = None) -> bytes:
    emit(events.Phase("network"))  # before the topology, which may be custom code
    folder = tables.private_folder()
    can = features.running() if machine.virtual_time else features.probe()
    steps = setup_steps.changes(plan, can)
    before = time.monotonic()
    network = build(setup_steps.topology(plan), machine.modules, *((session.made, session.host) if session else ()))
    read_back = apply_all(setup_steps.settings(steps, "network"), network)
    build_s = time.monotonic() - before
    capacity = None
    if any(step.stage == "capacity" for step in steps):
        emit(events.Phase("capacity of the unshaped path"))
        capacity = probes.capacity_bps(plan, network)
    if machine.virtual_time:
        features.confirm(can)
    queues = setup_steps.settings(steps, "queues")
    read_back += apply_all(queues, network)
    rtt_before = probes.round_trip_us(plan, network)
    read_back += apply_all(setup_steps.settings(steps, "congestion controls"), network)
    loaded = registry.in_force(network.registered, plan, lambda host: network[host].namespace)
    if session:
        machine = session.open(network, machine)
    emit(events.Phase("jobs"))
    counters = probes.Counting(network, reordered=any(job.routers_spray for job in plan.jobs))
    captures = Captures(plan, network, machine.captures or folder, machine)
    with Workers(
        network, plan.jobs, lambda job: network.name(job.cc.spec), partial(machine.settle, machine.connect_ns()),
        virtual_time=machine.virtual_time, plan=plan,
    ) as workers, Sources(plan, network, virtual_time=machine.virtual_time) as background:  # fmt: skip
        ways = observer.taken(network, workers) if plan.multipath else ()
        crossings = observer.crossings(plan, network.topo, workers, ways)
        trees = [queue for queue in queues if isinstance(queue, Queues)]
        with explained(plan):
            records, sampling, senders, drift_s, lives, period = _measure(
                plan, network, workers, background, crossings, trees, folder, captures, machine, emit, session
            )
        repairs = probes.repairs(network)
    counted, tcp = counters.since()
    rtt_after = probes.round_trip_us(plan, network)
    probes.check_offloads(network)
    complete = tables.complete(plan, records)
    tables.write_iterations(folder / "iterations.csv", plan, complete)
    tables.write_operations(folder / "operations.csv", complete)
    if plan.lives:
        tables.write_jobs(folder / "jobs.csv", lives)
    if plan.transports:
        tables.write_messages(folder / "messages.csv", complete)
    if any(job.trains is not None for job in plan.jobs):
        tables.write_training(folder / "training.csv", complete)
    sent = tuple(Datagrams(job, rank, **told) for (job, rank), told in sorted(_datagrams(records).items()))
    measured = Measured(
        build_s, capacity, rtt_before, rtt_after, counted, drift_s, repairs, sampling, ways,
        paths_seeded=can.hash_seed if plan.multipath else None, tcp=tcp, senders=senders, period=period,
        datagrams=sent or None,
    )  # fmt: skip
    kernel = f"{platform.system()} {platform.release()} {platform.version()} {platform.machine()}"
    told = Told(
        VERSION, plan, tuple(read_back), loaded, kernel, platform.python_version(), measured, crossings, _transports(plan),
        session.typed() if session else (),
    )  # fmt: skip
    (folder / "manifest.json").write_bytes(documents.encode(told))
    captures.write()
    return tables.archive(folder)


def _transports(plan: Plan) -> dict[str, dict[str, str]] | None:
    """Option values of each transport that its jobs name, defaults included."""
    names = dict.fromkeys(job.transport for job in plan.jobs if not builtin_transport.plain(job.transport))
    return {name: options.effective(transports.parse(name).options) for name in names} or None


def _measure(
    plan: Plan, network: Network, workers: Workers, background: Sources, crossings: Sequence[Crossing], queues: list[Queues],
    folder: Path,    captures: Captures, machine: Machine, emit: Emit, session: Session | None,
) -> tuple[list[Record], Sampling, tuple[SendingTime, ...], float, tuple[rows.Job, ...], Period | None]:  # fmt: skip
    """Run until every job has its iterations; records, the sampler's account, clock drift, when jobs held GPUs, and if it was found to
    repeat itself, how."""
    start_ns = machine.start_ns()
    clocks = time.time() - time.monotonic()
    sampler = observer.start(plan, network, workers, crossings, queues, folder, start_ns)
    timeline = Timeline(plan, start_ns, network, queues, machine, background)
    workers.start(start_ns)
    background.start(start_ns, len(workers.participants))
    timeline.begin(workers)
    if session:
        session.started(start_ns)
    if not machine.virtual_time:
        emit(events.Start(start_ns))
    machine.settle(start_ns - int(LEAD_S * 1e9))  # by then all workers wait

    def look() -> None:
        captures.check()
        if not machine.virtual_time:
            _check_caller()

    records = timeline.run(workers, sampler, emit, look, captures.hear)
    captures.stop(start_ns)
    told = observer.stop(sampler, timeline.missed())
    if plan.background:
        tables.write_background(folder / "background.csv", background.finished())
    drift_s = (time.time() - time.monotonic()) - clocks
    return records, *told, drift_s, tuple(timeline.lives.rows()), timeline.period


def _datagrams(records: Sequence[Record]) -> dict[tuple[int, int], dict[str, int]]:
    """By job and rank: as they stood when its last iteration ended."""
    return {(record.job, record.rank): record.datagrams for record in records if record.datagrams is not None}


def _check_caller() -> None:
    if select.select([sys.stdin], [], [], 0)[0] and not os.read(0, 1):
        raise CallerGoneError


if __name__ == "__main__":
    main()

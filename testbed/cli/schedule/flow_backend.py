"""``schedule --on flow``: the schedules' jobs as flows on a network, every iteration of them (`testbed.models.cluster_flow_simulator`)."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from testbed import networks
from testbed.cli.schedule import output
from testbed.congestion import catalogue
from testbed.core import terminal
from testbed.core.errors import RequestError, within
from testbed.core.heartbeat import print_error
from testbed.core.placing import Gpu, Metrics, Request
from testbed.core.runs.plan import CongestionControl
from testbed.core.terminal import Column, Sheet
from testbed.core.text import plain, quoted
from testbed.core.units import Duration
from testbed.models import cluster_flow_simulator, flow_weights, validated_range
from testbed.models.cluster import Ran, Servers, follow
from testbed.models.contention import Model
from testbed.models.measures import IterationTime, measure
from testbed.networks.flow_network import FlowNetwork
from testbed.networks.routed import RoutedTopo, at_most
from testbed.schedulers import job as job_schedulers
from testbed.schedulers import online
from testbed.schedulers.job import Cluster
from testbed.traces.job_lists import JobList

MOST_HOSTS = 100_000


@dataclass(frozen=True)
class Result:
    """A scheduler and a system."""

    scheduler: str
    control: CongestionControl
    flowed: cluster_flow_simulator.Flowed
    ran: tuple[Ran, ...]  # those of its jobs that had arrived
    metrics: Metrics
    trials: int
    plan_s: float  # wall-clock time that planning took
    wall_s: float  # wall time of the flow simulation

    @property
    def system(self) -> str:
        return self.control.spec

    @property
    def outside_validation(self) -> list[str]:
        """Return the properties that lie outside the simulator's validated range (docs/explanation/flow-simulator.md)."""
        ran = [job for job in self.flowed.jobs if job.servers]
        wide = sum(job.servers > validated_range.MOST_WORKERS for job in ran)
        reasons = [validated_range.uncompared(self.control)]
        if wide:
            reasons.append(f"{validated_range.WIDE}, and {wide} of {len(ran)} jobs are on more servers")
        if len(ran) > 1:
            reasons.append("shares are not varied by chance, as they were there")
        return [reason for reason in reasons if reason]


def carry_out(
    requests: Sequence[Request], sizes: Sequence[int], model: Model, schedulers: Sequence[str], systems: Sequence[str], topo: str,
    until: str | None, seed: int, done: Callable[[], None] = lambda: None,
) -> list[Result]:  # fmt: skip
    """``done`` is called after each result. Each scheduler's GPUs with each system; raises `RequestError`."""
    network = _network(topo, sizes, model.rate_bps)
    with within("--until"):
        until_s = math.inf if until is None else Duration.parse(until) / 1e9
    controls = [catalogue.parse(system, "recommended") for system in systems]
    for control in controls:
        if control.source is not None or flow_weights.base(control) not in flow_weights.BASES:
            raise RequestError(
                f"--system {quoted(control.spec)}: the shares of its flows were not measured. Use one of {', '.join(flow_weights.BASES)}, or MLTCP on it."
            )
    gpus = tuple(Gpu(f"h{host}", slot) for host, size in enumerate(sizes, 1) for slot in range(size))
    servers, found = Servers(gpus), []
    for scheduler in schedulers:
        with within(scheduler):
            module, chosen = job_schedulers.parse(scheduler)
            begun = time.perf_counter()
            assigned = online.schedule(
                module, requests, Cluster({"s1": gpus}, lambda _job: ["s1"]), model, chosen, seed=seed
            )
            plan_s = time.perf_counter() - begun
            for control in controls:
                begun = time.perf_counter()
                given, policy = follow(assigned, requests, servers)
                if any(one.stints for one in assigned.jobs):
                    raise RequestError(
                        "it stops jobs before their end, which --on flow does not model. Name another scheduler."
                    )
                flowed = cluster_flow_simulator.simulate(
                    given, servers, policy, network, flow_weights.force(control), until_s=until_s, mltcp_active_from=flow_weights.mltcp_active_from(control),
                    intra_bps=model.intra_bps, seed=seed, say=print_error,
                )  # fmt: skip
                wall_s = time.perf_counter() - begun
                # A job with a start `At` a time arrives then in the flow simulation. Its completion time counts from its request.
                ran = flowed.ran(requests)
                numbers = measure(ran, servers, _alone(flowed, model), cut_s=None if flowed.whole else flowed.lasted_s)
                found.append(Result(scheduler, control, flowed, ran, numbers, assigned.trials, plan_s, wall_s))
                done()
    return found


def _alone(flowed: cluster_flow_simulator.Flowed, model: Model) -> IterationTime:
    """Return the isolated iteration time by number of servers, in seconds.

    On the servers that a job got, the simulator gives the time. Otherwise it follows from equation 8 of SJF-BCO without
    C and ξ2, which flows do not have.
    """
    came, plain = {job.request.job: job for job in flowed.jobs}, Model(model.rate_bps, model.intra_bps)

    def iteration_s(request: Request, servers: int) -> float:
        job = came[request.job]
        return job.isolated_s if servers == job.servers else plain.iteration_s(request, servers)

    return iteration_s


def show(results: Sequence[Result], sizes: Sequence[int], topo: str, jobs: JobList, *, as_json: bool) -> None:
    """Print them: a table for people, a document for programs."""
    if as_json:
        rows = [_row(result) for result in results]
        print(json.dumps({"cluster": {"servers": list(sizes)}, "model": {"law": "flow", "topo": topo, "batch_s": cluster_flow_simulator.BATCH_S,
              "steps": flow_weights.STEPS}, **output.origin(jobs), "results": rows}, allow_nan=False))  # fmt: skip
        return
    headings = (
        "jobs\nended",
        "iter-\nations",
        "mean\n(s)",
        "p99\n(s)",
        "÷\nisolated",
        "p99 ÷\nisolated",
        "GPUs\nheld",
        "took\n(s)",
    )
    lines = []
    for result in results:
        row = _row(result)
        numbers = [row[name] for name in ("mean_s", "p99_s", "mean_iteration_slowdown", "p99_iteration_slowdown")]
        lines.append([
            plain(result.scheduler), plain(result.system), f"{row['ended']}", f"{row['iterations']}", *(f"{value:.3f}" for value in numbers),
            f"{row['utilisation']:.0%}", f"{result.wall_s:.1f}",
        ])  # fmt: skip
    console = terminal.console()
    columns = [Column("scheduler"), Column("system"), *(Column(heading, right=True) for heading in headings)]
    Sheet(columns, lines, names=2).print(console)
    for result in results:
        if result.outside_validation:
            terminal.say(
                console, f"Suspect: {result.scheduler}, {result.system}: {'; '.join(result.outside_validation)}."
            )
    output.print_origin(console, jobs)


def _row(result: Result) -> dict[str, Any]:
    flowed = result.flowed
    some = len(flowed.times_s) > 0
    contention = {job.request.job: job.mean_contention for job in result.ran}
    return {
        "scheduler": result.scheduler, "system": result.system, "verdict": "suspect" if result.outside_validation else "valid",
        "outside_validation": result.outside_validation, **{name: _known(value) for name, value in asdict(result.metrics).items()},
        "ended": sum(job.end_s is not None for job in flowed.jobs), "lasted_s": flowed.lasted_s,
        "iterations": len(flowed.times_s),
        "mean_s": float(flowed.times_s.mean()) if some else 0.0,
        "p99_s": float(np.percentile(flowed.times_s, 99)) if some else 0.0,
        "mean_iteration_slowdown": float(flowed.slowdowns.mean()) if some else 0.0,
        "p99_iteration_slowdown": float(np.percentile(flowed.slowdowns, 99)) if some else 0.0,
        "trials": result.trials, "plan_s": result.plan_s, "events": flowed.events, "wall_s": result.wall_s,
        "jobs": [
            {"job": job.request.job, "start_s": job.start_s, "end_s": job.end_s, "iterations": job.iterations, "mean_s": job.mean_s,
             "isolated_s": job.isolated_s, "mean_contention": contention.get(job.request.job, 0.0),
             "gpus": [f"{gpu.host}:{gpu.slot}" for gpu in job.gpus]}
            for job in flowed.jobs
        ],
    }  # fmt: skip


def _known(value: object) -> object:
    """A number that there is none of is null."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _network(text: str, sizes: Sequence[int], rate_bps: float) -> FlowNetwork:
    """Build the topology ``text`` with links of ``rate_bps``; without arguments, sized for servers of ``sizes`` GPUs."""
    name, *words = text.split(",")
    found = networks.find(name)
    if not (isinstance(found, type) and issubclass(found, RoutedTopo)):
        raise RequestError(f"--topo: {quoted(text)} is no RoutedTopo, and has no routes. Derive it from that class.")
    try:
        with at_most(MOST_HOSTS, 10 * MOST_HOSTS):
            topo = found(*map(int, words)) if words else found.for_servers(sizes)
    except Exception as error:  # a topology is code of the user, too
        raise RequestError(f"--topo: {networks.failure(text, error, f' for {len(sizes)} servers')}") from error
    network = FlowNetwork(topo, rate_bps)
    if len(network.servers) < len(sizes):
        raise RequestError(
            f"--topo: {quoted(text)} has {len(network.servers)} servers, and {len(sizes)} are needed. Give it larger arguments, or lower --servers."
        )
    return network

"""The results of a computed run: the tables that any other run has, and its manifest."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterator

from testbed.backends.flow.model import Built, Connection
from testbed.core.errors import TestbedError
from testbed.core.runs import documents, rows, rundir
from testbed.core.runs.format_version import VERSION
from testbed.core.runs.manifest import Counters, Crossing, Measured, Sampling, Told, Way
from testbed.core.runs.plan import JobPlan, Operation, Plan
from testbed.models import flow_weights
from testbed.models.flow_simulator import Ended, Sent
from testbed.models.frames import frame

DECIMALS = 9
KERNEL = "none: flows that share links"
ALL_LINKS = 1000  # in a larger network, only links with flows are sampled


class Recorded:
    """Events recorded so far."""

    def __init__(self, plan: Plan, built: Built) -> None:
        self.plan, self.built = plan, built
        self.ended: list[Ended] = []
        self.operations: dict[tuple[int, int, str | int], tuple[float, float]] = {}
        self.acked: dict[Connection, float] = dict.fromkeys(built.paths, 0.0)
        self.links: list[rows.LinkSample] = []
        self.flows: list[rows.FlowSample] = []
        bottlenecks = list(enumerate(built.links[: len(plan.bottlenecks)]))
        crossed = {f"{a}-{b}" for path in built.paths.values() for a, b in path}
        self.sampled = [
            (number, link) for number, link in bottlenecks if len(bottlenecks) <= ALL_LINKS or link in crossed
        ]

    def add(self, ended: list[Ended], sent: list[Sent]) -> None:
        """Iterations and flows that are over."""
        self.ended += ended
        for flow in sent:
            job, operation, carries = self.built.nodes[flow.node]
            for each in carries:
                self.acked[each.connection] += each.payload
            assert operation is not None
            key = job, flow.iteration, _key(operation)
            start, end = self.operations.get(key, (flow.start_s, flow.end_s))
            self.operations[key] = min(start, flow.start_s), max(end, flow.end_s)

    def sample(self) -> None:
        """Counters of links and flows, as they are now."""
        loop = self.built.loop
        t_s, size = loop.now_s, frame(self.plan.link.mtu)
        carried = loop.carried_bits
        for number, name in self.sampled:
            octets = round(float(carried[number]) / 8)
            self.links.append(rows.LinkSample(t_s, name, octets, octets // size, 0, 0, 0))
        acked, known = dict(self.acked), dict[Connection, float]()
        left = loop.left_bits
        for number in map(int, loop.net.active.nonzero()[0]):
            part = 1 - float(left[number] / loop.state.amount[number])
            ratio = float(
                loop.state.begins_at[number] + part * (loop.state.ends_at[number] - loop.state.begins_at[number])
            )
            for each in self.built.nodes[number][2]:
                acked[each.connection] += part * each.payload
                known[each.connection] = ratio
        for connection, payload in acked.items():
            self.flows.append(self._flow(t_s, connection, payload, known.get(connection)))

    def _flow(self, t_s: float, connection: Connection, payload: float, ratio: float | None) -> rows.FlowSample:
        place = self.built.places[connection[0]]
        iteration = int(self.built.loop.state.iteration[place])
        control = self.plan.jobs[place].cc
        learned = control.traits.learns and iteration >= int(self.built.loop.state.mltcp_active_from[place])
        ratio = (ratio or 0.0) if learned else None
        f = None if ratio is None else float(flow_weights.factor(control)(ratio))
        return rows.FlowSample(
            t_s, connection[0], connection[1], name(connection), None, None, round(payload), 0,
            ratio, iteration if control.traits.learns else None, f,
        )  # fmt: skip

    def archive(self, cpu_s: float) -> bytes:
        """The files, as a tar archive; raises `TestbedError` if a job left before it had ended an iteration."""
        counted = [one for one in self.ended if one.iteration < self.plan.jobs[one.job].iterations]
        if idle := {*range(len(self.plan.jobs))} - {one.job for one in counted}:
            number = self.plan.jobs[min(idle)].job
            raise TestbedError(f"job {number} left before its first iteration ended. Give it a later `leave`.")
        counted.sort(key=lambda one: (one.job, one.iteration))
        tables = {
            "iterations.csv": rows.text(rows.Iteration, self._iterations(counted), DECIMALS),
            "operations.csv": rows.text(rows.Operation, self._operations(counted), DECIMALS),
            "links.csv": rows.text(rows.LinkSample, self.links, DECIMALS),
            "flows.csv": rows.text(rows.FlowSample, self.flows, DECIMALS),
        }
        files = {name: text.encode() for name, text in tables.items()}
        files["manifest.json"] = documents.encode(self._make_report(cpu_s))
        return rundir.pack(files)

    def _iterations(self, counted: list[Ended]) -> Iterator[rows.Iteration]:
        for ended in counted:
            job = self.plan.jobs[ended.job]
            for rank, sent in enumerate(job.bytes_per_worker):
                yield rows.Iteration(
                    system=self.plan.system.label, seed=self.plan.seed, job=job.job, worker=rank, iteration=ended.iteration,
                    start_s=ended.start_s, comm_start_s=ended.comm_start_s, end_s=ended.end_s, bytes=sent, max_start_delay_s=0.0,
                )  # fmt: skip

    def _operations(self, counted: list[Ended]) -> Iterator[rows.Operation]:
        of_ranks = [_by_rank(job) for job in self.plan.jobs]
        for ended in counted:
            number = self.plan.jobs[ended.job].job
            for rank, own in enumerate(of_ranks[ended.job]):
                for name, key in own:
                    if (times := self.operations.get((number, ended.iteration, key))) is not None:
                        yield rows.Operation(number, rank, ended.iteration, name, *times)

    def _make_report(self, cpu_s: float) -> Told:
        plan = self.plan
        crossed, ways = list[Crossing](), list[Way]()
        back = defaultdict(tuple, {key: tuple(f"{a}-{b}" for a, b in hops) for key, hops in self.built.paths.items()})
        for connection, hops in self.built.paths.items():
            key, links = (connection[0], connection[1], name(connection)), tuple(f"{a}-{b}" for a, b in hops)
            crossed.append(Crossing(*key, tuple(link for link in links if link in plan.bottlenecks)))
            job, source, target, channel = connection
            ways.append(Way(*key, links, back[job, target, source, channel]))
        samples = len(self.links) // max(1, len(plan.bottlenecks))
        sampling = Sampling(samples, cpu_s, self.built.loop.now_s, 0.0, (), (), ())
        # The simulator has no losses and no round trips, and its only clock is the simulated one.
        measured = Measured(
            0.0, None, 0.0, 0.0, Counters(0, 0, 0, 0, 0, 0), 0.0, None, sampling, tuple(ways) if plan.multipath else (),
            paths_seeded=True if plan.multipath else None,
        )  # fmt: skip
        return Told(VERSION, plan, (), (), KERNEL, platform.python_version(), measured, tuple(crossed))


def _by_rank(job: JobPlan) -> list[list[tuple[str, str | int]]]:
    """Name and key of each collective that a rank executes."""
    everyone = range(len(job.hosts))
    found: list[list[tuple[str, str | int]]] = [[] for _ in everyone]
    for operation in job.collectives:
        ranks = everyone if operation.members is None else sorted(set(operation.ranks or ()))
        for rank in ranks:
            found[rank].append((operation.id, _key(operation)))
    return found


def _key(operation: Operation) -> str | int:
    """The key of an operation. An exchange of a group has one number, but different names on its ranks."""
    return operation.id if operation.members is None else operation.exchange


def name(connection: Connection) -> str:
    """A flow as ``flows.csv`` names it."""
    _, source, target, channel = connection
    return f"{source}-{target}" + (f"#{channel}" if channel else "")

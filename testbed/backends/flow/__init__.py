"""``--on flow``: compute a plan without a kernel; its jobs are flows that share links by weights
(`testbed.models.flow_simulator`).

The output has the files of a run. The simulator has no windows, losses, or round trips, and refuses plans that depend
on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from testbed.backends.flow import model, tables
from testbed.backends.progress import Patience
from testbed.congestion import catalogue
from testbed.core.errors import RequestError, TestbedError
from testbed.core.runs.events import Event, Iteration, Phase
from testbed.core.runs.plan import Clock, Plan
from testbed.models import flow_weights
from testbed.spec.limits import MODEL, Limits

LONGEST_REST = 1000  # iterations that are computed at least before a run can end between two samples
LEAST_STEP_S = 1e-6
LOOK_S = 1.0  # seconds of simulated time between two readings of the wall clock


@dataclass(frozen=True)
class Lack:
    """A feature of a plan that the flow simulator lacks, and the alternative."""

    what: str
    instead: str = "use --on uml"


def lacks(plan: Plan) -> Lack | None:
    """The reason why ``plan`` cannot be simulated as flows; None if it can."""
    if plan.background:
        return Lack(
            f"background traffic ({plan.background[0].label}) consists of packets, but the flow simulator has no packets"
        )
    for job in plan.jobs:
        who = f"job {job.job} ({job.trace})"
        if job.program is not None:
            return Lack(
                f"{who} is a real program",
                "use --on host, or record it (`mltcp record`) and replay its trace",
            )
        if job.trains is not None:
            return Lack(f"{who} trains on received gradients, but the flow simulator sends no data")
        if not job.by_tcp:
            return Lack(
                f"{who} uses {job.transport}, which handles losses and timeouts, but the flow simulator has neither"
            )
        if job.window is not None or job.overlaps:
            return Lack(f"{who} overlaps exchanges or iterations, but the flow simulator replays one after the other")
        if job.life is not None:
            return Lack(
                f"{who} requests GPUs, for which other jobs wait",
                "use --on uml; `mltcp schedule JOBS --on flow` computes a cluster's jobs as flows",
            )
        if job.falls:
            return Lack(f"{who} loses priority as it sends, and the shares of such flows were not measured")
        if job.exclusive:
            return Lack(f"{who} reserves its links while it communicates, but in the flow simulator flows share links")
        if job.cc.source is not None or flow_weights.base(job.cc) not in flow_weights.BASES:
            return Lack(
                f"the shares of flows of {job.cc.spec} were not measured (only of {', '.join(flow_weights.BASES)})"
            )
        if job.cc.constants and catalogue.of_the_kernel(job.cc):
            return Lack(f"the shares of flows of {job.cc.spec} were measured only with the kernel's own parameters")
        if job.ideal_s == 0:
            return Lack(f"{who} neither computes nor crosses a link, so its iterations take no time")
    if queue := next((link.queue for link in plan.bottlenecks.values() if link.queue), None):
        return Lack(f"{queue.typed} (--queue) acts on packets, but the flow simulator has no packets")
    if traced := next((link.trace for link in plan.bottlenecks.values() if link.trace), None):
        return Lack(f"links follow {traced.name} (rate_trace), but rates in the flow simulator are constant")
    if any(link.control for link in plan.bottlenecks.values()):
        return Lack("priority queues (--priority-queues) sort packets, but the flow simulator has no packets")
    if plan.wires:
        name, wire = next(iter(plan.wires.items()))
        what = "delays" if wire.delay_ns else "loses or damages packets"
        return Lack(f"{name} {what}, but the flow simulator models neither round trips nor losses")
    if down := next((event for event in plan.events if event.up is not None), None):
        return Lack(
            f"{down.link} fails or comes back at {down.at_ns / 1e9:g} s, but the flow simulator does not model TCP's reaction"
        )
    return None


@dataclass(frozen=True)
class FlowLevel:
    """The backend ``flow``: the flow-level simulator."""

    name: str = "flow"
    clock: Clock = "model"
    limits: Limits = MODEL

    def check(self, plan: Plan) -> None:
        """Raise `RequestError` if ``plan`` has features that the simulator cannot model."""
        if lacking := lacks(plan):
            raise RequestError(f"on: {lacking.what}: {lacking.instead}.")

    def identity(self) -> None:
        """Return None, because there is no kernel."""

    def run(self, plan: Plan, on_event: Callable[[Event], None], patience: Patience) -> bytes:
        """Compute ``plan`` and return its archive. Raises `TestbedError` if time runs out or no job can continue."""
        self.check(plan)
        on_event(Phase("computing flows"))
        begun, cpu = time.monotonic(), time.process_time()
        built = model.build(plan, lambda words: on_event(Phase(words, long=True)))
        recorded = tables.Recorded(plan, built)
        missing = {job.job: job.iterations for job in plan.jobs if job.leave_ns is None}
        leaving = {job.job for job in plan.jobs if job.leave_ns is not None}
        todo = model.timeline(plan)
        step_s = max(LEAST_STEP_S, LONGEST_REST * max(job.ideal_s or 0.0 for job in plan.jobs))
        for at_s, what in todo:
            # Millions of tiny iterations fit between two samples, so the run ends soon after the last measured one.
            while built.loop.now_s < at_s and (missing or leaving or at_s - built.loop.now_s <= step_s):
                built.loop.advance(min(at_s, built.loop.now_s + step_s))
                ended, sent = built.loop.taken()
                recorded.add(ended, sent)
                for iteration in ended:
                    job = plan.jobs[iteration.job]
                    if iteration.iteration < job.iterations:
                        on_event(Iteration(job.job, 0, iteration.iteration, iteration.start_s, iteration.end_s))
                    if iteration.iteration + 1 >= job.iterations:
                        missing.pop(job.job, None)
            if what is None:
                recorded.sample()
                if not missing and not leaving:
                    break
                if patience.wall_s is not None and time.monotonic() - begun > patience.wall_s:
                    raise TestbedError(
                        f"the wall limit of {patience.wall_s:g} s (--wall-limit) ended the run. Raise it, or leave it out."
                    )
                if built.loop.following_s == float("inf") and not leaving:
                    raise TestbedError(
                        "Run stopped: no job can continue. Check that every link has a rate above 0 bit/s, also after each [[event]]."
                    )
            else:
                what(built)
                leaving -= {
                    number for number in leaving if plan.jobs[built.places[number]].leave_ns == round(at_s * 1e9)
                }
        return recorded.archive(time.process_time() - cpu)

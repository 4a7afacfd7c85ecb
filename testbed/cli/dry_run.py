"""``--dry-run``: what a plan comes to, in words."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from core.runs.plan import Plan


def describe(plan: Plan) -> Iterator[str]:
    """What the run will do, in order, for ``--dry-run``."""
    who = f"job {plan.alone} alone" if plan.alone is not None else f"{len(plan.jobs)} jobs"
    yield f"run {plan.cc.spec}, seed {plan.seed}: {who} → {plan.folder}"
    yield f"  network {plan.topology}{plan.topology_args}, in a namespace of its own; MTU {plan.link.mtu}, TSO/GSO/GRO off"
    if plan.multipath:
        yield "  routers choose among equal paths by a hash of addresses and ports, seeded (Linux 6.11) router by router"
    if plan.measure_capacity:
        yield "  measure the capacity of the unshaped path (in real time only)"
    for name, link in plan.bottlenecks.items():
        yield (
            f"  shape {name}: {link.rate_bps} bit/s, buffer {link.buffer_bytes} B"
            + (", pure ACKs first" if link.acks_first else "")
            + (f", {link.bands} bands of priority" if link.bands > 1 else "")
            + (
                f", mark from {link.marking.min_bytes} B, from {link.marking.max_bytes} B with {link.marking.probability:.4%}"
                if link.marking
                else ""
            )
        )
    for name, wire in plan.wires.items():
        yield f"  {name}: delay {wire.delay_ns / 1e6:g} ms ± {wire.jitter_ns / 1e6:g} ms, loss {wire.loss:.4%}, corrupt {wire.corrupt:.4%}"
    least = "" if plan.rto_min_us is None else f"; least retransmission timeout {plan.rto_min_us} us"
    yield f"  sysctls of every host, for deep windows and nothing remembered between connections; each read back{least}"
    yield f"  register {', '.join(cc.spec for cc in plan.ccs)}; measure the idle round trip"
    for job in plan.jobs:
        collectives = {op["algorithm"]: None for op in job.operations if op["kind"] != "compute"}
        yield (
            f"  job {job.job}: {job.trace} over {job.cc.spec} on {' '.join(job.hosts)}, starts at {job.offset_ns / 1e6:.3f} ms, "
            + (
                f"ideal iteration {job.ideal_s:.4f} s"
                if job.ideal_s is not None
                else "runs " + shlex.join(job.program or ())
            )
            + (f", {'/'.join(collectives)}" if collectives else "")
            + (f", {job.channels} connections a flow" if job.channels > 1 else "")
            + (f", noise {job.noise}" if job.noise != "0%" else "")
            + (f", leaves at {job.leave_ns / 1e9:g} s" if job.leave_ns is not None else "")
            + (
                f", iterations begin every {job.grid.period_ns / 1e9:.4f} s from {job.grid.phase_ns / 1e6:.3f} ms"
                if job.grid
                else ""
            )
        )
    for event in plan.events:
        what = f"{event.rate_bps} bit/s" if event.rate_bps is not None else "up" if event.up else "down"
        yield f"  at {event.at_ns / 1e9:g} s {event.link} becomes {what}"
    for key, value in (plan.schedule or {}).items():
        yield f"  {plan.cc.name}: {key.replace('_', ' ')} {value}"
    counts = " or ".join(map(str, sorted({job.iterations for job in plan.jobs})))
    every = "of every job" if len(plan.jobs) > 1 else "of the job"
    yield f"  {counts} iterations {every}, sampled every {plan.sample_ns / 1e6:g} ms"
    yield f"  measure the idle round trip again, read every setting back, judge, store as {plan.folder}"

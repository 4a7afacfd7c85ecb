"""Invariants of the machine: settings, capacity, cores, clocks, eBPF."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.campaign.verdict.invariant import (
    Case,
    Limits,
    Noted,
    Unjudged,
    above,
    not_applicable,
    not_evaluated,
    without,
)

MOST_TYPED = 200  # characters of typed lines in a verdict
TOO_SHORT = "the run was too short"


def settings(case: Case) -> float:
    """I1: how many settings were read back; a run with one that differs does not get here."""
    return len(case.manifest.settings)


def capacity(case: Case) -> float | Unjudged:
    """I2: measured capacity of the unshaped path ÷ the need of the experiment."""
    if not case.measured.capacity_bps or not case.plan.needed_bps:
        return not_evaluated("capacity was not measured")
    return case.measured.capacity_bps / case.plan.needed_bps


def core_limits(case: Case) -> Limits:
    """Limits of I7's busiest core. A busy core matters less where disturbances are recorded.

    The same holds where real training fills the cores at the lowest priority. I3, I4, I5 and I21 detect its effect on the
    network.
    """
    training = any(job.program is not None for job in case.plan.jobs)
    return above(0.80, None if training or not case.refused else 0.95)


def steal_limits(case: Case) -> Limits:
    """Limits of I7's stolen time, likewise."""
    return above(0.01, 0.05 if case.refused else None)


def busiest_core(case: Case) -> float | Noted | Unjudged:
    """I7: of each second the core that had most to do; the 95th percentile."""
    return _percentile(case, case.measured.sampler.busiest_core, 95)


def stolen(case: Case) -> float | Noted | Unjudged:
    """I7: of each second the time a hypervisor gave to others; the 95th percentile."""
    return _percentile(case, case.measured.sampler.steal, 95)


def _percentile(case: Case, seconds: Sequence[float], which: float) -> float | Noted | Unjudged:
    """Return percentile ``which`` of ``seconds`` (one value per second of the run), without disturbed seconds."""
    if not seconds:
        return not_evaluated(TOO_SHORT)
    begun = np.arange(len(seconds), dtype=float)
    calm = case.calm.holds(begun, begun + 1)
    if not calm.any():
        return not_evaluated("every second was disturbed (I21)")
    return without(float(np.percentile(np.array(seconds)[calm], which)), ~calm)


def drift(case: Case) -> float:
    """I12: by how much the two clocks have moved against each other, in s."""
    return abs(case.measured.clock_drift_s)


def skipped_calls(case: Case) -> float | Unjudged:
    """I13: eBPF calls that the kernel skipped and kernel/bpf/guard.h made good, per job and second."""
    repairs = case.measured.congestion_control_repairs
    if repairs is None:
        return not_applicable("no eBPF program that skipped calls affect")
    return float(repairs / (case.iterations["end_s"].max() * len(case.plan.jobs)))


def typed(case: Case) -> Noted:
    """I25: lines typed in a shell of the run, as far as they may have changed something."""
    lines = case.manifest.shell
    return Noted(len(lines), "; ".join(lines)[:MOST_TYPED])


def has_shell(case: Case) -> Unjudged | None:
    """I25 concerns runs in whose shell a command was typed."""
    return None if case.manifest.shell else not_applicable("nothing was typed in a shell of the run")

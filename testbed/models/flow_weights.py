"""Weights by which congestion controls share a link in the flow-level simulator: proportional to F^p, with random
variation.

The numbers were fitted to runs of the real stack (experiments/twin/twin-fit.toml), not to those that judge the
simulator (experiments/twin.toml; docs/explanation/flow-simulator.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.congestion import catalogue
from testbed.congestion.curves import CURVES, ONE
from testbed.core.runs.plan import CongestionControl, JobPlan, Plan
from testbed.models.curves import Curve
from testbed.models.frames import payload_share
from testbed.models.weight_function import Force

STEPS = 16  # number of steps of F over an iteration's bytes
MLTCP_ACTIVE_FROM = 2  # iterations until a flow has learned r (docs/reference/congestion-controls.md)
MOST_SPREAD = 0.5
BAND = 1e6  # ratio of weights between a priority queue and the next lower one
# Frames of marking threshold for each flow on a link. Up to the first value, windows are at their minimum of two segments and shares are equal,
# independent of F; from the second on weights decide.
# Below the first value MLTCP's flows are equal in the kernel, too: emulated iterations were within 3 % of the computed ones (four mixes).
# Reno's jobs drift apart by chance there, by 0 to 16 %.
WINDOWS = (2.5, 3.5)
LEAST = 0.01  # smallest weight


@dataclass(frozen=True)
class Sharing:
    """The sharing of a base: shares go as F^``exponent``; ``spread``: how much the logarithm of a flow's weight varies from loss cycle to loss cycle."""

    exponent: float
    spread: float
    compared: bool = False  # the simulator with the kernel, and they agreed (`testbed.models.validated_range`)
    compared_mltcp: bool = False  # MLTCP over it, too


BASES: Mapping[str, Sharing] = {
    "reno": Sharing(0.7, 0.1, compared=True, compared_mltcp=True),
    "cubic": Sharing(0.9, 0.35, compared=True),
    "dctcp": Sharing(1.0, 0.4),
    "dcqcn": Sharing(0.1, 0.05),
}


def base(control: CongestionControl) -> str:
    """The properties of a congestion control that affect sharing."""
    return control.base or control.name


def force(control: CongestionControl, *, exponent: float | None = None, steps: int = STEPS) -> Force:
    """Return the weights by r, in ``steps`` steps; 1 without MLTCP. ``exponent``: replaces that of the base."""
    if not control.traits.learns:
        return Force()
    constants, curve = catalogue.effective(control), factor(control)
    power = BASES[base(control)].exponent if exponent is None else exponent
    if not constants["slope"]:
        return Force((1.0,), (float(curve(0.0)) ** power,))
    bounds = tuple((step + 1) / steps for step in range(steps))
    return Force(bounds, tuple(max(LEAST, float(curve(bound - 0.5 / steps))) ** power for bound in bounds))


def factor(control: CongestionControl) -> Curve:
    """F of an MLTCP."""
    constants = catalogue.effective(control)
    return Curve(CURVES[constants["curve"]], constants["slope"] / ONE, constants["intercept"] / ONE)


def spread(plan: Plan, job: JobPlan) -> float:
    """Return the standard deviation of the logarithm of a flow's weight between iterations of ``job``.

    A loss cycle of Reno is half a window of round trips. The measured random contribution of a cycle is averaged over
    the cycles of a phase in which every flow of the run sends over one bottleneck.
    """
    flows = sum(one.channels for one in plan.jobs)
    largest_bits = 8 * max(job.bytes_per_worker, default=0) / job.channels / payload_share(plan.link.mtu)
    window = max(2.0, plan.link.buffer_bytes / plan.link.mtu / flows)
    cycle_s = window / 2 * plan.link.buffer_bytes * 8 / plan.link.rate_bps
    phase_s = largest_bits * flows / plan.link.rate_bps
    return min(MOST_SPREAD, BASES[base(job.cc)].spread * (cycle_s / phase_s) ** 0.5) if phase_s else 0.0


def mltcp_active_from(control: CongestionControl) -> int:
    """The first iteration in which MLTCP is active; 0 for a flow with given iteration boundaries, or one that needs none."""
    constants = catalogue.effective(control)
    known = constants.get("total_bytes", 0) > 0 or not constants.get("slope", 0)
    return 0 if known or not control.traits.learns else MLTCP_ACTIVE_FROM


def banded(total: int, thresholds: tuple[int, ...]) -> Force:
    """Strict priority of flows with less left than each of these bytes, of ``total`` (`testbed.replay.bands`)."""
    bounds, weights, weight = [], [], 1.0
    for threshold in thresholds:
        if threshold < total:
            bounds.append(1 - threshold / total)
            weights.append(weight)
        weight *= BAND
    return Force((*bounds, 1.0), (*weights, weight))

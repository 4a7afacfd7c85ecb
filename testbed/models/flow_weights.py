"""How a congestion control shares a link, as the flow-level twin has it: weights that go as F^p, and what chance adds.

The numbers were fitted to runs of the real stack (experiments/twin/twin-fit.toml), not to those that the twin is judged by
(experiments/twin.toml; docs/twin.md).
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

STEPS = 16  # of F over an iteration's bytes
MLTCP_ACTIVE_FROM = 2  # iterations until a flow knows r (docs/congestion-controls.md)
MOST_SPREAD = 0.5
BAND = 1e6  # of strict priority: by how much a band outweighs the one below
# Frames of marking threshold for each flow on a link: up to the first, windows are at their minimum of two segments, and shares are equal
# whatever F is; from the second on weights decide.
WINDOWS = (2.5, 3.5)
LEAST = 0.01  # weights stay above nothing
COMPARED = ("dumbbell", "leafspine")
WIDE = "rings of more than two workers were not compared"


@dataclass(frozen=True)
class Sharing:
    """Of a base: shares go as F^``exponent``; ``spread``: how much the logarithm of a flow's weight varies from loss cycle to loss cycle."""

    exponent: float
    spread: float
    compared: bool = False  # the twin with the kernel, and they agreed; more in `beyond`
    compared_mltcp: bool = False  # MLTCP over it, too


LEAST_WINDOW = 30  # segments of a bottleneck's queue for each flow
BASES: Mapping[str, Sharing] = {
    "reno": Sharing(0.7, 0.1, compared=True, compared_mltcp=True),
    "cubic": Sharing(0.9, 0.35, compared=True),
    "dctcp": Sharing(1.0, 0.4),
    "dcqcn": Sharing(0.1, 0.05),
}


def base(control: CongestionControl) -> str:
    """What a congestion control changes, or is."""
    return control.base or control.name


def force(control: CongestionControl, *, exponent: float | None = None, steps: int = STEPS) -> Force:
    """Its weights by r; 1 for what is no MLTCP. ``exponent``: another than its base has."""
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
    """How much the logarithm of a flow's weight varies from one iteration of ``job`` to the next.

    A loss cycle of Reno is half a window of round trips. What each cycle adds by chance, which was measured, is
    averaged over those of a phase in which every flow of the run sends, by one bottleneck as the experiment has it.
    """
    flows = sum(one.channels for one in plan.jobs)
    largest_bits = 8 * max(job.bytes_per_worker, default=0) / job.channels / payload_share(plan.link.mtu)
    window = max(2.0, plan.link.buffer_bytes / plan.link.mtu / flows)
    cycle_s = window / 2 * plan.link.buffer_bytes * 8 / plan.link.rate_bps
    phase_s = largest_bits * flows / plan.link.rate_bps
    return min(MOST_SPREAD, BASES[base(job.cc)].spread * (cycle_s / phase_s) ** 0.5) if phase_s else 0.0


def mltcp_active_from(control: CongestionControl) -> int:
    """The first iteration in which its force is in force; 0 for who is told what an iteration is, or needs not know."""
    constants = catalogue.effective(control)
    told = constants.get("total_bytes", 0) > 0 or not constants.get("slope", 0)
    return 0 if told or not control.traits.learns else MLTCP_ACTIVE_FROM


def banded(total: int, thresholds: tuple[int, ...]) -> Force:
    """Strict priority of who has less left than each of these bytes, of ``total`` (`testbed.replay.bands`)."""
    bounds, weights, weight = [], [], 1.0
    for threshold in thresholds:
        if threshold < total:
            bounds.append(1 - threshold / total)
            weights.append(weight)
        weight *= BAND
    return Force((*bounds, 1.0), (*weights, weight))


def beyond(plan: Plan, job: JobPlan) -> str:
    """Why a run is not like those in which the twin was compared with the kernel, and agreed; empty: it is (docs/twin.md)."""
    if unlike := uncompared(job.cc) or _setting(plan, job):
        return unlike
    if job.channels > 1:
        return (
            "several flows a job: in the kernel MLTCP separates them only where each flow has some frames of threshold"
        )
    window = plan.link.buffer_bytes / plan.link.mtu / sum(one.channels for one in plan.jobs)
    if window < LEAST_WINDOW:
        return (
            f"the queue has {window:.0f} packets for each flow, and runs that were compared had {LEAST_WINDOW} or more"
        )
    return WIDE if len(job.hosts) > 2 else ""


def _setting(plan: Plan, job: JobPlan) -> str:
    """What of a run none of those had that were compared; empty: nothing."""
    constants = catalogue.effective(job.cc)
    unlike = {
        f"the topology {plan.topology}": plan.topology not in COMPARED,
        "bands of priority": plan.link.bands > 1 or job.bands,
        "times set by a scheduler": job.grid is not None,
        "a constant F": job.cc.traits.learns and not constants["slope"],
        "an MLTCP without the window that `recommended` restarts with": job.cc.traits.learns and not constants.get("restart"),
        "interfaces as fast as memory": not plan.nics,
        "links that do not mark": plan.link.ecn_threshold is None,
        "compute times that vary": job.noise != "0%",
        "links that change": plan.events,
    }  # fmt: skip
    return next((f"{what}: not compared" for what, found in unlike.items() if found), "")


def uncompared(control: CongestionControl) -> str:
    """Why no run of it is like those that were compared; empty: some are."""
    sharing = BASES.get(base(control))
    compared = sharing is not None and (sharing.compared_mltcp if control.traits.learns else sharing.compared)
    return "" if compared else f"{control.name} was not compared"

"""I23: a simulated run is within the simulator's validated range."""

from __future__ import annotations

from testbed.campaign.verdict.invariant import Case, Noted, Unjudged, not_applicable
from testbed.models import validated_range


def computed(case: Case) -> Unjudged | None:
    """I23 applies only to runs that the flow simulator computed."""
    return None if case.manifest.clock == "model" else not_applicable("the run was emulated, not simulated")


def compared(case: Case) -> float | Noted:
    """I23: 1 within the range in which the simulator was compared with the kernel (docs/explanation/flow-simulator.md), else 0."""
    outside = validated_range.check(case.plan)
    return Noted(0, "; ".join(reason.text for reason in outside)) if outside else 1

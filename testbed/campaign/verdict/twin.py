"""Whether a computed run is like those in which the twin agreed with the kernel: I23."""

from __future__ import annotations

from testbed.campaign.verdict.invariant import Case, Noted, Unjudged, not_applicable
from testbed.models import flow_weights


def computed(case: Case) -> Unjudged | None:
    return None if case.manifest.clock == "model" else not_applicable("it was run")


def compared(case: Case) -> float | Noted:
    """I23: 1 within the region in which the twin was compared with the kernel, and agreed (docs/twin.md), else 0; a job alone
    shares with nobody."""
    if case.plan.alone is not None:
        return 1
    beyond = [reason for job in case.plan.jobs if (reason := flow_weights.beyond(case.plan, job))]
    return Noted(0, "; ".join(dict.fromkeys(beyond))) if beyond else 1

"""The machine's effect on a run: I21."""

from __future__ import annotations

from math import isnan

from testbed.campaign.verdict.invariant import Case, Noted, Unjudged, by_construction, not_evaluated
from testbed.core.runs.disturbed import undisturbed


def recorded(case: Case) -> Unjudged | None:
    """The condition that disturbances are fully known: a value that a machine does not report does not count as calm."""
    return by_construction(case) or (not_evaluated(case.refused) if case.refused else None)


def disturbed_share(case: Case) -> float | Noted:
    """I21: the share of iterations in whose communication a core, or its ksoftirqd, was held up for 10 ms or more."""
    assert case.disturbances is not None  # `recorded`
    found = undisturbed(case.iterations, case.disturbances)
    return (
        Noted(found.share, f"{found.disturbed_iterations} of {found.iterations}") if found.disturbed_iterations else 0
    )


def moved(case: Case) -> float | Unjudged:
    """I21: by how much these iterations move the mean."""
    assert case.disturbances is not None
    found = undisturbed(case.iterations, case.disturbances)
    return not_evaluated("every iteration was disturbed") if isnan(found.difference) else found.difference

"""A results folder to explore: two jobs, Reno and MLTCP-Reno, two seeds, as the fluid model has them."""

from __future__ import annotations

from pathlib import Path

from testbed import spec
from testbed.planning import plan as plans
from tests.support import fluid_runs, manifests

NAME, ITERATIONS = "pair", 24


def results(folder: Path, name: str = NAME) -> Path:
    asked = {
        "name": name,
        "jobs": 2,
        "iterations": ITERATIONS,
        "seeds": 2,
        "system": ["reno", "mltcp_reno"],
        "isolated_runs": "none",
    }
    for plan in plans.plans(plans.resolve(spec.read(None, asked))):
        fluid_runs.write_run(plan, folder / plan.experiment / plan.folder, crossings=manifests.crossings(plan))
    return folder

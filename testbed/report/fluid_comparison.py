"""The fluid model of measured runs: the same jobs, the same starts, the same F, from their plans."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from testbed.congestion.curves import CURVES, ONE
from testbed.core import system_text
from testbed.core.runs import measured
from testbed.core.runs.load import LoadError, Run
from testbed.models import curves as theory
from testbed.models.curves import Curve
from testbed.models.fluid import Flows, simulate


def curve(run: Run) -> Curve:
    """Return F of a run's first job; constant 1 without MLTCP."""
    constants = run.constants(run.jobs[0].cc.spec)
    if "slope" not in constants:
        return theory.FAIR
    return Curve(CURVES[constants["curve"]], constants["slope"] / ONE, constants["intercept"] / ONE)


def curve_of(system: str) -> Curve:
    """F of a system of MLTCP by its name, as figures' tables have it: ``mltcp_reno:slope=1.067``; constant 1 of any other."""
    part = system_text.part(system)
    if not part.name.startswith("mltcp_"):
        return theory.FAIR
    options = dict(part.options)
    return Curve(
        options.get("curve", CURVES[0]),
        float(options.get("slope", theory.SLOPE)),
        float(options.get("intercept", theory.INTERCEPT)),
    )


def comm_s(run: Run) -> np.ndarray:
    """Return the isolated communication time of each job's iteration, headers included (A), in seconds.

    Raises `LoadError`.
    """
    computing = compute_s(run)
    return np.asarray(measured.ideals_s(run) - computing)


def compute_s(run: Run) -> np.ndarray:
    """Return the computing time of each job's iteration in seconds.

    Raises `LoadError` unless it computes once, then communicates once.
    """
    spans = []
    for job in run.jobs:
        if [operation.computes for operation in job.operations] != [True, False] or job.ideal_s is None:
            raise LoadError(
                f"{run.path}: job {job.job} must compute once and then communicate once, for the fluid model"
            )
        spans.append(job.compute_ns / 1e9)
    return np.array(spans)


def flows(runs: Sequence[Run], exponent: float) -> Flows:
    """Simulate runs that differ only in seeds by the fluid model: a replica each.

    Raises `LoadError` if nothing was run.
    """
    first = runs[0]
    return _simulated(
        tuple(compute_s(first)), tuple(comm_s(first)), tuple(tuple(job.offset_ns / 1e9 for job in run.jobs) for run in runs),
        curve(first), exponent, min(job.iterations for job in first.jobs),
    )  # fmt: skip


@lru_cache(maxsize=256)  # a figure judges and draws the same simulation
def _simulated(
    compute_s: tuple[float, ...], comm_s: tuple[float, ...], offsets_s: tuple[tuple[float, ...], ...],
    curve: Curve, exponent: float, iterations: int,
) -> Flows:  # fmt: skip
    return simulate(compute_s, comm_s, offsets_s, curve, exponent=exponent, iterations=iterations)

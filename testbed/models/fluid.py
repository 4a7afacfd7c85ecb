"""The fluid model: training jobs on one link as differential equations instead of packets.

Each job computes, then communicates. While several communicate, job k gets F(r_k)^p / Σ F(r_j)^p of the link, where r
is the fraction of its iteration's bytes that it has sent (`testbed.models.curves`). Weights change continuously, unlike
in the shift equation, which freezes them. Steps are short relative to a communication phase and end exactly where a
phase begins or ends. Nothing is fitted: effects of packets (loss cycles, slow start, queues) are the difference to a
measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.core.runs.metrics import interleaved_needs
from testbed.models.curves import Curve, Factor

STEPS = 200  # per communication phase alone
MLTCP_ACTIVE_FROM = (
    2  # the first iteration with MLTCP active: flows learn in the two before (docs/reference/congestion-controls.md)
)


@dataclass(frozen=True)
class Flows:
    """The times of the jobs, in seconds: arrays of [replica, iteration, job]."""

    start_s: np.ndarray
    comm_start_s: np.ndarray
    end_s: np.ndarray

    @property
    def times_s(self) -> np.ndarray:
        """Return iteration times in seconds."""
        return np.asarray(self.end_s - self.start_s)

    def interleaved_at(self, ideal_s: npt.ArrayLike, within: float = 0.05) -> np.ndarray:
        """Return for each replica the result that `testbed.core.runs.metrics.interleaved_at` gives for a run;
        infinity: never."""
        outside = np.any(self.times_s > np.asarray(ideal_s) * (1 + within), axis=2)
        last = outside.shape[1] - 1 - np.argmax(outside[:, ::-1], axis=1)
        first = np.where(np.any(outside, axis=1), last + 1, 0).astype(float)
        return np.where(outside.shape[1] - first >= interleaved_needs(outside.shape[1]), first, np.inf)

    def start_difference_s(self, period_s: float) -> np.ndarray:
        """The start difference of two jobs, as `testbed.core.runs.metrics.start_difference`: [replica, iteration]."""
        apart = self.comm_start_s[:, :, 1] - self.comm_start_s[:, :, 0]
        return np.asarray(np.abs(apart - period_s * np.round(apart / period_s)))


def simulate(
    compute_s: npt.ArrayLike,
    comm_s: npt.ArrayLike,
    offsets_s: npt.ArrayLike,
    factor: Factor = Curve(),  # noqa: B008
    *,
    exponent: float = 1.0,
    iterations: int = 30,
    mltcp_active_from: int = MLTCP_ACTIVE_FROM,
    noise_s: float = 0.0,
    seed: int = 0,
) -> Flows:
    """Simulate jobs with isolated times ``compute_s`` and ``comm_s`` (one value per job), started at ``offsets_s``
    ([replica, job], or one replica's).

    Until iteration ``mltcp_active_from`` of a job its F is 1. ``noise_s``: standard deviation of normal noise on each
    compute phase, in seconds; the result is at least 0. A job continues until all have their iterations; only the first
    ``iterations`` count.
    """
    offsets = np.atleast_2d(np.asarray(offsets_s, dtype=float))
    replicas, jobs = offsets.shape
    compute = np.broadcast_to(np.asarray(compute_s, dtype=float), (replicas, jobs))
    comm = np.broadcast_to(np.asarray(comm_s, dtype=float), (replicas, jobs))
    draw = np.random.default_rng(seed)
    longest_step = float(comm.min()) / STEPS

    def computed_at(begin: np.ndarray) -> np.ndarray:
        noise = draw.normal(0, noise_s, begin.shape) if noise_s else 0.0
        return np.asarray(begin + np.maximum(compute + noise, 0))

    shape = (replicas, iterations, jobs)
    start, comm_start, end = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    start[:, 0] = offsets
    now = np.zeros((replicas, 1))
    ready = computed_at(offsets)  # when the phase that is computed ends
    sent = np.full((replicas, jobs), -1.0)  # seconds of the link; below zero: computing
    number = np.zeros((replicas, jobs), dtype=int)
    rows, columns = np.indices((replicas, jobs))
    while (number < iterations).any():
        sending = sent >= 0
        ratio = np.minimum(np.maximum(sent / comm, 0), 1)
        force = np.where(number < mltcp_active_from, 1.0, factor(ratio)) ** exponent
        weight = np.where(sending, force, 0.0)
        total = weight.sum(axis=1, keepdims=True)
        rate = weight / np.where(total > 0, total, 1.0)
        done_in = np.where(sending, (comm - sent) / np.where(sending, rate, 1.0), np.inf)
        until_ready = np.where(sending, np.inf, ready - now)
        crowded = sending.sum(axis=1, keepdims=True) > 1  # else rates are constant until something begins or ends
        step = np.minimum(done_in, until_ready).min(axis=1, keepdims=True)
        step = np.maximum(np.where(crowded, np.minimum(step, longest_step), step), 0)
        now = now + step
        ended = sending & (done_in <= step * (1 + 1e-12))
        begun = ~sending & (until_ready <= step * (1 + 1e-12))
        sent = np.where(sending, sent + rate * step, sent)
        _note(end, ended & (number < iterations), rows, number, columns, now)
        number = number + ended
        _note(start, ended & (number < iterations), rows, number, columns, now)
        _note(comm_start, begun & (number < iterations), rows, number, columns, now)
        sent = np.where(begun, 0.0, np.where(ended, -1.0, sent))
        if ended.any():
            ready = np.where(ended, computed_at(np.broadcast_to(now, ready.shape)), ready)
    return Flows(start, comm_start, end)


def _note(
    table: np.ndarray, where: np.ndarray, rows: np.ndarray, number: np.ndarray, columns: np.ndarray, now: np.ndarray
) -> None:
    """Write the time into the current iteration of the jobs that are concerned."""
    if where.any():
        table[rows[where], number[where], columns[where]] = np.broadcast_to(now, where.shape)[where]

"""The definition of an invariant: a measurement of a run, its limits, and the conditions under which it does not apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd

from testbed.core.runs.disturbed import Calm
from testbed.core.runs.manifest import Manifest, Measured
from testbed.core.runs.plan import Plan
from testbed.core.runs.verdict import Row, Status


@dataclass(frozen=True, eq=False)
class Case:
    """A run to be judged: its plan and its measurements."""

    manifest: Manifest
    iterations: pd.DataFrame
    links: pd.DataFrame
    flows: pd.DataFrame
    disturbances: pd.DataFrame | None = None
    messages: pd.DataFrame | None = None  # of lossy transports
    lives: pd.DataFrame | None = None  # of jobs that request GPUs
    nics: pd.DataFrame | None = None  # hosts' interfaces, where they have a rate

    @property
    def carried(self) -> pd.DataFrame:
        """Return the iterations without those that were filled in."""
        if (period := self.measured.period) is None:
            return self.iterations
        through = {job.job: number for job, number in zip(self.plan.jobs, period.carried, strict=True)}
        return self.iterations[self.iterations["iteration"] < self.iterations["job"].map(through)]

    @property
    def failed(self) -> dict[int, str]:
        """Jobs that failed while others went on, and why."""
        if self.lives is None:
            return {}
        rows = self.lives[self.lives["outcome"] == "failed"]
        return {int(job): str(reason) for job, reason in zip(rows["job"], rows["failure_reason"], strict=True)}

    @property
    def plan(self) -> Plan:
        return self.manifest.plan

    @cached_property
    def calm(self) -> Calm:
        """Return the undisturbed time of the run."""
        return Calm.around(self.disturbances)

    @property
    def refused(self) -> str:
        """The reason why disturbances are not fully known; empty if they are."""
        recorded = self.manifest.disturbances
        if self.disturbances is None or recorded is None:
            return "disturbances were not recorded"
        return "; ".join(recorded.refused)

    @property
    def virtual(self) -> bool:
        """Under virtual time, where computing takes none."""
        return self.manifest.clock == "virtual"

    @property
    def measured(self) -> Measured:
        return self.manifest.measured


@dataclass(frozen=True)
class Unjudged:
    """The reason why an invariant gives no value for a run."""

    status: Status
    reason: str


@dataclass(frozen=True)
class Noted:
    """A value with an explanation."""

    value: float
    note: str


@dataclass(frozen=True)
class Limits:
    """Limits beyond which a run is suspect or invalid; None: no limit."""

    suspect: float | None = None
    invalid: float | None = None
    side: Literal["above", "below"] = "above"

    def status(self, value: float) -> Status:
        if self._beyond(self.invalid, value):
            return "invalid"
        return "suspect" if self._beyond(self.suspect, value) else "ok"

    def _beyond(self, limit: float | None, value: float) -> bool:
        return limit is not None and (value > limit if self.side == "above" else value < limit)

    def named_limits(self) -> dict[str, float]:
        both = {f"suspect {self.side}": self.suspect, f"invalid {self.side}": self.invalid}
        return {name: limit for name, limit in both.items() if limit is not None}


@dataclass(frozen=True)
class Invariant:
    """One row of the table in docs/reference/invariants.md; an invariant with several values has several rows with one
    id."""

    id: str
    name: str
    measure: Callable[[Case], float | Noted | Unjudged]
    limits: Limits | Callable[[Case], Limits] | None = None  # None: recorded, but not judged
    applies: Callable[[Case], Unjudged | None] = lambda _case: None  # None: it does
    note: str = ""
    of_model: bool = False  # it applies to runs of the flow simulator, too

    def judge(self, case: Case) -> Row:
        """Return the row of this invariant in ``verdict.json``."""
        if case.manifest.clock == "model" and not self.of_model:
            return self._row(None, None, "not applicable", "no kernel, no machine: flows were computed")
        found = self.applies(case) or self.measure(case)
        if isinstance(found, Unjudged):
            return self._row(None, None, found.status, found.reason)
        value, note = (found.value, found.note) if isinstance(found, Noted) else (found, self.note)
        if self.limits is None:
            return self._row(value, None, "ok", note)
        limits = self.limits(case) if callable(self.limits) else self.limits
        return self._row(value, limits.named_limits(), limits.status(value), note)

    def _row(self, value: float | None, limit: dict[str, float] | None, status: Status, note: str) -> Row:
        return Row(self.id, self.name, value, limit, status, note)


def without(value: float, left_out: np.ndarray) -> float | Noted:
    """Return ``value``, with a note on the disturbed fraction that was left out, if any."""
    return Noted(value, f"without the {left_out.mean():.1%} that were disturbed (I21)") if left_out.any() else value


def above(suspect: float | None, invalid: float | None = None) -> Limits:
    """Return limits above which a run is suspect, or invalid."""
    return Limits(suspect, invalid, "above")


def below(suspect: float | None, invalid: float | None = None) -> Limits:
    """Return limits below which a run is suspect, or invalid."""
    return Limits(suspect, invalid, "below")


def not_evaluated(reason: str) -> Unjudged:
    """The invariant applies, but the run has no data to judge it; ``reason``: why."""
    return Unjudged("not evaluated", reason)


def not_applicable(reason: str) -> Unjudged:
    """The invariant does not apply to the run; ``reason``: why."""
    return Unjudged("not applicable", reason)


def by_construction(case: Case) -> Unjudged | None:
    """Return "holds by construction" under virtual time; else None."""
    return Unjudged("ok", "by construction: computing takes no virtual time") if case.virtual else None

"""An answer of ``mltcp advise`` as data: what ``--json`` prints. Times in seconds, gains as shared time ÷ time with the option."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from testbed.core.runs.findings import Outcome, Reason

Kind = Literal["baseline", "system", "placement", "network"]


class JobTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Mean iteration of one job: in isolation, sharing the network, and with each option."""

    job: int
    trace: str
    workers: int
    alone_s: float
    shared_s: float
    with_s: dict[str, float]  # by option


class Emulated(msgspec.Struct, frozen=True, kw_only=True):
    """The same gain, of real traffic under virtual time."""

    gain_mean: float
    low: float | None  # None: fewer than three seeds
    high: float | None
    difference: float  # computed ÷ emulated − 1
    verdict: str
    folder: str


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """A possible change and its gain; the baseline is the first one, with a gain of 1."""

    system: str  # as typed; of a placement or network what changes: ``packed``, ``100gbit``
    kind: Kind
    gain_mean: float
    low: float  # the seeds' interval, widened by the simulator's measured error unless a reason bounds the gain
    high: float
    gain_last10: float  # of the last ten iterations
    outcome: Outcome
    reason: str
    reasons: tuple[Reason, ...]
    confidence: str
    validated: bool  # the simulator was compared with the kernel for this
    emulated: Emulated | None = None


class LeftOut(msgspec.Struct, frozen=True):
    """An option that these jobs cannot have."""

    system: str
    why: str


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one network."""

    rate: str
    topo: str
    iterations: int
    seeds: int
    jobs: tuple[JobTimes, ...]
    options: tuple[Option, ...]
    helps: bool  # an option on this network is faster than the baseline: its whole interval is above 1
    best: str  # of the options on this network; the baseline if none is faster
    reason: str
    confidence: str
    may_help: str | None = None  # the inconclusive option that may gain most: its interval ends above 1.05
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def baseline(self) -> Option:
        return self.options[0]

    @property
    def undecided(self) -> Option | None:
        return None if self.may_help is None else self.option(self.may_help)

    def option(self, system: str) -> Option:
        return next(one for one in self.options if one.system == system)


class Answers(Advice, frozen=True, kw_only=True):
    """The answer for the first network, and for each of several (``--rates``)."""

    rates: tuple[Advice, ...] = ()


def joined(answers: Sequence[Advice]) -> Answers:
    """The answers for one network, or for several rates of it."""
    first = {name: getattr(answers[0], name) for name in Advice.__struct_fields__}
    return Answers(**first, rates=tuple(answers) if len(answers) > 1 else ())

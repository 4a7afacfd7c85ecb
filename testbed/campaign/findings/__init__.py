"""Statements that hold for a result: see `testbed.core.runs.findings`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.campaign.findings.demand import ALIKE, Demand, common_divisor
from testbed.congestion import catalogue
from testbed.core import system_text
from testbed.core.runs.findings import (
    Active,
    AtIdeal,
    BaseInterleaves,
    Compared,
    Delivered,
    Finding,
    Interleaved,
    InterleavingUnknown,
    MostlyHidden,
    NoCauseKnown,
    NoCoordination,
    NoSharedLink,
    NotInterleaved,
    OneJob,
    OtherBase,
    Outcome,
    Periods,
    RandomLoss,
    Reason,
    SmallShare,
    Timeouts,
    TooShort,
    Uneven,
)
from testbed.core.runs.metrics import interleaved_needs
from testbed.core.runs.summary import Result

ENOUGH = 10  # iterations with MLTCP active, before it is compared
FEWEST_FRAMES = 3.0  # frames of ECN threshold for each flow (docs/explanation/hosts-and-queues.md)
HIDDEN = 0.5  # fraction of communication: if less is exposed, a delay rarely moves the next iteration
FEWEST_TIMEOUTS = 0.01  # timeouts per iteration: fewer cannot explain a difference of 2 %
FEWEST_LOSSES = 1e-5  # fraction of packets: one loss in a window of tens of thousands


@dataclass(frozen=True)
class Waits:
    """Retransmission timeouts of a system, over all its runs."""

    timeouts: int = 0
    rto_min_s: float = 0.2


def compared(
    row: Result, base: Result, demand: Demand, waits: Waits = Waits(), others: Sequence[Result] = ()
) -> tuple[Finding, ...]:
    """Compare a result with its baseline, with reasons if there is no gain; empty for an invalid result.

    ``others``: results of the same experiment, among them perhaps the base of MLTCP.
    """
    if row == base or "invalid" in (*row.verdicts, *base.verdicts):
        return ()
    against, found = base.system, list[Finding]()
    if (short := _too_short(row, against)) is not None:
        found.append(short)
    else:
        outcome = _outcome(row)
        reasons = (
            ()
            if outcome == "faster"
            else tuple(_reasons(row, base, demand, waits)) or (_unexplained(row, base, others),)
        )
        found.append(Compared(outcome, against, row.speedup_mean, row.speedup_mean_ci95, len(row.seeds), reasons))
        found += _each_job(row)
    return tuple(found)


def own(row: Result) -> tuple[Finding, ...]:
    """Return findings about one result, without a comparison."""
    return (*_interleaving(row), *_active(row), *_delivered(row))


def _outcome(row: Result) -> Outcome:
    low, high = row.speedup_mean_ci95 or (row.speedup_mean,) * 2
    if round(low, 2) >= 1 - ALIKE and round(high, 2) <= 1 + ALIKE:
        return "no difference"
    return "faster" if low > 1 else "slower" if high < 1 else "inconclusive"


def _too_short(row: Result, against: str) -> TooShort | None:
    """For systems that run MLTCP in some job. F has no meaning for other jobs."""
    if not any(job.learns for job in row.per_job):
        return None
    if row.mltcp_active_from is not None and row.iterations - row.mltcp_active_from >= ENOUGH:
        return None
    return TooShort(against, row.speedup_mean, row.iterations, row.mltcp_active_from, ENOUGH)


def _each_job(row: Result) -> Iterator[Uneven]:
    gains = {job.job: job.speedup_mean for job in row.per_job}
    if gains and max(gains.values()) - min(gains.values()) > 2 * ALIKE:
        yield Uneven(gains)


def _interleaving(row: Result) -> Iterator[Interleaved | NotInterleaved | InterleavingUnknown]:
    if row.jobs == 1:
        return
    if row.interleaved_seeds is None:
        yield InterleavingUnknown()
        return
    count, _, of = row.interleaved_seeds.partition(" of ")
    if int(count):
        yield Interleaved(row.interleaved_at, int(count), int(of))
    else:
        yield NotInterleaved(row.iterations, interleaved_needs(row.iterations))


def _active(row: Result) -> Iterator[Active]:
    if any(job.learns for job in row.per_job):
        yield Active(row.mltcp_active_from)


def _delivered(row: Result) -> Iterator[Delivered]:
    if row.delivered is not None:
        yield Delivered(row.delivered, row.important_fraction)


def _reasons(row: Result, base: Result, demand: Demand, waits: Waits) -> Iterator[Reason]:
    """The reason why no gain is possible, if known."""
    if row.jobs == 1:
        if row.delivered is None:  # a transport may carry one job's bytes sooner
            yield OneJob()
        return
    shared = demand.shares_link is not False  # or unknown
    if shared:
        yield from demand.overloads
        yield from _periods(demand)
        yield from _little_to_gain(base, demand)
    else:
        yield NoSharedLink()
    if divides_windows(row) and demand.frames is not None and demand.frames.per_flow < FEWEST_FRAMES:
        yield demand.frames
    if demand.random_loss >= FEWEST_LOSSES:
        yield RandomLoss(demand.random_loss)
    share = waits.timeouts / (row.iterations * row.jobs * len(row.seeds))
    if share >= FEWEST_TIMEOUTS:
        yield Timeouts(waits.timeouts, waits.rto_min_s, share)
    if shared and _knows_phases(row) and demand.exposed_s and sum(demand.exposed_s) < HIDDEN * sum(demand.phases_s):
        yield MostlyHidden(demand.phases_s, demand.exposed_s)
    if shared and row.role == base.role == "baseline":
        yield NoCoordination(row.system, base.system)
    if divides_windows(row) and demand.acks is not None:
        yield demand.acks


def _unexplained(row: Result, base: Result, others: Sequence[Result]) -> OtherBase | NoCauseKnown:
    """Return what is left where no cause is known: the speed-up of MLTCP's base, if that is not the baseline."""
    family = catalogue.families().get(system_text.name_of(row.system))
    if family is None or family.base is None or family.base == system_text.name_of(base.system):
        return NoCauseKnown()
    same = [each for each in others if each.system == family.base and each.scheduler == row.scheduler]
    return OtherBase(family.base, same[0].speedup_mean if same else None)


def divides_windows(row: Result) -> bool:
    """Return True if MLTCP divides windows, which needs a queue of several frames."""
    return any(job.learns and job.windowed for job in row.per_job)


def _knows_phases(row: Result) -> bool:
    """Return True if a job of the result uses MLTCP, which shifts phases by their mutual delays."""
    return any(job.learns for job in row.per_job)


def _periods(demand: Demand) -> Iterator[Periods]:
    """Yield the finding that periods do not fit together; equal periods with too little room count as offered load
    above the rate."""
    periods, phases = demand.periods_s, demand.phases_s
    if not periods or max(periods) <= min(periods) * (1 + ALIKE):
        return
    divisor = common_divisor(periods)
    if divisor is None or (phases and sum(phases) > divisor * (1 + ALIKE)):
        yield Periods(periods, divisor, sum(phases))


def _little_to_gain(base: Result, demand: Demand) -> Iterator[Reason]:
    if (ideal := at_ideal(base)) is not None:
        yield ideal
    elif base.interleaved_at is not None:
        yield BaseInterleaves(base.system, base.interleaved_at)
    if (small := small_share(demand)) is not None:
        yield small


def at_ideal(base: Result) -> AtIdeal | None:
    """Return the finding that sharing costs the baseline nothing in its last iterations; None otherwise."""
    if base.ideal_s and base.last10_mean_s <= base.ideal_s * (1 + ALIKE):
        return AtIdeal(base.system, base.last10_mean_s / base.ideal_s)
    return None


def small_share(demand: Demand) -> SmallShare | None:
    """Return the finding that sharing costs little even if all phases overlap; None otherwise."""
    if not demand.phases_s:
        return None
    most = max(
        1 + (sum(demand.phases_s) - phase) / period
        for phase, period in zip(demand.phases_s, demand.periods_s, strict=True)
    )
    return SmallShare(most) if most <= 1 + ALIKE else None

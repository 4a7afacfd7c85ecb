"""What a comparison says, in a sentence for each congestion control: for whoever wants the answer and not the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import transports
from congestion import catalogue
from core.runs.summary import Result, Summary

ALIKE = 0.02  # a speed-up within 2 % of 1 is no difference
ENOUGH = 10  # iterations with F in force, before one judges
FLOW_SCHEDULERS = {"cassini": "CASSINI"}  # those that people do not write as they are typed


@dataclass(frozen=True)
class Demand:
    """What jobs need of the bottleneck that they need most of."""

    needs: float | None  # together, as a share of its rate; None: unknown
    several: bool  # there are other bottlenecks
    periods_s: tuple[float, ...]  # each job's iteration, if it had the network to itself; empty: unknown


def name(system: str) -> str:
    """A congestion control or a transport as people write it: ``MLTCP-Reno``, ``LTP``; with its parameters as they were typed."""
    plain, colon, rest = system.partition(":")
    written = FLOW_SCHEDULERS.get(plain) or transports.titled(catalogue.titled(plain))
    return f"{written} ({rest})" if colon else written


def sentence(row: Result, base: Result, demand: Demand) -> str | None:
    """How a result of a summary compares with its baseline, why it gains nothing if it does not, and what of its gradients arrived; None of an
    invalid one."""
    if row == base or "invalid" in (*row.verdicts, *base.verdicts):
        return None
    return _compared(row, base, demand) + _arrived(row)


def _compared(row: Result, base: Result, demand: Demand) -> str:
    who, other, gain = *_told_apart(row, base), f"{row.speedup_mean:.2f}×"
    if what := _too_short(row):
        return f"{who}: too few iterations to judge ({what}); so far {gain} as fast as {other}."
    interval = row.speedup_mean_ci95
    low, high = interval or (row.speedup_mean,) * 2
    of = f" ({low:.2f}–{high:.2f})" if interval else f" ({_count(len(row.seeds), 'seed')}, no interval)"
    if round(low, 2) >= 1 - ALIKE and round(high, 2) <= 1 + ALIKE:
        found = f"{who}: no difference, " + (f"{low:.2f}–{high:.2f}×" if interval else f"{gain}{of}")
    elif low > 1:
        return f"{who} is {gain} as fast as {other}{of}{_each_job(row)}{_interleaved(row)}."
    elif high < 1:
        found = f"{who} is slower than {other}, {gain} as fast{of}"
    else:
        found = f"{who} cannot be told from {other} by {_count(len(row.seeds), 'seed')}, {gain}{of}"
    why = _reasons(row, base, demand)
    return f"{found}{_each_job(row)}{': ' if why else ''}{', '.join(why)}."


def _arrived(row: Result) -> str:
    """What a gain is paid with, where anything may be lost; empty where nothing may."""
    if row.delivered is None:
        return ""
    tagged = "" if row.important is None else f"; its tags call {row.important * 100:.0f} % of their packets important"
    if row.delivered == 1:
        return f" All of its gradients arrived{tagged}."
    return f" Of its gradients {_percent(row.delivered)} arrived{tagged}."


def _percent(share: float) -> str:
    """Never all of what is not all."""
    return f"{min(share, 0.9999) * 100:.4g} %"


def _told_apart(row: Result, base: Result) -> tuple[str, str]:
    """Both as people write them; with their job schedulers if these differ."""
    if row.scheduler == base.scheduler:
        return name(row.system), name(base.system)
    return f"{name(row.system)} under {row.scheduler}", f"{name(base.system)} under {base.scheduler}"


def _too_short(row: Result) -> str:
    """Why a run of MLTCP was too short to tell; empty if it was not."""
    if not any(job.learns for job in row.per_job):
        return ""
    if row.learned_at is None:
        return f"F was never in force in {row.iterations}"
    if row.iterations - row.learned_at >= ENOUGH:
        return ""
    return f"F in force from {row.learned_at:g} of {row.iterations}"


def _interleaved(row: Result) -> str:
    """From when on jobs are interleaved, to follow what was gained; empty if nobody can tell."""
    if row.jobs == 1 or row.alone_s is None:
        return ""
    several = f" in {row.interleaved_in} seeds" if len(row.seeds) > 1 else ""
    if row.interleaved_at is None:
        return f", interleaved{several}" if several else ", never interleaved"
    return f", interleaved from iteration {row.interleaved_at:g}{several}"


def _each_job(row: Result) -> str:
    """What each job gains, where that is not the same."""
    gains = [job.speedup_mean for job in row.per_job]
    if max(gains) - min(gains) <= 2 * ALIKE or len(gains) > 4:
        return ""
    return "; " + ", ".join(f"job {job.job} {job.speedup_mean:.2f}×" for job in row.per_job)


def _reasons(row: Result, base: Result, demand: Demand) -> list[str]:
    """Why there was nothing to gain, as far as it is known."""
    if row.jobs == 1:  # which a transport may carry sooner nevertheless
        return ["one job has nobody to share with"] if row.delivered is None else []
    found = []
    if demand.needs is not None and demand.needs > 1.005:
        count = {2: "two", 3: "three", 4: "four"}.get(row.jobs, str(row.jobs))
        which = "the busiest link" if demand.several else "the link"
        found.append(f"the {count} jobs need {demand.needs * 100:.0f} % of {which}")
    if demand.periods_s and max(demand.periods_s) > min(demand.periods_s) * (1 + ALIKE):
        found.append(f"periods {_periods(demand.periods_s)}")
    if not found and base.ideal_s and base.steady_s <= base.ideal_s * (1 + ALIKE):
        found.append(f"{name(base.system)} is at its ideal by itself")
    return found


def _periods(periods_s: Sequence[float]) -> str:
    different = list(dict.fromkeys(periods_s))
    if len(different) > 4:
        different = [min(different), max(different)]
    unit, scale = ("ms", 1e3) if max(different) < 1 else ("s", 1.0)
    texts = [f"{value * scale:.3g}" for value in different]
    if len(set(periods_s)) > 4:
        return f"from {texts[0]} to {texts[1]} {unit}"
    return f"{', '.join(texts[:-1])} and {texts[-1]} {unit}"


def _count(number: int, what: str) -> str:
    return f"{'one' if number == 1 else number} {what}{'s' * (number != 1)}"


def advice(summary: Summary) -> str | None:
    """What to do about an invalid result; None if it is none."""
    if summary.verdict != "invalid":
        return None
    programs = any(job.ideal_s is None for row in summary.results for job in row.per_job)
    if summary.clock != "real":
        what = "change what the lines above name; a link that carried more than its rate (I3) is a fault of the testbed: report it"
    elif programs:
        what = "repeat it with a lower --rate on a quieter machine"
    else:
        what = "repeat it with --on uml (exact, on any machine), or here with a lower --rate"
    return f"An invalid result says nothing of congestion controls: {what}; docs/fidelity.md explains each line."

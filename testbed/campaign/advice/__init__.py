"""``mltcp advise``: measures that would help jobs that share a network, with reasons; computed by the flow simulator.

Each option is a separate experiment (`measuring`), compared with the baseline by `testbed.campaign.summary`. The reasons
are those of `testbed.campaign.findings`. The interval is that of the seeds, widened by the simulator's measured error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from testbed.campaign import findings
from testbed.campaign.advice import wording
from testbed.campaign.advice.document import Advice, Emulated, JobTimes, Kind, LeftOut, Option
from testbed.campaign.advice.measuring import Emulations, Setting, Simulated, Tell
from testbed.campaign.findings import demand
from testbed.campaign.findings.demand import ALIKE, Demand
from testbed.campaign.summary import summarise
from testbed.core import system_text
from testbed.core.runs.findings import Compared, NoCauseKnown, NoCoordination, OtherBase, Outcome, Reason
from testbed.core.runs.load import Experiment
from testbed.core.runs.summary import Result
from testbed.core.units import Rate
from testbed.models.flow_error import gain_error
from testbed.models.statistics import Interval

RANGE = "I23"
USUAL_SYSTEMS = ("reno", "mltcp_reno", "cassini", "priority")
SPREAD, PACKED = "spread", "packed"
TOP = 2  # options that are emulated


@dataclass(frozen=True)
class Question:
    """Jobs and a network (``fields``, as `testbed.spec` takes them), and what is compared."""

    fields: dict[str, Any]
    systems: tuple[str, ...]  # the baseline first
    rate: Rate
    faster: tuple[Rate, ...]


@dataclass(frozen=True)
class _Compared:
    """An option, what it came to, and the baseline's."""

    kind: Kind
    label: str
    setting: Setting
    experiment: Experiment
    result: Result
    demand: Demand


def sized(questions: Sequence[Question], out: Path) -> Simulated:
    """A bench for these questions, with iterations and seeds for an answer within seconds; raises `RequestError`."""
    settings = {setting for question in questions for *_, setting in _settings(question)}
    bench = Simulated(questions[0].fields, out, len(settings))
    bench.size(_baseline(questions[0]))
    return bench


def answer(question: Question, bench: Simulated, tell: Tell = lambda _: None) -> Advice:
    """The answer by the flow simulator; raises `RequestError` if the baseline cannot be had."""
    found, left_out = _compare(question, bench, tell)
    base, *others = found
    placed = "topo" in question.fields
    options = [_own(base), *(_option(each, base, placed=placed) for each in others)]
    plan = base.experiment.runs[0].plan
    best = _best(options, placed=placed)
    undecided = _undecided(options, placed=placed)
    return Advice(
        rate=question.rate.exact,
        topo=",".join([plan.topology, *map(str, plan.topology_args)]),
        iterations=base.result.iterations,
        seeds=len(base.result.seeds),
        jobs=tuple(_jobs(found)),
        options=tuple(options),
        helps=best is not options[0],
        best=best.system,
        may_help=undecided.system if undecided else None,
        reason=wording.conclusion(options, best, undecided),
        confidence=wording.confidence_of(options, best, undecided),
        left_out=left_out,
        notes=plan.notes,
        assumptions=plan.assumptions,
    )


def emulate(question: Question, advice: Advice, bench: Emulations, tell: Tell = lambda _: None) -> Advice:
    """With the gains of the best options in virtual time next to those computed, which decide. Raises the error of a failed run."""
    settings = {label: setting for _, label, setting in _settings(question)}
    placed = "topo" in question.fields
    changed = sorted(advice.options[1:], key=lambda one: (one.kind not in _kinds(placed=placed), -one.gain_mean))
    measured: dict[str, Emulated] = {}
    tell(f"emulating {wording.title(advice.baseline)}")
    base = bench.carry_out(_baseline(question))
    for option in changed[:TOP]:
        tell(f"emulating {wording.title(option)}")
        run = bench.carry_out(settings[option.system])
        summary = summarise(base, run)
        result = summary.results[-1]
        low, high = result.speedup_mean_ci95 or (None, None)
        measured[option.system] = Emulated(
            gain_mean=result.speedup_mean,
            low=low,
            high=high,
            difference=option.gain_mean / result.speedup_mean - 1,
            verdict=summary.verdict,
            folder=str(run.path),
        )
    options = tuple(_decided(one, measured.get(one.system)) for one in advice.options)
    best, undecided = _best(options, placed=placed), _undecided(options, placed=placed)
    return msgspec.structs.replace(
        advice, options=options, helps=best is not options[0], best=best.system, may_help=undecided.system if undecided else None, reason=wording.conclusion(options, best, undecided),
        confidence=wording.confidence_of(options, best, undecided),
    )  # fmt: skip


def _decided(option: Option, emulated: Emulated | None) -> Option:
    """With the outcome of its emulation, if there is a valid one."""
    if emulated is None or emulated.verdict == "invalid":
        return msgspec.structs.replace(option, emulated=emulated)
    gain = emulated.gain_mean
    low, high = (gain if end is None else end for end in (emulated.low, emulated.high))
    outcome = outcome_of(gain, low, high, alike=False)
    reason = option.reason if outcome == option.outcome else wording.emulated_otherwise(gain, outcome)
    return msgspec.structs.replace(option, emulated=emulated, outcome=outcome, reason=reason)


def _baseline(question: Question) -> Setting:
    return Setting(question.systems[0], SPREAD, question.rate)


def _settings(question: Question) -> Iterator[tuple[Kind, str, Setting]]:
    """Every option, the baseline first."""
    base = question.systems[0]
    yield "baseline", base, _baseline(question)
    for system in question.systems[1:]:
        yield "system", system, Setting(system, SPREAD, question.rate)
    yield "placement", PACKED, Setting(base, PACKED, question.rate)
    for rate in question.faster:
        yield "network", rate.exact, Setting(base, SPREAD, rate)


def _compare(question: Question, bench: Simulated, tell: Tell) -> tuple[list[_Compared], tuple[LeftOut, ...]]:
    """Every option that these jobs can have, the baseline first, and the others."""
    carried, left_out = list[tuple[Kind, str, Setting, Experiment]](), list[LeftOut]()
    settings = list(_settings(question))
    tell(f"computing {len(settings)} options at {question.rate}")
    found = bench.carry_out({one: "auto" if kind in ("baseline", "system") else "none" for kind, _, one in settings})
    for kind, label, setting in settings:
        experiment = found[setting]
        if isinstance(experiment, Experiment):
            carried.append((kind, label, setting, experiment))
        elif kind == "baseline":
            raise experiment
        else:
            left_out.append(LeftOut(label, str(experiment)))
    summary = summarise(*(experiment for *_, experiment in carried))
    options = [
        _Compared(*each, result, demand.compute_demand(each[-1]))
        for each, result in zip(carried, summary.results, strict=True)
    ]
    return options, tuple(left_out)


def _own(base: _Compared) -> Option:
    """The baseline as an option: what is to be done if nothing helps."""
    return Option(
        system=base.label, kind="baseline", gain_mean=1.0, low=1.0, high=1.0, gain_last10=1.0, outcome="no difference",
        reason=wording.shared(base.result), reasons=(), confidence="", validated=_outside(base.experiment) is None,
    )  # fmt: skip


def _option(each: _Compared, base: _Compared, *, placed: bool) -> Option:
    outside = _outside(each.experiment) or _outside(base.experiment)
    error = gain_error(_plain_name(each), inside=outside is None)
    by_seeds, reasons = _outcome(each, base)
    is_compared = _is_compared(each)
    bounded = wording.bounded(reasons)
    low, high = _interval(each.result, 0.0 if bounded else error.worst)  # a bound holds whatever the error is
    outcome = by_seeds
    if is_compared and not wording.sign_unknown(reasons):
        alike = outside is None or bounded
        outcome = outcome_of(each.result.speedup_mean, low, high, alike=alike)
    return Option(
        system=each.label,
        kind=each.kind,
        gain_mean=each.result.speedup_mean,
        low=low,
        high=high,
        gain_last10=base.result.last10_mean_s / each.result.last10_mean_s,
        outcome=outcome,
        reason=wording.TOO_SHORT if not is_compared else wording.reason(
            each.kind, by_seeds, reasons, each.result, base.result, each.demand, base.demand,
            slots_s=[job.grid.period_ns / 1e9 for job in each.experiment.runs[0].plan.jobs if job.grid is not None],
            placed=placed, outside=outside,
        ) + wording.within_error(error) * (outcome == "inconclusive" != by_seeds),
        reasons=reasons,
        confidence=wording.confidence(error, outside),
        validated=outside is None,
    )  # fmt: skip


def _plain_name(each: _Compared) -> str:
    return system_text.name_of(each.setting.system)


def _interval(result: Result, error: float) -> Interval:
    """The interval of the seeds, widened by the largest relative error of the simulator."""
    low, high = result.speedup_mean_ci95 or (result.speedup_mean,) * 2
    return low / (1 + error), high * (1 + error)


def outcome_of(gain: float, low: float, high: float, *, alike: bool) -> Outcome:
    """The word for a gain and its interval. ``alike``: a gain of 1 ± 2 % is none, however wide the interval is."""
    is_certain = not low <= 1 <= high or (low >= 1 - ALIKE and high <= 1 + ALIKE)
    if abs(gain - 1) <= ALIKE and (alike or is_certain):
        return "no difference"
    return "faster" if low > 1 else "slower" if high < 1 else "inconclusive"


def _is_compared(each: _Compared) -> bool:
    """False if it is too short for a comparison, or of an invalid run."""
    return any(isinstance(found, Compared) for found in each.result.findings)


def _outcome(each: _Compared, base: _Compared) -> tuple[Outcome, tuple[Reason, ...]]:
    """How it compares with the baseline, and why it gains nothing if it does not."""
    stated = next((found for found in each.result.findings if isinstance(found, Compared)), None)
    if stated is None:  # too short for a comparison, or of an invalid run
        return "inconclusive", ()
    reasons = tuple(
        reason for reason in stated.reasons if not isinstance(reason, NoCoordination | OtherBase | NoCauseKnown)
    )
    if wording.sign_unknown(reasons):
        return "inconclusive", reasons
    if stated.outcome == "faster" or reasons:
        return stated.outcome, reasons
    acks = demand.shared_acks(base.experiment.runs[0]) if findings.divides_windows(each.result) else None
    return stated.outcome, (acks,) if acks is not None else (NoCauseKnown(),)


def _outside(experiment: Experiment) -> str | None:
    """Why the simulator was not compared with the kernel for these runs; None: it was."""
    for run in experiment.runs:
        for row in run.verdict.invariants:
            if row.id == RANGE and row.status not in ("ok", "not applicable"):
                return row.note or row.name
    return None


def _best(options: Sequence[Option], *, placed: bool) -> Option:
    """The option on this network that gains most; the baseline if none is faster.

    Another placement counts only where the cluster is known (``placed``). Otherwise the jobs are assumed to share one link.
    """
    faster = [one for one in options if one.kind in _kinds(placed=placed) and one.outcome == "faster"]
    return max(faster, key=wording.gain, default=options[0])


def _kinds(*, placed: bool) -> frozenset[Kind]:
    return frozenset({"system", "placement"} if placed else {"system"})


def _undecided(options: Sequence[Option], *, placed: bool) -> Option | None:
    """The option on this network that gains most of those that may be faster, but need not be."""
    may = [one for one in options if one.kind in _kinds(placed=placed) and wording.may_gain(one)]
    return max(may, key=wording.gain, default=None)


def _jobs(found: Sequence[_Compared]) -> Iterator[JobTimes]:
    base, *others = found
    for number, job in enumerate(base.result.per_job):
        alone_s = job.isolated_s if job.isolated_s is not None else job.ideal_s
        assert alone_s is not None  # no real program comes here
        yield JobTimes(
            job=job.job,
            trace=job.trace,
            workers=job.workers,
            alone_s=alone_s,
            shared_s=job.mean_s,
            with_s={each.label: each.result.per_job[number].mean_s for each in others},
        )

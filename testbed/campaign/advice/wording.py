"""An answer in words: why an option helps or does not, how sure that is, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.campaign import findings
from testbed.campaign.advice.document import Advice, Kind, Option
from testbed.campaign.findings import answer
from testbed.campaign.findings.answer import time_text
from testbed.campaign.findings.demand import ALIKE, Demand
from testbed.core.runs.findings import (
    AtIdeal,
    FewFrames,
    Interleaved,
    NoCauseKnown,
    NoSharedLink,
    OneJob,
    Outcome,
    Reason,
    SmallShare,
    Uneven,
)
from testbed.core.runs.summary import Result
from testbed.core.text import count, decimal
from testbed.core.units import Rate
from testbed.models.flow_error import GainError

OUTSIDE = "outside the validated range"
TOO_SHORT = "These are too few iterations to tell: raise --iterations."
CONFIRM = "The interval includes 1: confirm it with --emulate."
SIGN_UNKNOWN = (
    "Jobs drift apart by chance under the baseline there, and the simulator does not know how far. "
    "Whether MLTCP makes them faster or slower is unknown."
)
WORTH = 1.05  # an interval that ends above this may be a gain (docs/how-to/advise.md)
ROOM = " Whether servers are free for it is unknown without --cluster."


def title(option: Option) -> str:
    """The name of an option, as people write it."""
    match option.kind:
        case "placement":
            return f"placement {option.system}"
        case "network":
            return str(Rate.parse(option.system))
        case _:
            return answer.name(option.system)


def shared(base: Result) -> str:
    """Sentence on the cost of sharing for the unchanged jobs."""
    alone_s = base.isolated_s or base.ideal_s
    return f"Shared, an iteration takes {base.mean_s / alone_s:.2f}× its time in isolation." if alone_s else ""


def reason(
    kind: Kind, outcome: Outcome, reasons: Sequence[Reason], row: Result, base: Result, asked: Demand, before: Demand,
    *, slots_s: Sequence[float], placed: bool, outside: str | None,
) -> str:  # fmt: skip
    """The reason for an option's gain, or for none. ``slots_s``: interval of each job's start slots, in s; ``placed``: servers are named; ``outside``: why it is not validated."""
    if outcome == "faster":
        return _gains(kind, row, base, asked, before, placed=placed)
    if outcome == "slower" and any(
        slot > period * (1 + ALIKE) for slot, period in zip(slots_s, before.periods_s, strict=False)
    ):
        return (
            f"Its slots let the jobs begin an iteration every {_times(slots_s)}. In isolation an iteration takes "
            f"{_times(before.periods_s)}."
        )
    if kind in ("placement", "network"):
        return _no_gain(kind, row, base, asked, before) or _unexplained(row, outside)
    unknown = SIGN_UNKNOWN if sign_unknown(reasons) else ""
    causes = (_unexplained(row, outside) if isinstance(one, NoCauseKnown) else answer.reason(one) for one in reasons)
    return " ".join(filter(None, (*causes, unknown, _losers(row))))


def _unexplained(row: Result, outside: str | None) -> str:
    """The reason where no cause is known: outside the validated range the simulator itself is in doubt."""
    if outside is None:
        return answer.reason(NoCauseKnown())
    computed = "no gain" if abs(row.speedup_mean - 1) <= ALIKE else f"{row.speedup_mean:.2f}×"
    return f"The simulator computes {computed}; it is not validated for this: {outside.split(';')[0]}."


def sign_unknown(reasons: Sequence[Reason]) -> bool:
    """Return True if windows are at their minimum and nothing else bounds the difference: emulated gains are 0.84 to 1.05 (docs/how-to/advise.md)."""
    return not bounded(reasons) and any(isinstance(one, FewFrames) for one in reasons)


def bounded(reasons: Sequence[Reason]) -> bool:
    """Return True if a reason leaves no room for a difference, whatever the simulator's error is."""
    return any(isinstance(one, AtIdeal | NoSharedLink | OneJob | SmallShare) for one in reasons)


def gain(option: Option) -> float:
    """The emulated gain if there is one, else the computed one."""
    return option.emulated.gain_mean if option.emulated else option.gain_mean


def within_error(error: GainError) -> str:
    """Sentence on a gain that the simulator's error exceeds."""
    return f" The simulator cannot tell: its gains were up to {error.worst * 100:.0f} % off emulation."


def answer_option(advice: Advice) -> Option:
    """The option that a table names as the answer: what helps, else what may help, else the baseline."""
    return advice.option(advice.best) if advice.helps else advice.undecided or advice.baseline


def answer_word(advice: Advice) -> str:
    """What helps, in a table."""
    if advice.helps:
        return title(answer_option(advice))
    return "nothing helps" if advice.undecided is None else f"unknown ({title(advice.undecided)}?)"


def interval_text(option: Option) -> str:
    """The interval of an option's gain, in a table: ``0.82–1.48``."""
    low, high = option.low, option.high
    if option.emulated is not None:
        low, high = (
            option.emulated.gain_mean if end is None else end for end in (option.emulated.low, option.emulated.high)
        )
    return "–" if option.kind == "baseline" else f"{low:.2f}–{high:.2f}"


def emulated_otherwise(ratio: float, outcome: Outcome) -> str:
    """The reason for an emulated outcome that is not the computed one."""
    return f"Emulated, the gain is {ratio:.2f}× ({outcome})."


def _gains(kind: Kind, row: Result, base: Result, asked: Demand, before: Demand, *, placed: bool) -> str:
    if kind == "network" and asked.phases_s and before.phases_s:
        return (
            f"The jobs communicate for {_times(asked.phases_s)} of an iteration instead of {_times(before.phases_s)}."
        )
    if kind == "placement" and asked.shares_link is False:
        return (
            f"With the workers of each job close together, {_lower(answer.reason(NoSharedLink()))}{ROOM * (not placed)}"
        )
    interleaves = next((stated for stated in row.findings if isinstance(stated, Interleaved)), None)
    ratios = " ".join(filter(None, (_ratios(row, base), _losers(row))))
    if interleaves is None or interleaves.at is None:
        return f"The communication phases overlap less. {ratios}"
    fits = ""
    if (
        before.phases_s
        and len({round(period, 9) for period in before.periods_s}) == 1
        and sum(before.phases_s) <= before.periods_s[0]
    ):
        fits = f"The phases ({_times(before.phases_s)} each) fit in the iteration ({time_text(before.periods_s[0])}). "
    return f"{fits}They interleave from iteration {decimal(interleaves.at, 6)}. {ratios}"


def _ratios(row: Result, base: Result) -> str:
    if not (row.ideal_s and base.ideal_s):
        return ""
    return (
        f"The last iterations take {row.last10_mean_s / row.ideal_s:.2f}× the ideal instead of "
        f"{base.last10_mean_s / base.ideal_s:.2f}×."
    )


def _losers(row: Result) -> str:
    """What each job gains, where jobs differ and one of them is slower."""
    gains = next((stated.speedups for stated in row.findings if isinstance(stated, Uneven)), {})
    return answer.uneven(gains) if min(gains.values(), default=1.0) < 1 - ALIKE else ""


def _no_gain(kind: Kind, row: Result, base: Result, asked: Demand, before: Demand) -> str:
    """Another placement or network gains nothing where little is lost to sharing, or the same links are shared; empty if no cause is known."""
    if before.shares_link is False and kind == "placement":
        return answer.reason(NoSharedLink())
    if kind == "placement" and (ideal := findings.at_ideal(base)) is not None:
        return answer.reason(ideal)
    if kind == "network" and before.phases_s:
        share = sum(before.phases_s) / sum(before.periods_s)
        if share <= ALIKE:
            return f"The jobs communicate for {share:.1%} of their iterations."
    if (small := findings.small_share(before)) is not None:
        return answer.reason(small)
    if kind == "placement" and row.ideal_s and base.ideal_s:
        return f"The jobs still share links there. {_ratios(row, base)}"
    if kind == "network" and before.exposed_s and asked.exposed_s:
        return (
            f"In isolation an iteration waits {_times(before.exposed_s)} for this network, and {_times(asked.exposed_s)} for the faster "
            f"one. Computing hides the rest of the communication."
        )
    return ""


def confidence(error: GainError, outside: str | None) -> str:
    """Sentence on the simulator's error, and on the runs for which it is known."""
    mixes = count(error.mixes, "mix", "mixes")
    if outside is None:
        return f"validated, gains of {mixes} were within {error.worst * 100:.1f} % of emulation"
    return f"{OUTSIDE} ({outside}), where gains of {mixes} were up to {error.worst * 100:.0f} % off emulation"


def confidence_of(options: Sequence[Option], best: Option, undecided: Option | None) -> str:
    """Confidence in each option that the headline names; in the first one if it names none."""
    placement = _better_placement(options, best)
    named = [placement, best if best is not options[0] else None, _perhaps_better(options, best, undecided)]
    told = [one for one in named if one is not None] or list(options[1:2])
    return "; ".join(f"{title(one)}: {_confidence(one)}" for one in told)


def _confidence(option: Option) -> str:
    if option.emulated is None:
        return option.confidence
    low, high = option.emulated.low, option.emulated.high
    seen = "one value, no interval" if low is None or high is None else f"95 % CI {low:.2f}–{high:.2f}"
    return f"emulated, {option.emulated.gain_mean:.2f}× ({seen}; verdict {option.emulated.verdict})"


def _perhaps_better(options: Sequence[Option], best: Option, undecided: Option | None) -> Option | None:
    """The option that may be faster than the best one."""
    return undecided if undecided is not None and (best is options[0] or gain(undecided) > gain(best)) else None


def conclusion(options: Sequence[Option], best: Option, undecided: Option | None) -> str:
    """The recommendation and its reason; one or two sentences for each option."""
    told = [f"{name}: {text}" for name, text in others(options, best)]
    return " ".join(" ".join([headline(options, best, undecided), *told]).split())


def headline(options: Sequence[Option], best: Option, undecided: Option | None) -> str:
    """The best option, and why it is; one that may be better (``undecided``), and a better placement that was not asked about."""
    base, placement = options[0], _better_placement(options, best)
    perhaps, candidate = "", _perhaps_better(options, best, undecided)
    if candidate is not None:
        perhaps = f"{title(candidate)} may be faster {f'than {title(base)}' if best is base else 'still'}: {_gain_text(candidate)}. "
        perhaps += TOO_SHORT if candidate.reason == TOO_SHORT else CONFIRM
    if best is not base:
        answered = (
            f"{title(best)}, {gain(best):.2f}× as fast as {title(base)} {_interval(best)}. {best.reason} {perhaps}"
        )
    elif perhaps:
        answered = f"Unknown: {perhaps} {base.reason}"
    elif placement is not None or any(one.kind == "placement" and may_gain(one) for one in options):
        answered = f"No congestion control or scheduler is faster than {title(base)}. {base.reason}"
    else:
        answered = f"Nothing on this network is faster than {title(base)}. {base.reason}"
    if placement is not None:
        first = f"Best: {title(placement)}, {_gain_text(placement)}, if the jobs can be placed so (--cluster)"
        answered = f"{first}; else {answered}" if best is not base else f"{first}. {answered}"
    elif best is not base:
        answered = f"Best without a faster network: {answered}"
    return " ".join(answered.split())


def _better_placement(options: Sequence[Option], best: Option) -> Option | None:
    """A placement that gains more than the best option: without --cluster it does not count."""
    return next(
        (one for one in options if one.kind == "placement" and one.outcome == "faster" and gain(one) > gain(best)), None
    )


def may_gain(option: Option) -> bool:
    """Return True if an inconclusive option may be faster: its interval ends above `WORTH`."""
    emulated = option.emulated
    high = option.high if emulated is None or emulated.verdict == "invalid" else emulated.high or emulated.gain_mean
    return option.outcome == "inconclusive" and high > WORTH


def _gain_text(option: Option) -> str:
    return f"{gain(option):.2f}× {_interval(option)}"


def _interval(option: Option) -> str:
    if option.emulated is not None:
        return "(emulated)"
    return f"(interval {option.low:.2f}–{option.high:.2f})"


def others(options: Sequence[Option], best: Option) -> Iterator[tuple[str, str]]:
    """The name of each other option, and what it gains and why; faster networks last."""
    said = {best.reason: best}
    for one in sorted(options[1:], key=lambda one: (one.kind == "network", -one.gain_mean)):
        if one is not best:
            same = said.setdefault(one.reason, one)
            reason = one.reason if same is one else f"For the same reason as {title(same)}."
            yield _capital(title(one)), f"{_verb(one)}. {reason}"


def _verb(option: Option) -> str:
    ratio = f"{gain(option):.2f}×"
    return {"faster": f"{ratio} as fast", "slower": f"slower, {ratio} as fast"}.get(
        option.outcome, f"{option.outcome}, {ratio}"
    )


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _times(seconds: Sequence[float]) -> str:
    different = list(dict.fromkeys(map(time_text, seconds)))
    return " and ".join(different) if len(different) <= 2 else f"{time_text(min(seconds))} to {time_text(max(seconds))}"

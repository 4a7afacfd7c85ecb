"""The findings of a summary in words (`testbed.core.runs.findings`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from testbed import transports
from testbed.congestion import catalogue
from testbed.core.runs.findings import (
    Active,
    AtIdeal,
    BaseInterleaves,
    Compared,
    Delivered,
    FewFrames,
    Finding,
    Interleaved,
    InterleavingUnknown,
    MostlyHidden,
    NoCauseKnown,
    NoCoordination,
    NoSharedLink,
    NotInterleaved,
    OfferedLoad,
    OneJob,
    OtherBase,
    Periods,
    RandomLoss,
    Reason,
    SharedAcks,
    SmallShare,
    Timeouts,
    TooShort,
    Uneven,
)
from testbed.core.runs.summary import Result, Summary
from testbed.core.text import count, decimal
from testbed.core.units import rate_text

FLOW_SCHEDULERS = {"cassini": "CASSINI"}  # those that people do not write as they are typed
MOST_NAMED = 4  # jobs, or periods


def name(system: str) -> str:
    """A congestion control or a transport as people write it: ``MLTCP-Reno``, ``LTP``; with its parameters as they were typed."""
    plain, colon, rest = system.partition(":")
    written = FLOW_SCHEDULERS.get(plain) or transports.titled(catalogue.titled(plain))
    return f"{written} ({rest})" if colon else written


def sentence(row: Result, base: Result, found: Iterable[Finding]) -> str:
    """Write the findings about a result and its baseline as one paragraph."""
    sentences: list[str] = []
    who, other = _distinct_names(row, base)
    every = list(found)
    interleaves = next((stated for stated in every if isinstance(stated, Interleaved)), None)
    for stated in every:
        match stated:
            case Compared():
                sentences.append(_compared(stated, who, other, interleaves))
                sentences += map(reason, stated.reasons)
            case TooShort():
                sentences.append(_too_short(stated, who, other))
            case Uneven(speedups=speedups):
                sentences.append(uneven(speedups))
            case Delivered():
                sentences.append(_delivered(stated, who))
            case Interleaved() | NotInterleaved() | InterleavingUnknown() | Active():
                pass  # in the table, and on separate lines
    return " ".join(sentences)


def _distinct_names(row: Result, base: Result) -> tuple[str, str]:
    """Both as people write them; with their job schedulers if these differ."""
    if row.scheduler == base.scheduler:
        return name(row.system), name(base.system)
    return f"{name(row.system)} under {row.scheduler}", f"{name(base.system)} under {base.scheduler}"


def _compared(stated: Compared, who: str, other: str, interleaves: Interleaved | None) -> str:
    gain = f"{stated.speedup:.2f}×"
    if stated.interval is None:
        seen = f"{count(stated.seeds, 'seed')}, no interval"
    else:
        seen = f"95 % CI {stated.interval[0]:.2f}–{stated.interval[1]:.2f}, {count(stated.seeds, 'seed')}"
    match stated.outcome:
        case "faster":
            return f"{who} is {gain} as fast as {other} ({seen}){_from(interleaves)}."
        case "slower":
            return f"{who} is slower than {other}: {gain} as fast ({seen})."
        case "no difference":
            return f"No significant difference between {who} and {other}: {gain} ({seen})."
        case "inconclusive":
            return f"Inconclusive: {who} is {gain} as fast as {other} ({seen})."


def _from(interleaves: Interleaved | None) -> str:
    if interleaves is None or interleaves.at is None:
        return ""
    several = f" in {interleaves.seeds} of {count(interleaves.of, 'seed')}" if interleaves.of > 1 else ""
    return f" and interleaves from iteration {decimal(interleaves.at, 6)}{several}"


def _too_short(stated: TooShort, who: str, other: str) -> str:
    total = count(stated.iterations, "iteration")
    if stated.active_from is None:
        active = f"MLTCP was active in none of {total}"
    else:
        active = f"MLTCP was active for {decimal(stated.iterations - stated.active_from, 6)} of {total}, and {stated.needed} are needed"
    return f"Too few iterations to compare {who} with {other}: {active}. So far {who} is {stated.speedup:.2f}× as fast. Raise --iterations."


def uneven(speedups: dict[int, float]) -> str:
    """Sentence on the gain of each job."""
    if len(speedups) > MOST_NAMED:
        return f"Jobs differ: {min(speedups.values()):.2f}× to {max(speedups.values()):.2f}×."
    return "Jobs differ: " + ", ".join(f"job {job} {gain:.2f}×" for job, gain in speedups.items()) + "."


def _delivered(stated: Delivered, who: str) -> str:
    tags = (
        ""
        if stated.important_fraction is None
        else f" Its tags mark {stated.important_fraction * 100:.0f} % of the packets as important."
    )
    if stated.share == 1:
        return f"{who} delivered all gradient bytes.{tags}"
    # An incomplete delivery must not be rounded up to 100 %.
    return f"{who} delivered {decimal(min(stated.share, 0.9999) * 100)} % of the gradient bytes.{tags}"


def reason(found: Reason) -> str:
    """Return a cause as a sentence."""
    match found:
        case OneJob():
            return "No other job shares the network."
        case OfferedLoad():
            return overload(found) + "."
        case Periods(divisor_s=None):
            return f"The iteration times ({_periods(found.periods_s)}) have no common divisor. The communication phases drift through each other."
        case Periods(divisor_s=divisor_s):
            return (
                f"The communication phases take {time_text(found.phases_s)} in all. The common divisor of the iteration times "
                f"({_periods(found.periods_s)}) is only {time_text(divisor_s or 0)}, so some phases always overlap."
            )
        case NoSharedLink():
            return "No bottleneck carries flows of two jobs in one direction."
        case SmallShare(most=most):
            return f"The jobs communicate so little that full overlap costs {most - 1:.1%} at most."
        case AtIdeal(system=system, ratio=ratio):
            return f"{name(system)} is at the ideal already ({ratio:.3f}×)."
        case MostlyHidden():
            return (
                f"Computing hides most of the communication: {time_text(sum(found.exposed_s))} of {time_text(sum(found.phases_s))} (all jobs) are "
                "exposed. A delay rarely moves the next iteration."
            )
        case BaseInterleaves(system=system, at=at):
            return f"{name(system)} interleaves, too (from iteration {decimal(at, 6)})."
        case FewFrames():
            kind = "ECN threshold" if found.threshold == "ecn" else "buffer"
            harm = " Below 2 frames MLTCP has slowed jobs by up to 16 %." if found.per_flow < 2 else ""
            return (
                f"{arrow(found.link)} has {decimal(found.per_flow, 2)} frames of {kind} per flow ({decimal(found.frames, 3)} frames, "
                f"{count(found.flows, 'flow')}). Below 3 frames every window is at its minimum.{harm}"
            )
        case SharedAcks(link=link):
            return f"{arrow(link)} carries data both ways. ACKs wait in the queue of the data, so their delay varies."
        case Timeouts():
            times = count(found.count, "retransmission timeout")
            return f"TCP waited for {times} of {time_text(found.least_s)} or more."
        case RandomLoss(loss=loss):
            return f"A wire loses {decimal(loss * 100)} % of its packets at random, which limits every window."
        case NoCoordination(system=system, against=against):
            if name(system) == name(against):
                return f"{name(system)} does not use iterations, so it interleaves no jobs by design."
            return f"Neither {name(system)} nor {name(against)} uses iterations, so neither interleaves jobs by design."
        case OtherBase(base=base, speedup=None):
            return f"Its base is {name(base)}. Add --system {base} to compare the two."
        case OtherBase(base=base, speedup=speedup):
            return f"{name(base)}, its base, is {speedup:.2f}×."
        case NoCauseKnown():
            return "No cause is known."


def overload(found: OfferedLoad) -> str:
    """Clause on the load that exceeds a link's capacity, without a full stop."""
    return f"The jobs offer {found.share * 100:.0f} % of {arrow(found.link)} ({rate_text(found.rate_bps)})"


def arrow(link: str) -> str:
    """A direction of a link as people write it: ``s1→s2``."""
    return link.replace("-", "→", 1)


def time_text(seconds: float) -> str:
    """A time in s as text: in ms below one second, else in s."""
    return f"{decimal(seconds * 1e3, 3)} ms" if seconds < 1 else f"{decimal(seconds, 3)} s"


def _periods(periods_s: Sequence[float]) -> str:
    different = list(dict.fromkeys(map(time_text, periods_s)))
    if len(different) > MOST_NAMED:
        return f"{time_text(min(periods_s))} to {time_text(max(periods_s))}"
    return ", ".join(different)


def advice(summary: Summary) -> str | None:
    """The remedy for an invalid result; None if it is valid."""
    if summary.verdict != "invalid":
        return None
    programs = any(job.ideal_s is None for row in summary.results for job in row.per_job)
    if summary.clock != "real":
        what = "change what the lines above name; a link that carried more than its rate (I3) is a fault of the testbed: report it"
    elif programs:
        what = "repeat it with a lower --rate on a quieter machine"
    else:
        what = "repeat it with --on uml (exact, on any machine), or here with a lower --rate"
    return f"An invalid result says nothing of congestion controls: {what}; docs/reference/invariants.md explains each line."

"""A trace from the record of a training run: the median step of all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import fmean, median

from testbed.core.errors import within
from testbed.core.text import decimal
from testbed.core.units import Rate, Size
from testbed.traces.median_iteration import trace_of
from testbed.traces.recording import Origin, Sample
from testbed.traces.steps import Exchange, Step
from testbed.traces.trace import Source, Trace, TraceError, save

FEWEST_STEPS = 3  # of one rank, for a median and a spread


@dataclass(frozen=True)
class Description:
    """Values that a recording lacks; empty: see `trace_from`."""

    name: str
    native_rate: str = ""
    on: str = ""


def write(recorded: list[tuple[Origin, list[Sample]]], path: Path, how: Description) -> str:
    """Write the trace of all ranks' samples; returns the text for the user, or raises `TraceError`."""
    trace = trace_from(recorded, how)
    save(trace, path)
    samples = [sample for _, of_rank in recorded for sample in of_rank]
    spent = fmean(sample.spent_ns for sample in samples)
    lengths = [sample.end_ns - sample.start_ns for sample in samples]
    exchanges = sum(op.bytes is not None for op in trace.operations)
    return (
        f"{path}: {len(samples)} steps of {len(recorded)} rank(s), {decimal(median(lengths) / 1e6)} ms each; {exchanges} buckets of "
        f"{Size(trace.bytes_per_iteration)} in all, {decimal(trace.compute_s * 1e3)} ms of computing ± {trace.noise}; "
        f"recording took {decimal(spent / 1e6, 3)} ms of a step ({spent / fmean(lengths):.2%})"
    )


def trace_from(recorded: list[tuple[Origin, list[Sample]]], how: Description) -> Trace:
    """The median step of all ranks; raises `TraceError` if a rank has fewer than three."""
    fewest = min((len(samples) for _, samples in recorded), default=0)
    if fewest < FEWEST_STEPS:
        raise TraceError(
            f"only {fewest} step(s) of a rank were recorded, and {FEWEST_STEPS} are needed after those left out "
            "with --skip: train for more steps, or skip fewer"
        )
    origin = recorded[0][0]
    ranks = [[_step(sample) for sample in samples] for _, samples in recorded]
    assumptions = list(dict.fromkeys(note for one, _ in recorded for note in one.notes))
    if origin.ranks == 1:
        assumptions.append("recorded with one rank: buckets and computing are measured, no exchange took place")
    return trace_of(
        ranks,
        name=how.name,
        model=f"{origin.model}, {origin.parameters:,} parameters, data parallel",
        source=Source(
            kind="recorded",
            measured_by=f"testbed.traces.recorder in {origin.software}",
            when=date.today().isoformat(),
            on=how.on or f"{origin.ranks} × {origin.device}",
        ),
        native_rate=rate(how.native_rate),
        workers={"": origin.ranks},
        assumptions=tuple(assumptions),
    )


def _step(sample: Sample) -> Step:
    return Step(
        duration_s=(sample.end_ns - sample.start_ns) / 1e9,
        exchanges=tuple(
            Exchange(
                "all_reduce",
                one.bytes,
                (one.ready_ns - sample.start_ns) / 1e9,
                (one.end_ns - sample.start_ns) / 1e9,
                importance=one.importance,
            )
            for one in sample.buckets
        ),
    )


def rate(text: str) -> Rate | None:
    with within("--native-rate"):
        return Rate.parse(text) if text else None

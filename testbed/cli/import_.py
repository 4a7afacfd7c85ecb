"""Make a trace from what a profiler wrote: the median of the profiled steps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from testbed.core.text import plain, quoted
from testbed.core.units import Duration, Rate, Size
from testbed.traces.trace import Kind, Trace, TraceError, critical_path_s, save

_KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind) if kind != "compute"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="one, or one per rank: steps are pooled")
    parser.add_argument(
        "-o",
        "--out",
        "--output",
        dest="output",
        required=True,
        type=Path,
        metavar="OUT.json",
        help="the trace to write",
    )
    parser.add_argument("--force", action="store_true", help="overwrite OUT.json if it is there")
    parser.add_argument("--format", help="of the files (default: judged by their contents)")
    said = parser.add_argument_group("what the files do not say")
    said.add_argument("--name", help="of the trace (default: that of OUT.json)")
    said.add_argument("--model", help="what was trained, in words (default: the name)")
    said.add_argument("--native-rate", metavar="RATE", help="link rate for which the times hold (assumed: 10gbit)")
    said.add_argument("--on", default="", metavar="TEXT", help="hardware it was measured on")
    said.add_argument("--bytes", metavar="SIZE,…", help="of each collective of a step, or one total, if not recorded")
    said.add_argument(
        "--ranks", metavar="N", help="of the process group, if not recorded (an all-gather's size needs it)"
    )
    said.add_argument("--iteration", metavar="TIME", help="length of a step, if not recorded")
    chosen = parser.add_argument_group("what is imported")
    chosen.add_argument("--group", metavar="NAME", help="process group (default: the one with the most bytes)")
    chosen.add_argument("--only", metavar="KIND,…", help=f"these collectives alone, of {', '.join(_KINDS)}")


def run(parsed: argparse.Namespace) -> int:
    from testbed.traces import importing

    _check_output(parsed.output, parsed.force)
    request = importing.Request(
        group=parsed.group,
        sizes=tuple(Size.parse(text) for text in parsed.bytes.split(",")) if parsed.bytes else (),
        ranks=_ranks(parsed.ranks),
        iteration=Duration.parse(parsed.iteration) if parsed.iteration else None,
    )
    name = parsed.name or parsed.output.stem
    trace = importing.import_trace(
        parsed.files,
        request,
        name=name,
        model=parsed.model or name,
        native_rate=Rate.parse(parsed.native_rate) if parsed.native_rate else None,
        on=parsed.on,
        format=parsed.format,
        only=_only(parsed.only),
    )
    try:
        save(trace, parsed.output)
    except ValueError as error:
        raise TraceError(f"{', '.join(map(str, parsed.files))}: {error} (--only keeps some kinds alone)") from error
    print(_summary(trace, parsed.output))
    return 0


def _check_output(path: Path, force: bool) -> None:
    """Before minutes of reading rather than after."""
    if path.suffix != ".json":
        raise TraceError(f"the trace is to be written to {path}: give it a name that ends in .json")
    if not path.parent.is_dir():
        raise TraceError(f"there is no folder {path.parent} to write {path.name} to")
    if path.exists() and not force:
        raise TraceError(f"{path} is there already; --force overwrites it")


def _ranks(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= len(text) <= 6 or int(text) < 1:
        raise TraceError(f"--ranks {text[:20]!r}: a number of ranks, 1 to 999999")
    return int(text)


def _only(text: str | None) -> frozenset[Kind] | None:
    if text is None:
        return None
    unknown = [kind for kind in text.split(",") if kind not in _KINDS]
    if unknown:
        raise TraceError(f"--only: {quoted(unknown[0])} is none of {', '.join(_KINDS)}")
    return frozenset(_KINDS[kind] for kind in text.split(","))


def _summary(trace: Trace, path: Path) -> str:
    collectives = [op for op in trace.operations if op.bytes]
    rate = trace.native_rate or 1
    wire_s = trace.bytes_per_iteration * 8 / rate
    iteration_s = critical_path_s(trace, lambda op: (op.bytes or 0) * 8 / rate)
    lines = [
        f"{path}: {trace.name}, {len(trace.operations)} operations",
        f"  computes  {Duration(round(trace.compute_s * 1e9))} per iteration (noise {trace.noise})",
        f"  sends     {Size(trace.bytes_per_iteration)} in {len(collectives)} collectives",
        f"  duty      {wire_s / iteration_s:.0%}: {Duration(round(wire_s * 1e9))} on the wire "
        f"of {Duration(round(iteration_s * 1e9))} at {trace.native_rate}",
    ]
    return "\n".join(map(plain, [*lines, *(f"  assumed   {each}" for each in trace.assumptions)]))

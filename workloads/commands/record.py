"""``python -m workloads record -- COMMAND``: a real PyTorch training run becomes a trace.

The command is run unchanged, with `workloads.hook` in front of its ``PYTHONPATH``; every
rank writes what it measures to a private file, and their median step is the trace.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import fmean, median

from workloads import hook, recording, text
from workloads.recording import Origin, Sample
from workloads.steps import Exchange, Step, trace_of
from workloads.trace import Source, Trace, TraceError, save
from workloads.units import Rate, Size, UnitError

INSTALL = "pip install 'mltcp-testbed[torch]'"
FEWEST_STEPS = 3  # of one rank, for a median and a spread


@dataclass(frozen=True)
class Description:
    """What a recording cannot know; empty: see `trace_from`."""

    name: str
    native_rate: str = ""
    on: str = ""


HELP = "record a real PyTorch training run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [-o FILE] [--name NAME] [--native-rate RATE] [--on HARDWARE] [--skip K] -- COMMAND ..."
    parser.add_argument("-o", "--out", type=Path, default=Path("recorded.json"), metavar="FILE", help="%(default)s")
    parser.add_argument("--name", default="", help="of the trace; the file's, if not given")
    parser.add_argument("--native-rate", default="", metavar="RATE", help="link rate the times hold for: 10gbit")
    parser.add_argument("--on", default="", metavar="HARDWARE", help="what it ran on, such as '2 x A100, NVLink'")
    parser.add_argument("--skip", type=int, default=2, metavar="K", help="first steps left out (%(default)s)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="such as: torchrun --nproc-per-node 2 train.py")


def run(parsed: argparse.Namespace) -> int:
    """0 if the trace was written, the command's code if it failed, 1 without enough steps, 2 for a wrong request."""
    command = parsed.command[1:] if parsed.command[:1] == ["--"] else parsed.command
    how = Description(parsed.name or parsed.out.stem, parsed.native_rate, parsed.on)
    try:
        if not command:
            raise ValueError("no command to record; for instance: record -- torchrun --nproc-per-node 2 train.py")
        if parsed.skip < 0:
            raise ValueError(f"--skip {parsed.skip}: a number of steps to leave out, 0 or more")
        if not parsed.out.absolute().parent.is_dir():
            raise ValueError(f"--out {parsed.out}: there is no folder {parsed.out.parent}; make it first")
        if parsed.out.exists() and not parsed.out.is_file():
            raise ValueError(f"--out {parsed.out} is no file (a folder, a device, a pipe); name another one")
        _rate(how.native_rate)
    except (ValueError, OSError) as error:
        return _fail(str(error), 2)
    with tempfile.TemporaryDirectory(prefix="mltcp-record-") as folder:
        before = [path for path in [os.environ.get("PYTHONPATH")] if path]
        changed = {recording.RECORD: folder, "PYTHONPATH": os.pathsep.join([str(hook.FOLDER), *before])}
        environment = {key: value for key, value in os.environ.items() if key != recording.REPORT_FD} | changed
        try:
            code = subprocess.run(command, env=environment, check=False).returncode
        except OSError as error:
            hint = f"; if it comes with PyTorch: {INSTALL}" if command[0] == "torchrun" else ""
            return _fail(f"cannot run {command[0]}: {error.strerror}{hint}", 2)
        seen = (Path(folder) / recording.TORCH_SEEN).exists()
        if code != 0:
            code = code if code > 0 else 128 - code
            missing = not seen and importlib.util.find_spec("torch") is None
            hint = f" It did not get as far as importing torch, which is not installed here: {INSTALL}." * missing
            return _fail(f"{shlex.join(command)} failed with code {code}: nothing written.{hint}", code)
        recorded = [(origin, samples[parsed.skip :]) for origin, samples in recording.read(Path(folder))]
    try:
        if not recorded:
            raise TraceError(_why_nothing(seen))
        print(write(recorded, parsed.out, how))
    except TraceError as error:
        return _fail(str(error), 1)
    return 0


def write(recorded: list[tuple[Origin, list[Sample]]], path: Path, how: Description) -> str:
    """Write the trace of all ranks' samples; returns what to tell the user, or raises `TraceError`."""
    trace = trace_from(recorded, how)
    save(trace, path)
    samples = [sample for _, of_rank in recorded for sample in of_rank]
    spent = fmean(sample.spent_ns for sample in samples)
    lengths = [sample.end_ns - sample.start_ns for sample in samples]
    exchanges = sum(op.bytes is not None for op in trace.operations)
    return (
        f"{path}: {len(samples)} steps of {len(recorded)} rank(s), {median(lengths) / 1e6:.4g} ms each; {exchanges} buckets of "
        f"{Size(trace.bytes_per_iteration)} in all, {trace.compute_s * 1e3:.4g} ms of computing ± {trace.noise}; "
        f"recording took {spent / 1e6:.3g} ms of a step ({spent / fmean(lengths):.2%})"
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
            measured_by=f"workloads.recorder in {origin.software}",
            when=date.today().isoformat(),
            on=how.on or f"{origin.ranks} × {origin.device}",
        ),
        native_rate=_rate(how.native_rate),
        assumptions=tuple(assumptions),
    )


def _step(sample: Sample) -> Step:
    return Step(
        duration_s=(sample.end_ns - sample.start_ns) / 1e9,
        exchanges=tuple(
            Exchange(
                "all_reduce", one.bytes, (one.ready_ns - sample.start_ns) / 1e9, (one.end_ns - sample.start_ns) / 1e9
            )
            for one in sample.buckets
        ),
    )


def _rate(text: str) -> Rate | None:
    try:
        return Rate.parse(text) if text else None
    except UnitError as error:
        raise ValueError(f"--native-rate: {error}") from error


def _why_nothing(torch_seen: bool) -> str:
    if not torch_seen:
        return (
            "no step was recorded: no Python process of this command imported torch (or it was started with -S, -I "
            "or -E, which keep the recorder out). Record the command that trains, such as torchrun train.py"
        )
    return (
        "no step was recorded: torch was imported, but no optimizer took a step after a backward pass. Let it train "
        "for a few steps; a loop that updates its weights without torch.optim has to use workloads.recorder itself"
    )


def _fail(message: str, code: int) -> int:
    print(text.paragraph(f"error: {message}"), file=sys.stderr)
    return code

"""``mltcp record -- COMMAND``: record a real PyTorch training as a trace.

The command runs unchanged, with `testbed.traces.hook` at the front of its ``PYTHONPATH``. Every rank writes its
measurements to a private file, and the median step becomes the trace.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path

from testbed.core import children, temp_dirs, text
from testbed.traces import hook, recording, trace_builder
from testbed.traces.trace import TraceError

INSTALL = "pip install 'mltcp-testbed[torch]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [OPTION ...] -- COMMAND ..."
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("recorded.json"),
        metavar="FILE",
        help="trace to write (default: %(default)s)",
    )
    parser.add_argument("--name", default="", help="name of the trace (default: that of the file)")
    parser.add_argument(
        "--native-rate",
        default="",
        metavar="RATE",
        help="link rate at which the times are recorded: 10gbit (default: not recorded)",
    )
    parser.add_argument(
        "--on",
        default="",
        metavar="HARDWARE",
        help="hardware of the training, such as '2 x A100, NVLink' (default: not recorded)",
    )
    parser.add_argument(
        "--skip", type=int, default=2, metavar="K", help="number of first steps left out (default: %(default)s)"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="command that trains, such as: torchrun --nproc-per-node 2 train.py"
    )


def run(parsed: argparse.Namespace) -> int:
    """0 if the trace was written, the command's code if it failed, 1 without enough steps, 2 for a wrong request."""
    command = parsed.command[1:] if parsed.command[:1] == ["--"] else parsed.command
    how = trace_builder.Description(parsed.name or parsed.out.stem, parsed.native_rate, parsed.on)
    try:
        if not command:
            raise ValueError("no command to record; for instance: record -- torchrun --nproc-per-node 2 train.py")
        if parsed.skip < 0:
            raise ValueError(f"--skip {parsed.skip}: a number of steps to leave out, 0 or more")
        if not parsed.out.absolute().parent.is_dir():
            raise ValueError(f"--out {parsed.out}: there is no folder {parsed.out.parent}; make it first")
        if parsed.out.exists() and not parsed.out.is_file():
            raise ValueError(f"--out {parsed.out} is no file (a folder, a device, a pipe); name another one")
        trace_builder.rate(how.native_rate)
    except (ValueError, OSError) as error:
        return _fail(str(error), 2)
    with temp_dirs.scratch() as scratch:
        folder = str(scratch)
        before = [path for path in [os.environ.get("PYTHONPATH")] if path]
        changed = {recording.RECORD: folder, "PYTHONPATH": os.pathsep.join([str(hook.FOLDER), *before])}
        environment = {key: value for key, value in os.environ.items() if key != recording.REPORT_FD} | changed
        try:
            code = children.run([find_program(command[0]), *command[1:]], env=environment, in_terminal=True)
        except OSError as error:
            hint = f" It comes with PyTorch: {INSTALL}." if command[0] == "torchrun" else ""
            return _fail(f"cannot run {text.shown(command[0])}: {error.strerror}.{hint}", 2)
        seen = (Path(folder) / recording.TORCH_SEEN).exists()
        if code != 0:
            code = code if code > 0 else 128 - code
            missing = not seen and importlib.util.find_spec("torch") is None
            hint = f" It did not get as far as importing torch, which is not installed here: {INSTALL}." * missing
            return _fail(f"{shlex.join(command)} failed with code {code}: nothing written.{hint}", code)
        stopped = recording.reasons(Path(folder))
        ranks = [(origin, samples[parsed.skip :]) for origin, samples in recording.read(Path(folder))]
    try:
        if not ranks:
            raise TraceError(f"no step was recorded: {'; '.join(stopped)}." if stopped else _why_nothing(seen))
        print(trace_builder.write(ranks, parsed.out, how))
        if stopped:
            print(text.paragraph(f"warning: recording stopped before the end: {'; '.join(stopped)}."), file=sys.stderr)
    except TraceError as error:
        return _fail(str(error), 1)
    return 0


def find_program(command: str) -> str:
    """The program as the shell would find it; else the one of that name in this Python's own environment, such as ``torchrun``."""
    if os.sep in command or shutil.which(command):
        return command
    own = Path(sys.executable).parent / command
    return str(own) if os.access(own, os.X_OK) else command


def _why_nothing(torch_seen: bool) -> str:
    if not torch_seen:
        return (
            "no step was recorded: no Python process of this command imported torch (or it was started with -S, -I "
            "or -E, which keep the recorder out). Record the command that trains, such as torchrun train.py"
        )
    return (
        "no step was recorded: torch was imported, but no optimizer took a step after a backward pass. Let it train "
        "for a few steps; a loop that updates its weights without torch.optim has to use testbed.traces.recorder itself"
    )


def _fail(message: str, code: int) -> int:
    print(text.paragraph(f"error: {message}"), file=sys.stderr)
    return code

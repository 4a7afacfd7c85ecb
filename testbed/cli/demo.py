"""``mltcp demo``: the main comparison, then a trace of ResNet-50 training; under virtual time, so equal on every machine."""

from __future__ import annotations

import argparse

from testbed.cli import run as one_run
from testbed.core.arguments import Parser
from testbed.core.errors import EXIT_OK

RUNS = ("--topo dumbbell --jobs 4", "--jobs 2 --trace resnet50 --keep-duty --rate 300mbit --iterations 40")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--on", choices=("uml", "flow"), help="backend (default: that of `run`)")
    parser.add_argument("--out", default="results", metavar="FOLDER", help="folder for results (default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="repetition of stored runs, which are replaced")


def run(parsed: argparse.Namespace) -> int:
    """The exit code of the first run that does not end well."""
    for arguments in RUNS:
        parser = Parser(prog="run")
        one_run.add_arguments(parser)
        flags = [*(["--on", parsed.on] if parsed.on else []), *(["--again"] if parsed.again else [])]
        if code := one_run.run(parser.parse_args([*arguments.split(), *flags, "--out", parsed.out])):
            return code
    return EXIT_OK
